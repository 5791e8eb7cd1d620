"""Reading an npz file that may be damaged or may claim anything."""

import io
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What is unpacked to more than this is no file of ours.
MAX_BYTES = 2**31
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# All that a damaged archive, a damaged stream or a damaged header of an array can end in.
READ_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    TypeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, none of them of objects.

    Raises:
        One of READ_ERRORS: it is damaged or unpacks to too much.
    """
    arrays = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > MAX_BYTES:
            raise ValueError(f"unpacks to more than {MAX_BYTES} bytes")
        for entry in entries:
            if entry.compress_type not in _METHODS:
                raise ValueError(f"{entry.filename!r:.40} is packed in an unknown way")
            # Whole first: the checksum stands at the end, and comes before any of it is believed.
            array = io.BytesIO(archive.read(entry))
            name = entry.filename.removesuffix(".npy")
            arrays[name] = np.lib.format.read_array(array, allow_pickle=False)
    return arrays
