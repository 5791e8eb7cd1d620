"""Which part of a checkpoint is a rank's own, and what the ranks put into one together."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from training.ranks import Ranks

_OF_ANOTHER = re.compile(r"random\.(cpu|cuda)\.[1-9]\d*")


def random_states(ranks: Ranks) -> dict[str, Tensor]:
    """The generators of all ranks; those of the first have no number in their names."""
    states = {"cpu": ranks.gather(torch.get_rng_state()[None])}
    if torch.cuda.is_available():
        states["cuda"] = ranks.gather(torch.cuda.get_rng_state()[None])
    return {
        f"random.{kind}{f'.{rank}' if rank else ''}": state
        for kind, of_ranks in states.items()
        for rank, state in enumerate(of_ranks)
    }


def own_part(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """What one process would have saved that had only this rank's streams.

    A rank that the run did not have when it was saved goes on with its generator as it is.
    """
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("stream.") and tensor.ndim:
            own[name] = tensor[ranks.rows(len(tensor))]
        elif not _OF_ANOTHER.fullmatch(name):
            own[name] = tensor
    if ranks.rank:
        own.pop("random.cuda", None)
        own["random.cpu"] = torch.get_rng_state()
        for kind in ("random.cpu", "random.cuda"):
            if f"{kind}.{ranks.rank}" in tensors:
                own[kind] = tensors[f"{kind}.{ranks.rank}"]
    return own
