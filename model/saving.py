"""The model folder: architecture.json and model.safetensors.

It is all that is needed to use a derived model, and reading it needs only this package.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.adjusting import adjusted
from model.architecture import Architecture, load_architecture
from model.dropout import NO_DROPOUT, Dropout
from model.language_model import LanguageModel

ARCHITECTURE_FILE = "architecture.json"
TENSOR_FILE = "model.safetensors"
_DIGEST_KEY = "architecture_sha256"
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
        ValueError: the model is not one of this architecture.
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if problems := _differences(found, _shapes(architecture)):
        raise _refusal("model", problems)
    folder.mkdir(parents=True, exist_ok=True)
    # One entry only: safetensors writes several in an order that changes from call to call.
    blob = save(tensors, metadata={_DIGEST_KEY: _digest(architecture)})
    _write_whole(folder / TENSOR_FILE, blob)
    _write_whole(folder / ARCHITECTURE_FILE, architecture.to_json().encode())


def load_model(folder: Path | str, adjust: Mapping[str, int | None] | None = None) -> LanguageModel:
    """Read a model folder; the model is on the CPU and in evaluation mode.

    The shapes in the file are compared with the architecture before any tensor is read.

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
    path = folder / TENSOR_FILE
    with torch.device("meta"):
        model = build_model(adjusted(architecture, adjust or {}))
    tensors = _read_tensors(path, architecture)
    model.load_state_dict(tensors, assign=True)
    return model.eval()


def _read_tensors(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: part.get_shape() for name, part in slices.items()}
            problems = _differences(found, _shapes(architecture))
            dtypes = {name: part.get_dtype() for name, part in slices.items()}
            problems += _dtype_problems(dtypes)
            if not problems and (file.metadata() or {}).get(_DIGEST_KEY) != _digest(architecture):
                problems = [f"was saved with another {ARCHITECTURE_FILE}, of the same shapes"]
            if problems:
                raise _refusal(str(path), problems)
            # safetensors hands out views of the mapped file: they change when the file does,
            # and their alignment, and so the last bits of a product, is not a tensor's own.
            return {name: file.get_tensor(name).clone() for name in found}
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file: {error}") from None


def _refusal(source: str, problems: list[str]) -> ValueError:
    """The first problems, and how many more there are."""
    shown = problems[:8] + [f"and {len(problems) - 8} more problems"] * (len(problems) > 8)
    return ValueError("\n".join(f"{source}: {problem}" for problem in shown))


def _shapes(architecture: Architecture) -> dict[str, list[int]]:
    with torch.device("meta"):
        state = build_model(architecture).state_dict()
    return {name: list(tensor.shape) for name, tensor in state.items()}


def _differences(found: dict[str, list[int]], expected: dict[str, list[int]]) -> list[str]:
    problems = [f"{name}: missing" for name in expected if name not in found]
    problems += [f"{name}: no such tensor in the model" for name in found if name not in expected]
    return problems + [
        f"{name}: shape {found[name]}, the architecture says {expected[name]}"
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


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
