"""Tensors with a header in one safetensors file: versioned, with a checksum, without a pickle."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.saving import tensors_digest
from utils.files import Part, check_is_file, write_whole

VERSION = 3
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    header: Mapping[str, Any],
    keep_old_as: Path | None = None,
) -> None:
    """Write the file whole or not at all, without a second copy of the tensors in memory.

    The file that was there before is kept under the name `keep_old_as`, if there is one; where
    writing fails (OSError) it stays.
    """
    # The order is the library's own: wide types first, so that every tensor is aligned.
    ours = {
        name: tensors[name].detach().cpu().contiguous()
        for name in sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    }
    text = json.dumps({"version": VERSION, **header}, sort_keys=True)
    layout: dict[str, Any] = {"__metadata__": {"parnas": text, "sha256": _checksum(text, ours)}}
    end = 0
    for name, tensor in ours.items():
        start, end = end, end + tensor.nbytes
        layout[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    head = json.dumps(layout, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    contents = (tensor.reshape(-1).view(torch.uint8).numpy().data for tensor in ours.values())
    parts: list[Part] = [len(head).to_bytes(8, "little"), head, *contents]
    write_whole(path, parts, keep_old_as)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a file that `write_tensors` wrote.

    ValueError: the file is damaged, another program's or of another version.
    """
    with _opened(path) as file:
        metadata = file.metadata() or {}
        header = _header(metadata.get("parnas"))
        # Copies: what stays a view of the mapped file is aligned otherwise, and last bits of
        # later sums may depend on that.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        if metadata.get("sha256") != _checksum(metadata["parnas"], tensors):
            raise ValueError("damaged checkpoint (the checksum is another)")
    return tensors, header


def read_header(path: Path) -> dict[str, Any]:
    """The header alone, with the errors of `read_tensors`."""
    with _opened(path) as file:
        return _header((file.metadata() or {}).get("parnas"))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    check_is_file(path)
    # The library calls every file missing that it may not open.
    path.open("rb").close()
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged checkpoint ({error})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _header(text: str | None) -> dict[str, Any]:
    try:
        header = json.loads(text or "null")
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ValueError("not a checkpoint of this program")
    if header.get("version") != VERSION:
        raise ValueError(
            f"checkpoint version {header.get('version')}, this program reads {VERSION}; "
            "use the program that wrote it"
        )
    return header


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256((text + tensors_digest(tensors)).encode()).hexdigest()
