"""Sub-networks of a trained model: their distances from the whole.

They are scored on the training text that training would have read next, so that the latest it saw
is not among it, and not on validation text. Memories are the sub-network's own; the first segment
only fills them.

B streams   T segment   N segments   D d_model
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from model import BLOCKS, Candidate, LanguageModel
from model.distillation import TaughtRows
from model.state import Segment, StreamState
from nas.derivation.base import Choice
from nas.derivation.shrink import Distance
from nas.statistics.paired_scores import score_of
from training.state import Batch
from utils.kept import Kept


@dataclass
class SubNetworks:
    """Scores of what stays of a model where its places have other options; each is scored once.

    Attributes:
        net: the model with the weights of all options in its places.
        candidates: of the experiment; `options` has numbers of them for each place, its own first.
        batches: a segment that fills memories, and those that are scored.
        kept: where each score is kept as soon as it is there.
    """

    net: LanguageModel
    candidates: Sequence[Candidate]
    options: Sequence[Sequence[int]]
    batches: Sequence[Batch]
    kept: Kept

    def distances(self, choices: Sequence[Choice]) -> dict[Choice, Distance]:
        """Those of the choices, in one walk: what begins alike is computed once."""
        missing = sorted({one for one in choices if self._name(one) not in self.kept.values})
        if missing:
            self._walk(missing)
        return {one: self._distance(one) for one in choices}

    @torch.inference_mode()
    def cosines(self) -> list[float]:
        """Of each place of the parent, the mean over tokens between its input and its output."""
        x_NBTD, found = self._embedded, list[float]()
        for place, of_place in enumerate(self.options):
            y_NBTD = self._through(place, of_place[0], x_NBTD)
            pairs = zip(x_NBTD[1:], y_NBTD[1:], strict=True)
            cosine_N = torch.cat(
                [torch.cosine_similarity(*pair, dim=-1).flatten() for pair in pairs]
            )
            found.append(float(cosine_N.mean()))
            x_NBTD = y_NBTD
        return found

    @torch.inference_mode()
    def _walk(self, choices: Sequence[Choice]) -> None:
        """Score choices that stand in order: each begins where it leaves the one before it."""
        stack, before = [self._embedded], Choice()
        for choice in tqdm(choices, "subsets scored", unit="", disable=None, leave=False):
            same = next((at for at, k in enumerate(before) if k != choice[at]), len(before))
            del stack[same + 1 :]
            for place in range(same, len(choice)):
                stack.append(self._through(place, choice[place], stack[-1]))
            self.kept.add(self._name(choice), self._measured(stack[-1]))
            before = choice

    def _through(self, place: int, k: int, x_NBTD: Sequence[Tensor]) -> Sequence[Tensor]:
        """The residual stream of all segments behind a place."""
        index = self.options[place].index(k)
        if BLOCKS[self.candidates[k].kind].adds_nothing:
            return x_NBTD
        slot, start, passed = self.net.slots[place], self._start, list[Tensor]()
        memory_BMD, states = start.memory[place], start.blocks[place]
        for x_BTD, segment in zip(x_NBTD, self._segments, strict=True):
            result = slot(x_BTD, memory_BMD, segment, states, [(index, None)])
            x_BTD, memory_BMD, states, _ = result
            passed.append(x_BTD)
        return passed

    def _measured(self, x_NBTD: Sequence[Tensor]) -> list[list[list[float]]]:
        """Sums of KL and of nats, segments x streams; the first segment does not count."""
        kl, nats = list[list[float]](), list[list[float]]()
        scored = zip(x_NBTD, self._taught, self.batches, strict=True)
        for x_BTD, taught, batch in [*scored][1:]:
            h_BTD = self.net.norm(x_BTD)
            kl_BT = taught.kl(h_BTD.flatten(0, 1)).view(batch.target_BT.shape)
            kl.append(kl_BT.double().sum(dim=1).tolist())
            nats.append(self.net.nll(h_BTD, batch.target_BT).double().sum(dim=1).tolist())
        return [kl, nats]

    def _distance(self, choice: Choice) -> Distance:
        scored = self.batches[1:]
        tokens_NB = np.array([[one.target_BT.shape[1]] * len(one.target_BT) for one in scored])
        kl_NB, nats_NB = map(np.array, self.kept.values[self._name(choice)])
        return Distance(score_of(kl_NB, tokens_NB), score_of(nats_NB, tokens_NB))

    def _name(self, choice: Choice) -> str:
        return " ".join(self.candidates[k].label for k in choice)

    @cached_property
    def _start(self) -> StreamState:
        return self.net.initial_state(len(self.batches[0].input_BT), cached=True)

    @cached_property
    def _segments(self) -> list[Segment]:
        """What all places and choices share: masks and encodings are made once."""
        segments, seen = list[Segment](), 0
        for batch in self.batches:
            full, seen_B = seen >= self.net.longest_memory, self._start.seen_B + seen
            length = batch.input_BT.shape[1]
            segments.append(Segment(seen_B, length, self._start.cache, full))
            seen += length
        return segments

    @cached_property
    def _embedded(self) -> Sequence[Tensor]:
        return [self.net.tables.embed(batch.input_BT) for batch in self.batches]

    @cached_property
    def _taught(self) -> list[TaughtRows]:
        """The parent's own predictions."""
        x_NBTD = self._embedded
        for place, of_place in enumerate(self.options):
            x_NBTD = self._through(place, of_place[0], x_NBTD)
        rows = (self.net.norm(x_BTD).flatten(0, 1) for x_BTD in x_NBTD)
        return [TaughtRows.of(self.net.softmax, row_ND) for row_ND in rows]
