"""What may stand in the place of a run's file."""

import io
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from utils.files import READ_ERRORS
from utils.pi import PEAK_LRS


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(shape: str, kind: str = "<f4") -> bytes:
    """An array of zeros that claims a shape."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


def packed(alpha: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("alpha.npy", alpha)
    return buffer.getvalue()


def lying(raw: bytes) -> Iterator[bytes]:
    """Files in the place of pi.npz."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as file:
        arrays = dict(file)
    alpha = arrays["alpha"]
    yield b""
    yield b"PK"
    yield npy("(3,)")
    yield b"\x80\x04N."
    for keep in (4, len(raw) // 2, len(raw) - 5):
        yield raw[:keep]
    for shape in (
        "(1000000000000000,)",
        "(-1,)",
        "(True,)",
        "(99999999999999999999999,)",
        "((",
        "3",
    ):
        yield packed(npy(shape))
    yield packed(npy("(2,)", "|O"))
    yield packed(b"\x93NUMPY\x09\x00")
    yield packed(npy("(3,)"), zipfile.ZIP_BZIP2)
    yield packed(bytes(10**7))
    for name in sorted(arrays.keys() - {PEAK_LRS}):  # a file of an older version has none
        yield npz(**{key: value for key, value in arrays.items() if key != name})
    for changed in (
        {"alpha": alpha[0]}, {"alpha": alpha[:, :0]}, {"alpha": alpha[:-1]},
        {"alpha": np.full_like(alpha, np.nan)},
        {"alpha": alpha.astype("U9")}, {"labels": np.array(["a"])}, {"labels": np.array([1, 2, 3])},
        {"labels": np.array(["a", "b", "c\x1b[1m"])}, {"step": arrays["step"] + 1},
        {"tau": arrays["tau"][:1]}, {"pi": arrays["pi"][:, :1]}, {"alpha_start": np.array([1, 2])},
        {"alpha_start": np.array("x")}, {"step": arrays["step"].astype(float)},
        {PEAK_LRS: np.array(0.05)}, {PEAK_LRS: np.array(["x"])}, {PEAK_LRS: np.array([np.nan])},
    ):  # fmt: skip
        yield npz(**{**arrays, **changed})
    draw = random.Random(0)
    for place in draw.sample(range(len(raw)), 40):
        broken = bytearray(raw)
        broken[place] ^= 1 << draw.randrange(8)
        try:
            with np.load(io.BytesIO(broken), allow_pickle=False) as file:
                if all(np.array_equal(file[name], arrays[name]) for name in arrays):
                    continue  # a date, or what nobody reads
        except READ_ERRORS:
            pass
        yield bytes(broken)


def wrong_json(raw: bytes) -> Iterator[bytes]:
    """Texts in the place of a JSON object."""
    yield from (
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b"\xff",
        raw[:-20],
        b"[" * 10**5,
        b'{"a": ' * 10**4,
    )
    yield b"\xef\xbb\xbf[]"
    yield b'{"a": ' + b"9" * 10**4 + b"}"


def no_files(path: Path) -> Iterator[None]:
    """Stops with nothing, a pipe, a folder, an endless device and a ring of links in its place."""
    path.unlink()
    yield
    os.mkfifo(path)
    yield
    path.unlink()
    path.mkdir()
    yield
    path.rmdir()
    path.symlink_to("/dev/zero")
    yield
    path.unlink()
    path.symlink_to(path)
    yield
