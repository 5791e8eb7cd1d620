"""Keeping freed memory in the process: on Linux, the C library's allocator gives it back too soon.

Tensors of more than 128 KiB come from fresh pages that the kernel has to clear, in every step
anew; a process that keeps them trains faster and holds the most that it ever needed at once.
"""

import ctypes
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_NEVER = 2**31 - 1
_PAD_BYTES = 64 * 2**20


def keeps_freed_memory() -> bool:
    """Whether the C library can be told so."""
    return platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> bool:
    """Let this process reuse the memory that it frees; whether the C library was told so."""
    if not keeps_freed_memory():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)
