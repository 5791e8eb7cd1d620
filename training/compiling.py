"""torch.compile of what a training step does in a slot."""

import torch

from model.slot import RunSlot, run

# One for each kind of block, number of tokens, state of the memory, and whether gradients flow.
MOST_GRAPHS = 512


def compiled_run(device: torch.device) -> RunSlot:
    """A slot's call through torch's compiler; equal slots share what it makes.

    Slots are compiled one by one, so that a search has a graph for each candidate and not for each
    layout. Every size has a graph of its own (`dynamic=False`): otherwise code would depend on
    which sizes came first, and a resumed run on where it was resumed.

    Raises:
        ValueError: the compiler that torch needs on this device is missing.
    """
    if missing := _missing(device):
        raise ValueError(f"run.compile: {missing}; install it, or set run.compile=false")
    import torch._dynamo

    torch._dynamo.config.recompile_limit = MOST_GRAPHS
    torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
    compiled: RunSlot = torch.compile(run, dynamic=False, fullgraph=True)
    return compiled


def _missing(device: torch.device) -> str | None:
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return None if has_triton() else "torch finds no working Triton for this GPU"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch finds no C++ compiler (g++, or what CXX names)"
    return None
