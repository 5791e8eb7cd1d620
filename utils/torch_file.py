"""Tensors of a file that torch.save wrote, without running what the file says.

The file is a pickle: a program that makes objects and may call any function. Here its opcodes are
read one by one and only those are followed that a checkpoint of plain tensors consists of: numbers,
words, lists, tuples, dicts, and places of tensors. All else is refused by its name and its place.
Both forms are read: the older one of several pickles with the numbers behind them, and the zip.
"""

import io
import os
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from utils.files import READ_ERRORS, check_is_file

# What is larger is no pickle of tensors' names: numbers stand outside of it.
MOST_PICKLE_BYTES = 2**26
MOST_OPCODES = 2**20
_MOST_AXES = 16
# The first pickle of the older form, whole: torch's magic number in protocol 2.
_OLDER = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_OLDER_VERSION = 1001
_ZIP = b"PK\x03\x04"
# Where the tensors' bytes are: what gives those of a storage.
_Read = Callable[["Storage"], bytes]


@dataclass(frozen=True)
class Storage:
    """A row of numbers in the file, which tensors are views of."""

    key: str
    dtype: str
    numbers: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.numbers * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class StoredTensor:
    """Where in a storage a tensor lies; strides are in numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class TorchFile:
    """What the file holds, with a `StoredTensor` in the place of every tensor."""

    path: Path
    content: Any
    _read: _Read

    def tensor(self, stored: StoredTensor) -> NDArray[Any]:
        """A tensor's numbers; ValueError where they cannot be read."""
        raw = self._read(stored.storage)
        if len(raw) != stored.storage.bytes or not prod(stored.shape):
            raise ValueError(f"{self.path}: ends too early, or a tensor is empty; copy it again")
        numbers = np.frombuffer(raw, dtype=stored.storage.dtype)
        # What an axis of one entry has as its stride means nothing, and may be any number.
        steps = [step if n > 1 else 0 for n, step in zip(stored.shape, stored.strides, strict=True)]
        bytes_apart = [step * numbers.itemsize for step in steps]
        view = np.lib.stride_tricks.as_strided(numbers[stored.offset :], stored.shape, bytes_apart)
        return view.copy()


@contextmanager
def open_torch_file(path: Path) -> Iterator[TorchFile]:
    """Read what a file says of its tensors; their numbers are read when they are asked for.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such file, damaged, or holds other things than plain tensors.
    """
    check_is_file(path)
    with path.open("rb") as file:
        begin = file.read(len(_OLDER))
        size = os.fstat(file.fileno()).st_size
        if begin == _OLDER:
            opened = _open_older(path, file, size)
        elif begin.startswith(_ZIP):
            with _damage(path):
                archive = zipfile.ZipFile(file)
            opened = _open_zip(path, archive, size)
        else:
            raise ValueError(f"{path}: is no file that torch.save wrote; give a checkpoint")
        yield opened


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Name the file in whatever a damaged zip ends in."""
    try:
        yield
    except READ_ERRORS as error:
        raise ValueError(f"{path}: damaged ({error!s:.100}); copy it again") from None


def _open_older(path: Path, file: BinaryIO, size: int) -> TorchFile:
    """Pickles of a version, the machine, the content and the keys of storages; then storages."""
    file.seek(0)
    stream = io.BytesIO(file.read(MOST_PICKLE_BYTES))
    stream.seek(len(_OLDER))
    storages: dict[str, Storage] = {}
    version, machine, content, keys = (_Pickle(path, storages).read(stream) for _ in range(4))
    if version != _OLDER_VERSION or type(machine) is not dict or type(keys) is not list:
        raise ValueError(f"{path}: is of a version of torch.save that is not known here")
    _check_order(path, machine.get("little_endian") is True)
    names = [key for key in keys if type(key) is str and key in storages]
    if len(names) < len(keys) or len(names) != len(storages) or len(set(names)) != len(names):
        raise ValueError(f"{path}: damaged, names other storages than its tensors lie in")
    place, places = stream.tell(), {}
    for key in names:
        end = place + 8 + storages[key].bytes
        if end > size:
            raise ValueError(f"{path}: ends at byte {size}, before the storage {key!r:.40} does")
        file.seek(place)
        if int.from_bytes(file.read(8), "little", signed=True) != storages[key].numbers:
            raise ValueError(f"{path}: at byte {place}: damaged, {key!r:.40} has another size")
        place, places[key] = end, place + 8

    def read(storage: Storage) -> bytes:
        file.seek(places[storage.key])
        return file.read(storage.bytes)

    return TorchFile(path, content, read)


def _check_order(path: Path, low_byte_first: bool) -> None:
    if not low_byte_first:
        raise ValueError(f"{path}: was written on a machine whose numbers begin with the high byte")


def _open_zip(path: Path, archive: zipfile.ZipFile, size: int) -> TorchFile:
    """One pickle, data.pkl, and a member for each storage, all in one folder and not packed."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.orig_filename
        if not re.fullmatch(r"[^/\\\0]+(/[^/\\\0]+)+", name) or ".." in name.split("/"):
            raise ValueError(f"{path}: holds the unsafe name {name!r:.60}")
        if name in members:
            raise ValueError(f"{path}: holds {name!r:.60} twice")
        # Then nothing that comes out is larger than the file.
        packed = member.compress_type != zipfile.ZIP_STORED
        if packed or member.compress_size != member.file_size or member.file_size > size:
            raise ValueError(f"{path}: {name!r:.60} is packed, or larger than the file")
        members[name] = member
    pickles = [name for name in members if re.fullmatch("[^/]+/data.pkl", name)]
    if len(pickles) != 1:
        raise ValueError(f"{path}: has {len(pickles)} pickles data.pkl, and one is wanted")

    def read(name: str) -> bytes:
        with _damage(path):
            return archive.read(members[name]) if name in members else b""

    folder, length = pickles[0].partition("/")[0], members[pickles[0]].file_size
    if length > MOST_PICKLE_BYTES:
        raise ValueError(f"{path}: data.pkl has {length} bytes, which is too many")
    _check_order(path, read(f"{folder}/byteorder")[:9] in (b"", b"little"))
    storages: dict[str, Storage] = {}
    content = _Pickle(path, storages).read(io.BytesIO(read(pickles[0])))
    for key, storage in storages.items():
        held = members.get(f"{folder}/data/{key}")
        if held is None or held.file_size != storage.bytes:
            found = "no bytes" if held is None else f"{held.file_size} bytes"
            raise ValueError(
                f"{path}: has {found} of the storage {key!r:.40}, which needs {storage.bytes!s:.30}"
            )
    return TorchFile(path, content, lambda storage: read(f"{folder}/data/{storage.key}"))


@dataclass(frozen=True)
class _Global:
    name: str


_DTYPES = {
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
}
_DICT, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
_GLOBALS = {_DICT, _TENSOR, *_DTYPES}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


class _Refused(Exception):
    """What a pickle has that is not followed."""


class _Pickle:
    """A pickle's opcodes, followed one by one; what they name is never looked up."""

    def __init__(self, path: Path, storages: dict[str, Storage]) -> None:
        """`storages` takes those that tensors lie in."""
        self.path, self.storages, self.place = path, storages, 0
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def read(self, stream: io.BytesIO) -> Any:
        """What a pickle makes; the stream is then behind it."""
        try:
            for count, (opcode, argument, place) in enumerate(pickletools.genops(stream)):
                self.place = place or 0
                if count >= MOST_OPCODES:
                    raise _Refused(f"has more than {MOST_OPCODES} opcodes")
                self.follow(opcode.name, argument)
            if self.outer or len(self.stack) != 1:
                raise _Refused("makes nothing, or more than one thing")
            return self.stack[0]
        except _Refused as refusal:
            where = f"{self.path}: at byte {self.place}"
            raise ValueError(f"{where}: {refusal}; only plain tensors are read") from None
        except ValueError as error:
            words = " ".join(f"{error!s:.100}".split())
            raise ValueError(f"{self.path}: is no whole pickle ({words}); copy it again") from None

    def follow(self, name: str, argument: Any) -> None:
        """Do what an opcode says, where it is one that plain tensors need."""
        push = self.stack.append
        match name:
            case "PROTO" | "STOP":
                pass
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                push(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_TUPLE":
                push(_CONSTANTS[name])
            case "EMPTY_DICT":
                push({})
            case "EMPTY_LIST":
                push([])
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple([self.pop() for _ in range(int(name[5]))][::-1]))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.last()
            case "BINGET" | "LONG_BINGET" if argument in self.memo:
                push(self.memo[argument])
            case "GLOBAL" if argument in _GLOBALS:
                push(_Global(argument))
            case "GLOBAL":
                raise _Refused(f"names {argument!r:.60}")
            case "BINPERSID":
                push(self.storage(self.pop(tuple)))
            case "REDUCE":
                arguments = self.pop(tuple)
                push(self.made(self.pop(_Global).name, arguments))
            case _:
                self.follow_container(name)

    def follow_container(self, name: str) -> None:
        """The opcodes that fill what was made empty."""
        match name:
            case "MARK":
                self.outer.append(self.stack)
                self.stack = []
            case "TUPLE":
                items = self.since_mark()
                self.stack.append(tuple(items))
            case "APPEND":
                item = self.pop()
                self.last(list).append(item)
            case "APPENDS":
                items = self.since_mark()
                self.last(list).extend(items)
            case "SETITEM":
                value, key = self.pop(), self.pop()
                self.set_items([key, value])
            case "SETITEMS":
                self.set_items(self.since_mark())
            case "BUILD":
                # The versions of a state dict's modules.
                self.pop(dict)
                self.last(dict)
            case _:
                raise _Refused(f"has the opcode {name}, or one of nothing")

    def pop(self, kind: type | None = None) -> Any:
        """The last of the stack; of this type exactly, where one is given."""
        last = self.last(kind)
        self.stack.pop()
        return last

    def last(self, kind: type | None = None) -> Any:
        """As `pop`, but it stays."""
        if not self.stack:
            raise _Refused("takes what is not there")
        last = self.stack[-1]
        if kind is not None and type(last) is not kind:
            raise _Refused(f"needs a {kind.__name__}, found a {type(last).__name__}")
        return last

    def since_mark(self) -> list[Any]:
        """What the stack holds since the last mark."""
        if not self.outer:
            raise _Refused("looks for a mark that is not there")
        items, self.stack = self.stack, self.outer.pop()
        return items

    def set_items(self, items: list[Any]) -> None:
        """Keys and values by turns, into the dict before them."""
        # A nested tuple as a key would be hashed as deep as it goes.
        if len(items) % 2 or not all(type(key) in (str, int) for key in items[::2]):
            raise _Refused("has a key that is neither a word nor a whole number")
        self.last(dict).update(zip(items[::2], items[1::2], strict=True))

    def storage(self, item: tuple[Any, ...]) -> Storage:
        """Of its type, key, device and size, in the older form also what it is a view of."""
        if [type(part) for part in item[:5]] != [str, _Global, str, str, int]:
            raise _Refused("describes a storage in an unknown way")
        word, kind, key, _, numbers, *view = item
        if word != "storage" or kind.name not in _DTYPES or numbers < 0 or view not in ([], [None]):
            raise _Refused("describes a storage in an unknown way")
        storage = Storage(key, _DTYPES[kind.name], numbers)
        if self.storages.setdefault(key, storage) != storage:
            raise _Refused(f"gives the storage {key!r:.40} two sizes or types")
        return storage

    def made(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """What the two known calls are known to make."""
        if name == _DICT and not arguments:
            return {}
        if name != _TENSOR or [type(part) for part in arguments[:4]] != [
            Storage,
            int,
            tuple,
            tuple,
        ]:
            raise _Refused("describes a tensor in an unknown way")
        storage, offset, shape, strides = arguments[:4]
        known = all(type(n) is int and n >= 0 for n in (offset, *shape, *strides))
        if not known or len(shape) != len(strides) or len(shape) > _MOST_AXES:
            raise _Refused("describes a tensor in an unknown way")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if prod(shape) and (last >= storage.numbers or prod(shape) > storage.numbers):
            raise _Refused(f"has a tensor that is larger than its storage {storage.key!r:.40}")
        return StoredTensor(storage, offset, shape, strides)
