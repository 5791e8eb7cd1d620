"""The model folder: architecture.json and model.safetensors.

It is all that is needed to use a derived model, and reading it needs `model/` and `utils/` alone.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.adjusting import adjusted
from model.architecture import Architecture, check_is_file, load_architecture
from model.checksum import tensors_digest
from model.dropout import NO_DROPOUT, Dropout
from model.language_model import LanguageModel
from model.shapes import shapes_of_architecture
from utils.files import write_whole

ARCHITECTURE_FILE = "architecture.json"
TENSOR_FILE = "model.safetensors"
_META = "parnas"
# The only entry of files without a digest of the tensors.
_BEFORE_DIGESTS = "architecture_sha256"
_DTYPES = {"F64", "F32", "BF16", "F16"}


def build_model(architecture: Architecture, dropout: Dropout = NO_DROPOUT) -> LanguageModel:
    """A model with fresh weights."""
    return LanguageModel(
        [[candidate] for candidate in architecture.slots],
        d_model=architecture.d_model,
        vocabulary_size=architecture.vocabulary_size,
        softmax=architecture.softmax,
        dropout=dropout,
        tie_slots=architecture.tie_slots,
    )


def save_model(folder: Path | str, model: LanguageModel, architecture: Architecture) -> None:
    """Write the model folder; each file is whole or absent at any moment.

    Raises:
        ValueError: the model is not one of this architecture, or holds nan or inf.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if problems := _differences(found, architecture) or _not_finite(tensors):
        raise ValueError(_lines("model", problems))
    folder.mkdir(parents=True, exist_ok=True)
    # One entry only: safetensors writes several in an order that changes from call to call.
    meta = {"architecture": _digest(architecture), "tensors": tensors_digest(tensors)}
    blob = save(tensors, metadata={_META: json.dumps(meta)})
    write_whole(folder / TENSOR_FILE, blob)
    write_whole(folder / ARCHITECTURE_FILE, architecture.to_json().encode())


def load_model(folder: Path | str, adjust: Mapping[str, int | None] | None = None) -> LanguageModel:
    """Read a model folder; the model is on the CPU and in evaluation mode.

    The shapes in the file are compared with the architecture before any memory is taken for a
    tensor, and the tensors with the digest that was saved with them, where there is one.

    Args:
        folder: what `save_model` wrote.
        adjust: other values of options that no weight depends on (`adjusted`), for example
            {"memory": 512, "clamp": 128}.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged or does not fit the other, with its name and the tensor's;
            or the model has no such option.
    """
    folder = Path(folder)
    architecture = load_architecture(folder / ARCHITECTURE_FILE)
    wanted = adjusted(architecture, adjust or {})
    tensors = _read_tensors(folder / TENSOR_FILE, architecture)
    with torch.device("meta"):
        model = build_model(wanted)
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _read_tensors(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    check_is_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            dtypes = {name: part.get_dtype() for name, part in slices.items()}
            if problems := _differences(found, architecture) + _dtype_problems(dtypes):
                raise ValueError(
                    f"{path}: does not fit the {ARCHITECTURE_FILE} beside it; copy both files of "
                    f"one model, or train it again\n{_lines(str(path), problems)}"
                )
            expected = _expected_digest(path, file.metadata() or {}, architecture)
            # safetensors hands out views of the mapped file: they change when the file does,
            # and their alignment, and so the last bits of a product, is not a tensor's own.
            tensors = {name: file.get_tensor(name).clone() for name in found}
    except SafetensorError as error:
        raise _damaged(path, f"or not a safetensors file ({error})") from None
    if expected is not None and tensors_digest(tensors) != expected:
        raise _damaged(path, "its tensors are not those that were saved")
    if problems := _not_finite(tensors):
        raise _damaged(path, ", ".join(problems[:8]))
    return tensors


def _expected_digest(
    path: Path, metadata: Mapping[str, str], architecture: Architecture
) -> str | None:
    """The digest of the tensors; None in a file that was written before there was one."""
    before = metadata.get(_BEFORE_DIGESTS)
    try:
        meta = {"architecture": before} if before else json.loads(metadata[_META])
        found, tensors = meta["architecture"], None if before else str(meta["tensors"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _damaged(path, "its metadata cannot be read") from None
    if found != _digest(architecture):
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
    """The first problems, and how many more there are."""
    shown = problems[:8] + [f"and {len(problems) - 8} more problems"] * (len(problems) > 8)
    return "\n".join(f"{source}: {problem}" for problem in shown)


def _differences(found: Mapping[str, tuple[int, ...]], architecture: Architecture) -> list[str]:
    """What the tensors lack, have too much, or have in another shape than the architecture's."""
    expected = shapes_of_architecture(architecture).tensors
    problems = [f"{name}: missing" for name in expected if name not in found]
    problems += [f"{name}: no such tensor in the model" for name in found if name not in expected]
    return problems + [
        f"{name}: shape {list(found[name])}, the architecture says {list(expected[name])}"
        for name in expected
        if name in found and found[name] != expected[name]
    ]


def _dtype_problems(dtypes: dict[str, str]) -> list[str]:
    """All tensors must have one floating-point type."""
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
