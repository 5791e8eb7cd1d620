"""The sub-networks of a trained model: what can stand in its places, and how far each is from it.

They are scored on the training text that training would have read next, so that the latest it saw
is not among it, and not on validation text. Memories are the sub-network's own; the first segment
only fills them.

B streams   T segment   D d_model   L places
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from data.batching import Batch
from model import BLOCKS, Evidence, LanguageModel, Layout, load_architecture
from model.distillation import TaughtRows
from model.layout import block_options
from model.saving import Given, load_given, started
from model.state import Segment, StreamState
from nas.derivation.base import Choice, Derived
from nas.derivation.shrink import Distance, Parent
from nas.statistics.paired_scores import score_of
from pipeline.derive import architecture_of
from pipeline.jobs import Countdown
from pipeline.plan import RunPlan
from pipeline.run_files import result_of_model
from training.run_dir import identity_hash, machine, source_digest
from utils.files import read_object
from utils.kept import Kept
from utils.screen import say

# What a score passes through.
_SOURCES = ("data", "model", "nas/statistics", "pipeline/sub_networks.py")
_EVERY_S = 10.0


def parent_of(plan: RunPlan) -> tuple[Layout, Parent]:
    """The model of retrain.start: its blocks, and what may stay of it.

    ValueError: none is given, it does not fit the experiment, or the text is too short.
    """
    folder = plan.experiment.retrain.models().get("start")
    if folder is None:
        raise ValueError("retrain.start: method shrink needs the model folder that is to shrink")
    architecture = load_architecture(folder / "architecture.json")
    if architecture.tie_blocks is not None:
        raise ValueError(
            f"retrain.start: {folder}: blocks share weights (tie_blocks {architecture.tie_blocks}),"
            " so none can be dropped alone; give a model whose blocks are its own"
        )
    options = _options(plan, architecture.blocks)
    layout = tuple(plan.candidates[of_place[0]] for of_place in options)
    like = architecture_of(plan, Derived(layout, Evidence(method="parent")), architecture.name)
    given = load_given({"start": folder}, like, [plan.run_dir / "model"])["start"]
    scores = SubNetworks(plan, given, options)
    return layout, Parent(options, scores.distances, scores.cosines)


def _options(plan: RunPlan, blocks: Layout) -> list[tuple[int, ...]]:
    """Of each place its own block, then candidates that take its weights, then nothing."""
    candidates, found = plan.candidates, list[tuple[int, ...]]()
    nothing = next((k for k, one in enumerate(candidates) if BLOCKS[one.kind].adds_nothing), None)
    if nothing is None:
        raise ValueError("model.candidates: method shrink drops blocks; add identity")
    if (has := len(blocks)) != (wants := len(plan.slots)):
        raise ValueError(f"retrain.start: has {has} blocks, model.n_blocks {wants}; give as many")
    shapes_C, options_C = _shapes(plan), [block_options(one) for one in candidates]
    for place, block in enumerate(blocks):
        if (options := block_options(block)) not in options_C:
            raise ValueError(
                f"retrain.start: block {place} ({options}) is no candidate of the experiment; give "
                "model.candidates those of its blocks"
            )
        own = options_C.index(options)
        alike = (k for k, shapes in enumerate(shapes_C) if shapes == shapes_C[own])
        others = dict.fromkeys(k for k in alike if options_C[k] != options)
        found.append((own,) if own == nothing else (own, *others, nothing))
    return found


def _shapes(plan: RunPlan) -> list[tuple[object, ...]]:
    """Of each candidate its kind and the shapes of its tensors."""
    with torch.device("meta"):
        (slot,) = plan.network([plan.candidates]).slots
    shapes = list[tuple[object, ...]]()
    for one in plan.candidates:
        tensors = chain(*(part.state_dict().values() for part in slot.parts(one.label)))
        shapes.append((one.kind, *(tuple(tensor.shape) for tensor in tensors)))
    return shapes


@dataclass
class SubNetworks:
    """Scores of what stays of a model where its places have other options; each is scored once.

    A score is kept in RUN/shrink.jsonl as soon as it is there: the same command goes on from them.
    """

    plan: RunPlan
    given: Given
    options: Sequence[Sequence[int]]

    def distances(self, choices: Sequence[Choice]) -> dict[Choice, Distance]:
        """Those of the choices, in one walk: what begins alike is computed once."""
        missing = sorted({one for one in choices if self._name(one) not in self._kept.values})
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
        stack, before, told_s = [self._embedded], Choice(), time.monotonic()
        countdown = Countdown(len(choices))
        for choice in choices:
            same = next((at for at, k in enumerate(before) if k != choice[at]), len(before))
            del stack[same + 1 :]
            for place in range(same, len(choice)):
                stack.append(self._through(place, choice[place], stack[-1]))
            self._kept.add(self._name(choice), self._measured(stack[-1]))
            before, line = choice, countdown.line("subsets scored")
            if time.monotonic() - told_s > _EVERY_S:
                told_s = time.monotonic()
                say(line)

    def _through(self, place: int, k: int, x_NBTD: Sequence[Tensor]) -> Sequence[Tensor]:
        """The residual stream of all segments behind a place."""
        index = self.options[place].index(k)
        if BLOCKS[self.plan.candidates[k].kind].adds_nothing:
            return x_NBTD
        slot, start, passed = self._net.slots[place], self._start, list[Tensor]()
        memory_BMD, states = start.memory[place], start.blocks[place]
        for x_BTD, segment in zip(x_NBTD, self._segments, strict=True):
            result = slot(x_BTD, memory_BMD, segment, states, [(index, None)])
            x_BTD, memory_BMD, states, _ = result
            passed.append(x_BTD)
        return passed

    def _measured(self, x_NBTD: Sequence[Tensor]) -> list[list[list[float]]]:
        """Sums of KL and of nats, segments x streams; the first segment does not count."""
        kl, nats = list[list[float]](), list[list[float]]()
        scored = zip(x_NBTD, self._taught, self._batches, strict=True)
        for x_BTD, taught, batch in [*scored][1:]:
            h_BTD = self._net.norm(x_BTD)
            kl_BT = taught.kl(h_BTD.flatten(0, 1)).view(batch.target_BT.shape)
            kl.append(kl_BT.double().sum(dim=1).tolist())
            nats.append(self._net.nll(h_BTD, batch.target_BT).double().sum(dim=1).tolist())
        return [kl, nats]

    def _distance(self, choice: Choice) -> Distance:
        scored = self._batches[1:]
        tokens_NB = np.array([[one.target_BT.shape[1]] * len(one.target_BT) for one in scored])
        kl_NB, nats_NB = map(np.array, self._kept.values[self._name(choice)])
        return Distance(score_of(kl_NB, tokens_NB), score_of(nats_NB, tokens_NB))

    def _name(self, choice: Choice) -> str:
        return " ".join(self.plan.candidates[k].label for k in choice)

    @cached_property
    def _net(self) -> LanguageModel:
        """The parent with all options in its places."""
        slots = [[self.plan.candidates[k] for k in of_place] for of_place in self.options]
        net = self.plan.network(slots)
        net.load_state_dict(started(net, slots, self.given))
        return net.to(self.plan.device).eval()

    @cached_property
    def _batches(self) -> list[Batch]:
        """The segment that fills memories, and those that are scored."""
        batches, wanted = self.plan.training_batches(), self.plan.experiment.derive.shrink.tokens
        count = 1 + max(1, round(wanted / (batches.streams * batches.width)))
        if count > batches.per_epoch:
            raise ValueError(
                f"derive.shrink.tokens: {wanted} and a segment before them are more than the "
                f"training text has in {batches.per_epoch} segments of {batches.streams} streams; "
                "give fewer"
            )
        path = result_of_model(self.given.folder)
        start = (read_object(path)["steps"] if path is not None else 0) % batches.per_epoch
        if start + count > batches.per_epoch:
            start = 0  # read longest ago; a stream's end and its beginning are no neighbours
        return [batches.batch(start + number) for number in range(count)]

    @cached_property
    def _start(self) -> StreamState:
        return self._net.initial_state(len(self._batches[0].input_BT), cached=True)

    @cached_property
    def _segments(self) -> list[Segment]:
        """What all places and choices share: masks and encodings are made once."""
        segments, seen = list[Segment](), 0
        for batch in self._batches:
            full, seen_B = seen >= self._net.longest_memory, self._start.seen_B + seen
            length = batch.input_BT.shape[1]
            segments.append(Segment(seen_B, length, self._start.cache, full))
            seen += length
        return segments

    @cached_property
    def _embedded(self) -> Sequence[Tensor]:
        return [self._net.tables.embed(batch.input_BT) for batch in self._batches]

    @cached_property
    def _taught(self) -> list[TaughtRows]:
        """The parent's own predictions."""
        x_NBTD = self._embedded
        for place, of_place in enumerate(self.options):
            x_NBTD = self._through(place, of_place[0], x_NBTD)
        rows = (self._net.norm(x_BTD).flatten(0, 1) for x_BTD in x_NBTD)
        return [TaughtRows.of(self._net.softmax, row_ND) for row_ND in rows]

    @cached_property
    def _kept(self) -> Kept:
        text = hashlib.sha256()
        for batch in self._batches:
            text.update(batch.target_BT.numpy().tobytes())
        parts = {
            "parent": self.given.digest,
            "tokens": text.hexdigest(),
            "machine": machine(self.plan.device),
            "sources": source_digest(_SOURCES),
        }
        self.plan.run_dir.mkdir(parents=True, exist_ok=True)
        return Kept(self.plan.run_dir / "shrink.jsonl", identity_hash(parts))
