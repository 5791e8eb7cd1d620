"""Files as torch.save writes them, made of their opcodes: nothing of ours pickles."""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

MAGIC = 0x1950A86A20F9469CFC6C
TYPES = {"<f4": "FloatStorage", "<f8": "DoubleStorage", "<f2": "HalfStorage", "<i8": "LongStorage"}


class Raw(bytes):
    """Opcodes that are written as they are."""


class Ordered(dict[str, Any]):
    """Written as the OrderedDict that a state dict is, with the versions of its modules."""


def word(text: str) -> bytes:
    """A text's opcode."""
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def whole(number: int) -> bytes:
    """A whole number's opcode."""
    if -(2**31) <= number < 2**31:
        return b"J" + struct.pack("<i", number)
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


class Writer:
    """Pickles of one file; `storages` takes the arrays."""

    def __init__(self, *, older: bool) -> None:
        self.older = older
        self.storages: dict[str, NDArray[Any]] = {}
        self.memo: dict[str, int] = {}

    def pickled(self, value: Any) -> bytes:
        """A pickle of its own, in protocol 2."""
        self.memo = {}
        return b"\x80\x02" + self.opcodes(value) + b"."

    def opcodes(self, value: Any) -> bytes:
        """What makes a value."""
        constants: dict[Any, bytes] = {None: b"N", True: b"\x88", False: b"\x89"}
        if isinstance(value, Raw):
            return value
        if value is None or isinstance(value, bool):
            return constants[value]
        if isinstance(value, int):
            return whole(value)
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self.opcodes, value)) + b"t"
        if isinstance(value, list):
            return b"](" + b"".join(map(self.opcodes, value)) + b"e"
        if isinstance(value, dict):
            ordered = isinstance(value, Ordered)
            items = b"".join(self.opcodes(k) + self.opcodes(v) for k, v in value.items())
            made = b"ccollections\nOrderedDict\n)R" if ordered else b"}"
            versions = b"}" + word("_metadata") + b"}sb" if ordered else b""
            return made + b"(" + items + b"u" + versions
        return self.tensor(value)

    def text(self, value: str) -> bytes:
        """A text, or where it stood before."""
        if value in self.memo:
            return b"j" + struct.pack("<I", self.memo[value])
        self.memo[value] = len(self.memo)
        return word(value) + b"r" + struct.pack("<I", self.memo[value])

    def tensor(self, array: NDArray[Any]) -> bytes:
        """An array that has a storage of its own, in the order in which it lies in memory."""
        key = str(94000000 + len(self.storages)) if self.older else str(len(self.storages))
        self.storages[key] = array.ravel(order="K")
        strides = tuple(step // array.itemsize for step in array.strides)
        return tensor(TYPES[array.dtype.str], key, array.size, 0, array.shape, strides, self.older)


def tensor(
    kind: str,
    key: str,
    numbers: int,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    older: bool = True,
) -> Raw:
    """A tensor as it says of itself where it lies."""

    def row(numbers: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(whole, numbers)) + b"t"

    view = b"N" if older else b""
    storage = word("storage") + f"ctorch\n{kind}\n".encode() + word(key) + word("cuda:0")
    return Raw(
        b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage + whole(numbers) + view + b"tQ"
        + whole(offset) + row(shape) + row(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


def older_bytes(content: Any, storages: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """The form before 2020: five pickles, and the storages."""
    writer = Writer(older=True)
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    pickles = [*map(writer.pickled, (MAGIC, 1001, machine, content))]
    held = writer.storages if storages is None else storages
    pickles.append(writer.pickled(sorted(held)))
    rows = [struct.pack("<q", held[key].size) + held[key].tobytes() for key in sorted(held)]
    return b"".join(pickles + rows)


def zip_members(content: Any) -> dict[str, bytes]:
    """The members of the form since then."""
    writer = Writer(older=False)
    members = {"it/data.pkl": writer.pickled(content), "it/byteorder": b"little"}
    members |= {f"it/data/{key}": array.tobytes() for key, array in writer.storages.items()}
    return {**members, "it/version": b"3\n"}


def zip_bytes(members: Mapping[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def write(path: Path, content: Any, *, older: bool) -> Path:
    """A file of either form."""
    path.write_bytes(older_bytes(content) if older else zip_bytes(zip_members(content)))
    return path
