"""How torch runs in a training: the allocator, the compiler, and generators of random numbers.

On Linux the C library's allocator gives freed memory back too soon: tensors of more than 128 KiB
come from fresh pages that the kernel has to clear, in every step anew. A process that keeps them
trains faster and holds the most that it ever needed at once.
"""

import ctypes
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from model.slot import RunSlot, run

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_NEVER = 2**31 - 1
_PAD_BYTES = 64 * 2**20
# One for each kind of block, number of tokens, state of the memory, and whether gradients flow.
MOST_GRAPHS = 512


def keep_freed_memory() -> bool:
    """Let this process reuse the memory that it frees; whether the C library was told so."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)


def compiled_run(device: torch.device) -> RunSlot:
    """A slot's call through torch's compiler; equal slots share what it makes.

    A search has a graph for each candidate and not for each layout. Every size has a graph of its
    own (`dynamic=False`): a resumed run would else depend on where it was resumed. ValueError: the
    compiler that torch needs on this device is missing.
    """
    missing = None
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            missing = "torch finds no working Triton for this GPU"
    else:
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            missing = "torch finds no C++ compiler (g++, or what CXX names)"
    if missing is not None:
        raise ValueError(f"run.compile: {missing}; install it, or set run.compile=false")
    import torch._dynamo

    torch._dynamo.config.recompile_limit = MOST_GRAPHS
    torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
    compiled: RunSlot = torch.compile(run, dynamic=False, fullgraph=True)
    return compiled


@contextmanager
def numbers_of(key: Sequence[int], device: torch.device) -> Iterator[None]:
    """Draw inside from generators that a key decides; afterwards torch's own go on as before.

    The key, whole numbers from 0 on, stands for all state: a resume draws the same again without
    anything being saved. The generators are the CPU's and the device's.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) % 2**63
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
