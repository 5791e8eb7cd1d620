"""Reading prompts, drawing the next id, going on; every token is read once, its keys are kept.

A token sees the memory that it would see if tokens were read one by one, as new ones are. So the
result does not depend on how a text is cut, also where it is longer than the memory.

B streams   T tokens   V vocabulary
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor

from model.language_model import LanguageModel
from model.state import StreamState

# Tokens of a prompt that one pass reads: products of a few rows are slow, but each meets all keys.
LEAST_AT_ONCE, MOST_AT_ONCE = 64, 1024


@dataclass(frozen=True)
class Sampling:
    """How the next id is drawn; the options apply in this order.

    Attributes:
        temperature: log-probabilities are divided by it; 0: always the likeliest id.
        top_k: so many of the likeliest ids are kept; None: all.
        top_p: the likeliest ids that together have this probability are kept; None: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: must be a number from 0, found {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: must be from 1, found {self.top_k}; leave it out to keep all")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: must be above 0 and at most 1, found {self.top_p}")


GREEDY = Sampling(temperature=0.0)


def keep_top_k(logit_BV: Tensor, k: int) -> Tensor:
    """-inf for all but the k largest logits (Fan et al. 2018, arXiv 1805.04833, section 5.1).

    Of equal ones the lower id is kept, so that k remain.
    """
    order_BV = logit_BV.sort(dim=-1, descending=True, stable=True).indices
    return logit_BV.scatter(-1, order_BV[..., k:], -math.inf)


def keep_top_p(logit_BV: Tensor, p: float) -> Tensor:
    """-inf outside the nucleus (Holtzman et al. 2019, arXiv 1904.09751, section 3.1).

    That is the fewest ids, the likeliest first, whose probabilities add up to p at least.
    """
    logit, order_BV = logit_BV.sort(dim=-1, descending=True, stable=True)
    # Before each id; a difference of sums could leave out the first one.
    before_BV = F.pad(logit.softmax(-1).cumsum(-1)[..., :-1], (1, 0))
    out_BV = torch.zeros_like(before_BV, dtype=torch.bool).scatter(-1, order_BV, before_BV >= p)
    return logit_BV.masked_fill(out_BV, -math.inf)


def probabilities(log_prob_BV: Tensor, sampling: Sampling) -> Tensor:
    """What ids are drawn with, in float64; the temperature is above 0."""
    wide_BV = log_prob_BV.double()
    # The largest becomes 0: a temperature near 0 leaves it alone instead of nothing.
    logit_BV = (wide_BV - wide_BV.amax(-1, keepdim=True)) / sampling.temperature
    if sampling.top_k is not None:
        logit_BV = keep_top_k(logit_BV, sampling.top_k)
    if sampling.top_p is not None and sampling.top_p < 1:
        logit_BV = keep_top_p(logit_BV, sampling.top_p)
    return logit_BV.softmax(-1)


def draw(
    log_prob_BV: Tensor, sampling: Sampling, generators: Sequence[torch.Generator] = ()
) -> Tensor:
    """The next id of each stream, on the CPU; stream b takes one number of generator b.

    So a stream's ids do not depend on those beside it. Without temperature no number is drawn.
    """
    if log_prob_BV.isnan().any():
        raise ValueError("the model gives nan for the next token: its weights are broken")
    if not sampling.temperature:
        return log_prob_BV.argmax(-1).cpu()
    assert len(generators) == len(log_prob_BV), (len(generators), len(log_prob_BV))
    uniform = [torch.rand(1, generator=each, dtype=torch.float64) for each in generators]
    cumulated_BV = probabilities(log_prob_BV, sampling).cumsum(-1).cpu()
    # Below the last sum whatever is rounded, since a number is at most 1 - 2^-53.
    place_B1 = torch.stack(uniform) * cumulated_BV[:, -1:]
    return torch.searchsorted(cumulated_BV, place_B1, right=True)[:, 0]


@dataclass(frozen=True)
class Reading:
    """Streams where they were read up to: their state, and the next id's log-probabilities.

    The state can be gone on from once (`append_to_kv_cache`).
    """

    state: StreamState
    log_prob_BV: Tensor


@torch.inference_mode()
def read(model: LanguageModel, ids_BT: Tensor, state: StreamState) -> Reading:
    """Read ids of every stream, one at least, on from a state that keeps keys and values."""
    most = max(LEAST_AT_ONCE, min(model.longest_memory // 4, MOST_AT_ONCE))
    for part_BT in torch.split(ids_BT, most, dim=1):
        h_BTD, state, _ = model(part_BT, state, chunk=1)
    if ids_BT.shape[1] > 1:
        # It holds something for each length of a pass, and prompts have any.
        state = replace(state, cache={})
    return Reading(state, model.log_prob(h_BTD[:, -1:])[:, 0])


def read_prompts(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> Reading:
    """Read prompts of any lengths, each into a stream of its own.

    ValueError: there is none, or one holds no id.
    """
    if not prompts or not all(map(len, prompts)):
        raise ValueError("a prompt is empty; begin it with the id of <doc>")
    readings = [
        read(model, torch.tensor([list(prompt)]), model.initial_state(1, cached=True))
        for prompt in prompts
    ]
    with torch.inference_mode():
        return Reading(
            StreamState.join([reading.state for reading in readings]),
            torch.cat([reading.log_prob_BV for reading in readings]),
        )


def steps(
    model: LanguageModel,
    reading: Reading,
    sampling: Sampling = GREEDY,
    generators: Sequence[torch.Generator] = (),
) -> Iterator[tuple[Reading, Tensor]]:
    """Yield without end the next id of every stream (B), and what it was drawn from.

    An id is read when the one after it is asked for, never sooner.
    """
    while True:
        id_B = draw(reading.log_prob_BV, sampling, generators)
        yield reading, id_B
        reading = read(model, id_B[:, None], reading.state)


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    most: int,
    *,
    sampling: Sampling = GREEDY,
    seeds: Sequence[int] = (),
    stop_id: int | None = None,
) -> list[list[int]]:
    """The ids that follow each prompt, up to `most` of them, or up to `stop_id`, which is left out.

    Prompts are ids, `<doc>` first, of any lengths; each goes on as it would alone. A stream that
    draws needs a seed. ValueError: a prompt holds no id, or one that is not of the vocabulary.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    made: list[list[int]] = [[] for _ in prompts]
    ended: set[int] = set()
    for _, id_B in islice(steps(model, read_prompts(model, prompts), sampling, generators), most):
        for stream, new in enumerate(id_B.tolist()):
            if new == stop_id:
                ended.add(stream)
            elif stream not in ended:
                made[stream].append(new)
        if len(ended) == len(made):
            break
    return made
