"""Random numbers of torch that leave those of the weights' steps as they are."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def numbers_of(key: Sequence[int], device: torch.device) -> Iterator[None]:
    """Draw inside from generators that a key decides; afterwards torch's own go on as before.

    The key stands for all state: a resume draws the same again without anything being saved.

    Args:
        key: whole numbers from 0 on; each sequence has numbers of its own.
        device: whose generator it is, beside the CPU's.
    """
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) % 2**63
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
