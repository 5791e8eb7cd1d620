"""The model folder, architecture.json and model.safetensors: built, saved, read, checked, adjusted.

It is all that is needed to use a derived model, and reading it needs `model/` and `utils/` alone.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.architecture import Architecture, first_problems, load_architecture
from model.blocks import Candidate
from model.config import SoftmaxConfig
from model.language_model import LanguageModel
from model.layout import tied_slots
from model.ops import NO_DROPOUT, Dropout
from model.options import NO_OPTIONS, ModelOptions
from utils.files import check_is_file, write_whole

ARCHITECTURE_FILE = "architecture.json"
TENSOR_FILE = "model.safetensors"
_META = "parnas"
# The only entry of files without a digest of the tensors.
_BEFORE_DIGESTS = "architecture_sha256"
# What is unpickled when it is read; no model folder of ours holds one.
_PICKLES = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
_DTYPES = {"F64", "F32", "BF16", "F16"}


def build_model(architecture: Architecture, dropout: Dropout = NO_DROPOUT) -> LanguageModel:
    """A model with fresh weights."""
    return LanguageModel(**_arguments(architecture), dropout=dropout)


def _arguments(architecture: Architecture) -> dict[str, Any]:
    names = ("d_model", "vocabulary_size", "softmax", "tie_slots", "options")
    slots = [[candidate] for candidate in architecture.slots]
    return {"slots": slots, **{name: getattr(architecture, name) for name in names}}


def save_model(folder: Path | str, model: LanguageModel, architecture: Architecture) -> None:
    """Write the model folder; each file is whole or absent at any moment.

    ValueError: the model is not one of this architecture, or holds nan or inf.
    """
    folder = Path(folder)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if problems := _differences(shapes, architecture) or _not_finite(tensors):
        raise ValueError(_lines("model", problems))
    folder.mkdir(parents=True, exist_ok=True)
    # One entry only: safetensors writes several in an order that changes from call to call.
    meta = {"architecture": _digest(architecture), "tensors": tensors_digest(tensors)}
    blob = save(tensors, metadata={_META: json.dumps(meta)})
    write_whole(folder / TENSOR_FILE, blob)
    write_whole(folder / ARCHITECTURE_FILE, architecture.to_json().encode())


def check_no_pickle(folder: Path) -> None:
    """Raise ValueError where a model folder holds a pickle."""
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in _PICKLES:
            raise ValueError(
                f"{path}: looks like a pickle, which runs code when it is read; no model folder "
                "holds one, take it away"
            )


def load_model(folder: Path | str, adjust: Mapping[str, int | None] | None = None) -> LanguageModel:
    """Read what `save_model` wrote; the model is on the CPU and in evaluation mode.

    The shapes in the file are compared with the architecture before any memory is taken for a
    tensor, and the tensors with the digest that was saved with them, where there is one. `adjust`
    gives options that no weight depends on other values (`adjusted`).

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged or does not fit the other, with its name and the tensor's;
            or the model has no such option.
    """
    folder = Path(folder)
    architecture = load_architecture(folder / ARCHITECTURE_FILE)
    wanted = adjusted(architecture, adjust or {})
    tensors = _read_tensors(folder / TENSOR_FILE, architecture)
    return with_tensors(lambda: build_model(wanted), tensors).eval()


def with_tensors(
    build: Callable[[], LanguageModel], tensors: Mapping[str, Tensor]
) -> LanguageModel:
    """A model of these tensors, without drawing weights that they replace.

    Buffers that are in no file, such as the counts of a step, begin at 0: left on the meta device
    they let an evaluation pass, and fail where the model moves or trains.
    """
    with torch.device("meta"):
        model = build()
    model.load_state_dict(tensors, assign=True)
    for module in model.modules():
        for name, buffer in [*module.named_buffers(recurse=False)]:
            if buffer.is_meta:
                zeros = torch.zeros_like(buffer, device="cpu")
                module.register_buffer(name, zeros, persistent=False)
    return model


def _read_tensors(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    check_is_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            dtypes = {name: part.get_dtype() for name, part in slices.items()}
            if problems := _differences(shapes, architecture) + _dtype_problems(dtypes):
                raise ValueError(
                    f"{path}: does not fit the {ARCHITECTURE_FILE} beside it; copy both files of "
                    f"one model, or train it again\n{_lines(str(path), problems)}"
                )
            expected = _expected_digest(path, file.metadata() or {}, architecture)
            # safetensors hands out views of the mapped file: they change when the file does,
            # and their alignment, and so the last bits of a product, is not a tensor's own.
            tensors = {name: file.get_tensor(name).clone() for name in shapes}
    except SafetensorError as error:
        raise _damaged(path, f"or not a safetensors file ({error})") from None
    if expected is not None and tensors_digest(tensors) != expected:
        raise _damaged(path, "its tensors are not those that were saved")
    if problems := _not_finite(tensors):
        raise _damaged(path, ", ".join(first_problems(problems, most=8)))
    return tensors


def _expected_digest(
    path: Path, metadata: Mapping[str, str], architecture: Architecture
) -> str | None:
    """The digest of the tensors; None in a file that was written before there was one."""
    before = metadata.get(_BEFORE_DIGESTS)
    try:
        meta = {"architecture": before} if before else json.loads(metadata[_META])
        digest, tensors = meta["architecture"], None if before else str(meta["tensors"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _damaged(path, "its metadata cannot be read") from None
    if digest != _digest(architecture):
        raise ValueError(
            f"{path}: was saved with another {ARCHITECTURE_FILE}, of the same shapes; copy both "
            "files of one model, or train it again"
        )
    return tensors


def _damaged(path: Path, how: str) -> ValueError:
    return ValueError(f"{path}: damaged, {how}; copy the model folder again, or train it again")


def _not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    return [
        f"{name}: holds nan or inf"
        for name, tensor in tensors.items()
        if not tensor.isfinite().all()
    ]


def _lines(source: str, problems: list[str]) -> str:
    return "\n".join(f"{source}: {line}" for line in first_problems(problems, most=8))


def _differences(shapes: Mapping[str, tuple[int, ...]], architecture: Architecture) -> list[str]:
    expected = shapes_of_architecture(architecture).tensors
    problems = [f"{name}: missing" for name in expected if name not in shapes]
    problems += [f"{name}: no such tensor in the model" for name in shapes if name not in expected]
    return problems + [
        f"{name}: shape {list(shapes[name])}, the architecture says {list(expected[name])}"
        for name in expected
        if name in shapes and shapes[name] != expected[name]
    ]


def _dtype_problems(dtypes: dict[str, str]) -> list[str]:
    first = next(iter(dtypes.values()), None)
    return [
        f"{name}: type {dtype}; the tensors of a model have one type of {sorted(_DTYPES)}"
        for name, dtype in dtypes.items()
        if dtype not in _DTYPES or dtype != first
    ]


def _digest(architecture: Architecture) -> str:
    """Identity of what the tensors mean: options such as a window change no shape."""
    fields = {*architecture.built_of, "tokenizer"}
    return hashlib.sha256(architecture.model_dump_json(include=fields).encode()).hexdigest()


def adjustable_options(architecture: Architecture) -> dict[str, dict[str, Any]]:
    """What can be changed after training and its values, by label.

    A label whose slots differ stands once for each set of values, as `label`, `label (2)` and so
    on; labels without such options are absent.
    """
    sets_of: dict[str, list[dict[str, Any]]] = {}
    for candidate in architecture.slots:
        options = {
            name: getattr(candidate, name)
            for name in type(candidate).model_fields
            if name in candidate.adjustable
        }
        sets = sets_of.setdefault(candidate.label, [])
        if options and options not in sets:
            sets.append(options)
    return {
        label if number == 1 else f"{label} ({number})": options
        for label, sets in sets_of.items()
        for number, options in enumerate(sets, 1)
    }


def adjusted(architecture: Architecture, options: Mapping[str, int | None]) -> Architecture:
    """The same model with options like {"memory": 512} in every slot that has them, without costs.

    ValueError: no slot has such an option, or a value is out of bounds.
    """
    for name in options:
        if not any(name in candidate.adjustable for candidate in architecture.slots):
            raise ValueError(
                f"{name}: no slot of {architecture.name} (layout {architecture.letters()}) has it"
            )
    if not options:
        return architecture
    slots = tuple(_with(candidate, options) for candidate in architecture.slots)
    return architecture.model_copy(update={"slots": slots, "costs": None})


def _with(candidate: Candidate, options: Mapping[str, int | None]) -> Candidate:
    taken = {name: value for name, value in options.items() if name in candidate.adjustable}
    try:
        return type(candidate).model_validate({**candidate.model_dump(), **taken}, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        message = problem["msg"].removeprefix("Input should ")
        raise ValueError(
            f"{problem['loc'][0]}: must {message}, found {problem['input']!r:.60}"
        ) from None


@dataclass(frozen=True)
class Shapes:
    """Shapes of a model's state dict, and rows of memory of all slots for one stream."""

    tensors: dict[str, tuple[int, ...]]
    memory_rows: int

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(shape) for shape in self.tensors.values())


def shapes_of(
    slots: Sequence[Sequence[Candidate]],
    *,
    d_model: int,
    vocabulary_size: int,
    softmax: SoftmaxConfig,
    tie_slots: int | None = None,
    options: ModelOptions = NO_OPTIONS,
    entangle: bool = False,
) -> Shapes:
    """The sizes that a LanguageModel of these arguments has; thousands of slots take no time."""
    tied = tied_slots(slots, tie_slots)
    kinds = list(dict.fromkeys(tied.modules))
    with torch.device("meta"):
        small = LanguageModel(
            kinds,
            d_model=d_model,
            vocabulary_size=vocabulary_size,
            softmax=softmax,
            options=options,
            entangle=entangle,
        )
    tensors = {n: tuple(t.shape) for n, t in small.state_dict().items() if n[:6] != "slots."}
    shapes_of_kind: dict[tuple[Candidate, ...], dict[str, tuple[int, ...]]] = {}
    rows_of: dict[Candidate, int] = {}
    for kind, slot in zip(kinds, small.slots, strict=True):
        shapes_of_kind[kind] = {name: tuple(t.shape) for name, t in slot.state_dict().items()}
        rows_of |= {candidate: slot.memory_rows(candidate.label) for candidate in kind}
    for place, kind in enumerate(tied.modules):
        tensors |= {f"slots.{place}.{name}": shape for name, shape in shapes_of_kind[kind].items()}
    rows = sum(max((rows_of[candidate] for candidate in slot), default=0) for slot in slots)
    return Shapes(tensors, rows)


def shapes_of_architecture(architecture: Architecture) -> Shapes:
    """The sizes of a derived model."""
    return shapes_of(**_arguments(architecture))


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash of names, types, shapes and bytes, the same in whatever order the tensors come.

    Against damage, not against malice: whoever changes a file can change its digest too. Bytes
    count, not values: 0.0 and -0.0 differ, and a NaN equals itself. A tensor that is not
    contiguous or not on the CPU is copied, one at a time.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        # The shape and the type fix the number of bytes, so no two sets look alike in a row.
        head = json.dumps([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(f"{head}\n".encode())
        digest.update(tensor.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
