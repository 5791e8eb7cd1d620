"""Checkpoints that are whole or absent, versioned, and hold no pickle."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model import StreamState
from training.files import commit
from training.state import Best, TrainState

VERSION = 1


def save_checkpoint(path: Path, state: TrainState, identity: str) -> None:
    """Write everything that a resume needs into one safetensors file.

    Raises:
        OSError: the disk is full or the folder not writable; the checkpoint before stays.
    """
    header = {
        "version": VERSION,
        "identity": identity,
        "step": state.step,
        "loss_steps": state.loss_steps,
        "tokens": state.tokens,
        "best": asdict(state.best),
        "elapsed_s": state.elapsed_s,
    }
    write_tensors(path, _tensors_of(state), header)


def write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """One safetensors file with a JSON header, whole or absent."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            temporary,
            metadata={"parnas": json.dumps(header)},
        )
        temporary.chmod(0o644)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        commit(temporary, path)
    except SafetensorError as error:
        raise OSError(f"{path}: could not be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a file that `write_tensors` wrote.

    Raises:
        ValueError: the file is damaged, foreign or of another version.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("parnas", "null"))
            if not isinstance(header, dict) or header.get("version") != VERSION:
                found = header.get("version") if isinstance(header, dict) else None
                raise ValueError(
                    f"{path}: checkpoint version {found}, this program reads {VERSION}; "
                    "remove the file or use the program that wrote it"
                )
            # Copies: what stays a view of the mapped file is aligned otherwise, and last bits of
            # later sums may depend on that.
            names = file.keys()
            return {name: file.get_tensor(name).clone() for name in names}, header
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: damaged checkpoint ({error}); remove it to start again"
        ) from error


def load_checkpoint(path: Path, state: TrainState, identity: str) -> None:
    """Put a run back to where `save_checkpoint` saw it.

    Raises:
        ValueError: the file is damaged or belongs to another experiment.
    """
    tensors, header = read_tensors(path)
    if header["identity"] != identity:
        raise ValueError(f"{path}: belongs to another experiment; use another run directory")
    try:
        _restore(state, tensors)
    except (KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path}: does not fit this experiment ({error}); remove it to start again"
        ) from error
    state.step = header["step"]
    state.loss_steps = header["loss_steps"]
    state.tokens = header["tokens"]
    state.best = Best(**header["best"])
    state.elapsed_s = header["elapsed_s"]


def _tensors_of(state: TrainState) -> dict[str, Tensor]:
    tensors = {f"model.{k}": v for k, v in state.model.state_dict().items()}
    tensors |= {f"parameter.{k}": v for k, v in state.parameters.items()}
    for name, optimiser in state.optimisers.items():
        for index, slots in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser.{name}.{index}.{key}": value
                for key, value in slots.items()
                if value is not None
            }
    for name, stream in state.streams.items():
        tensors |= {f"stream.{name}.{k}": v for k, v in stream.tensors().items()}
    tensors["loss_sum"] = state.loss_sum
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    return tensors


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _restore(state: TrainState, tensors: dict[str, Tensor]) -> None:
    state.model.load_state_dict(_under(tensors, "model."))
    for name, parameter in state.parameters.items():
        parameter.data.copy_(tensors[f"parameter.{name}"])
    for name, optimiser in state.optimisers.items():
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in _under(tensors, f"optimiser.{name}.").items():
            index, _, slot = key.partition(".")
            slots.setdefault(int(index), {})[slot] = value
        optimiser.load_state_dict(
            {"state": slots, "param_groups": optimiser.state_dict()["param_groups"]}
        )
    device = next(state.model.parameters()).device
    for name, stream in state.streams.items():
        found = {k: v.to(device) for k, v in _under(tensors, f"stream.{name}.").items()}
        state.streams[name] = StreamState.from_tensors(found, like=stream)
    state.loss_sum = tensors["loss_sum"].to(device)
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
