"""The model folder, architecture.json and model.safetensors: saved, read, checked, adjusted.

It is all that is needed to use a derived model, and reading it needs `model/` and `utils/` alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.architecture import Architecture, check_model_folder, load_architecture, model_digest
from model.blocks import BLOCKS, Candidate
from model.language_model import LanguageModel
from model.layout import weight_options
from model.ops import NO_DROPOUT, Dropout
from utils.files import write_whole
from utils.validation import first_problem

ARCHITECTURE_FILE = "architecture.json"
TENSOR_FILE = "model.safetensors"
_META = "parnas"


def build_model(architecture: Architecture, dropout: Dropout = NO_DROPOUT) -> LanguageModel:
    """A model with fresh weights."""
    return LanguageModel(
        [[candidate] for candidate in architecture.blocks],
        d_model=architecture.d_model,
        vocabulary_size=architecture.vocabulary_size,
        softmax=architecture.softmax,
        dropout=dropout,
        tie_blocks=architecture.tie_blocks,
        options=architecture.options,
    )


def _without_weights(architecture: Architecture) -> LanguageModel:
    """The model on the meta device, where nothing is drawn and no memory taken."""
    with torch.device("meta"):
        return build_model(architecture)


def save_model(folder: Path | str, model: LanguageModel, architecture: Architecture) -> None:
    """Write the model folder; each file is whole or absent at any moment.

    ValueError: the model is not one of this architecture, or holds nan or inf.
    """
    folder = Path(folder)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    put_tensors("model", _without_weights(architecture), tensors)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / TENSOR_FILE, save(tensors, metadata={_META: _digest(architecture)}))
    write_whole(folder / ARCHITECTURE_FILE, architecture.to_json().encode())


def load_model(folder: Path | str, adjust: Mapping[str, int | None] | None = None) -> LanguageModel:
    """Read what `save_model` wrote; the model is on the CPU and in evaluation mode.

    `adjust` gives options that no weight depends on other values (`adjusted`). ValueError names
    the file and the tensors that do not fit the architecture.
    """
    architecture = load_architecture(Path(folder) / ARCHITECTURE_FILE)
    model = _without_weights(adjusted(architecture, adjust or {}))
    path = Path(folder) / TENSOR_FILE
    try:
        with safe_open(path, framework="pt") as file:
            # safetensors hands out views of the mapped file: they change when the file does,
            # and their alignment, and so the last bits of a product, is not a tensor's own.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            saved_with = (file.metadata() or {}).get(_META)
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file ({error})") from None
    put_tensors(str(path), model, tensors)
    # Options such as a window change no shape.
    if saved_with != _digest(architecture):
        raise ValueError(
            f"{path}: was saved with another {ARCHITECTURE_FILE}, of the same shapes; copy both "
            "files of one model, or train it again"
        )
    return model.eval()


def put_tensors(source: str, model: LanguageModel, tensors: Mapping[str, Tensor]) -> None:
    """Give a model on the meta device its tensors; ValueError, after `source`, says what is wrong.

    Buffers that are in no file begin at 0.
    """
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{source}: does not fit its {ARCHITECTURE_FILE}: {words:.800}") from None
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.isfinite().all()):
            raise ValueError(f"{source}: {name}: holds nan or inf, or is of type {tensor.dtype}")
    for module in model.modules():
        for name, buffer in [*module.named_buffers(recurse=False)]:
            if buffer.is_meta:
                zeros = torch.zeros_like(buffer, device="cpu")
                module.register_buffer(name, zeros, persistent=False)


def _digest(architecture: Architecture) -> str:
    """Identity of what the tensors mean: options such as a window change no shape."""
    fields = {*architecture.built_of, "tokenizer"}
    return hashlib.sha256(architecture.model_dump_json(include=fields).encode()).hexdigest()


@dataclass(frozen=True)
class Given:
    """A trained model from which a training takes something; `digest` is `model_digest`."""

    folder: Path
    architecture: Architecture
    model: LanguageModel
    digest: str

    @property
    def facts(self) -> dict[str, Any]:
        """Which it is, for the files of a run."""
        return {"name": self.architecture.name, "digest": self.digest}


def load_given(
    folders: Mapping[str, Path], like: Architecture, written: Sequence[Path]
) -> dict[str, Given]:
    """Read the models that keys of `retrain` name for the training of `like`.

    ValueError: one is damaged, of another tokenizer, does not fit as a `start`, or is a folder that
    the training will have `written`.
    """
    found = dict[str, Given]()
    for key, folder in folders.items():
        try:
            found[key] = _load_given(folder, like, written)
            if key == "start":
                started(_without_weights(like), [[block] for block in like.blocks], found[key])
        except ValueError as error:
            raise ValueError(f"retrain.{key}: {error}") from None
    return found


def _load_given(folder: Path, like: Architecture, written: Sequence[Path]) -> Given:
    check_model_folder(folder)
    if folder.resolve() in [path.resolve() for path in written]:
        raise ValueError(
            f"{folder}: is where this training writes its model; give another model or --run "
            "directory"
        )
    architecture = load_architecture(folder / ARCHITECTURE_FILE)
    theirs, ours = (
        f"vocabulary {one.vocabulary_size}, {one.tokenizer.digest[:12]}"
        for one in (architecture, like)
    )
    if theirs != ours:
        raise ValueError(
            f"{folder}: was trained with another tokenizer ({theirs}) than the experiment's "
            f"({ours}); give a model that was trained with the same text and data.tokenizer"
        )
    return Given(folder, architecture, load_model(folder), model_digest(folder))


def started(
    model: LanguageModel, slots: Sequence[Sequence[Candidate]], given: Given
) -> dict[str, Tensor]:
    """The weights of a trained model under the names of `model`, which has these candidates.

    Every candidate begins as the block in its place; one that adds nothing may be in any place.
    ValueError: number of blocks, what they compute, options of the whole model or shapes differ.
    """
    theirs = given.architecture
    _check_equal("number of blocks", len(theirs.blocks), len(slots))
    _check_equal("options", theirs.options, model.options)
    _check_equal("modules", len(given.model.slots), len(model.slots))
    tensors = given.model.state_dict()
    moved = {name: one for name, one in tensors.items() if not name.startswith("slots.")}
    for place, (candidates, original) in enumerate(zip(slots, theirs.blocks, strict=True)):
        module = model.tied.module_of(place)
        for ours in candidates:
            if BLOCKS[ours.kind].adds_nothing:
                continue
            _check_equal(f"blocks[{place}]", original.kind, ours.kind)
            for name, value in weight_options(ours).items():
                _check_equal(f"blocks[{place}].{name}", getattr(original, name), value)
            for group in ("blocks", "norms", "factors"):
                old, new = (f"slots.{module}.{group}.{one.label}." for one in (original, ours))
                found = (name for name in tensors if name.startswith(old))
                moved |= {new + name.removeprefix(old): tensors[name] for name in found}
    shapes = [
        {name: tuple(t.shape) for name, t in of.items()} for of in (moved, model.state_dict())
    ]
    for name in [*shapes[1], *shapes[0]]:
        _check_equal(name, *(of.get(name, "missing") for of in shapes))
    return moved


def _check_equal(what: str, theirs: object, ours: object) -> None:
    if theirs != ours:
        raise ValueError(
            f"{what}: {theirs} in the model that is given, {ours} here; give a model of the same "
            "blocks, or train from random weights"
        )


def adjustable_options(architecture: Architecture) -> dict[str, dict[str, Any]]:
    """What can be changed after training and its values, by label."""
    return {
        slot.label: {
            name: getattr(slot, name) for name in type(slot).model_fields if name in slot.adjustable
        }
        for slot in architecture.blocks
        if slot.adjustable
    }


def adjusted(architecture: Architecture, options: Mapping[str, int | None]) -> Architecture:
    """The same model with options like {"memory": 512} in every slot that has them, without costs.

    ValueError: no slot has such an option, or a value is out of bounds.
    """
    for name in options:
        if not any(name in candidate.adjustable for candidate in architecture.blocks):
            raise ValueError(
                f"{name}: no block of {architecture.name} (layout {architecture.letters()}) has it"
            )
    if not options:
        return architecture
    slots = tuple(_with(candidate, options) for candidate in architecture.blocks)
    return architecture.model_copy(update={"blocks": slots, "costs": None})


def _with(candidate: Candidate, options: Mapping[str, int | None]) -> Candidate:
    taken = {name: value for name, value in options.items() if name in candidate.adjustable}
    try:
        return type(candidate).model_validate({**candidate.model_dump(), **taken}, strict=True)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash of names, types, shapes and bytes, the same in whatever order the tensors come."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        # The shape and the type fix the number of bytes, so no two sets look alike in a row.
        head = json.dumps([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(f"{head}\n".encode())
        digest.update(tensor.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
