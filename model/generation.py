"""Reading prompts and going on with them; every token is read once, keys and values are kept.

A token sees the memory that it would see if tokens were read one by one, as new ones are. So the
result does not depend on how a text is cut, also where it is longer than the memory.

B streams   T tokens   V vocabulary
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from model.language_model import LanguageModel
from model.sampling import GREEDY, Sampling, draw
from model.state import StreamState

# Tokens of a prompt that one pass reads: products of a few rows are slow, but each meets all keys.
LEAST_AT_ONCE, MOST_AT_ONCE = 64, 1024


@dataclass(frozen=True)
class Reading:
    """What is known of streams where they were read up to.

    Attributes:
        state: it can be gone on from once (`model.kv_cache.append_to_kv_cache`).
        log_prob_BV: of the next id.
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
        raise ValueError("a prompt holds no id; begin it with the id of <doc>")
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

    Args:
        model: in evaluation mode.
        prompts: ids, `<doc>` first, of any lengths; each goes on as it would alone.
        most: new ids of a stream.
        sampling: how they are drawn; always the likeliest, unless said otherwise.
        seeds: of each stream; not needed where nothing is drawn.
        stop_id: with which a stream ends; None: none does.

    Raises:
        ValueError: a prompt holds no id, or one that is not of the vocabulary.
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
