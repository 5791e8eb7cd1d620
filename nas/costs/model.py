"""What layouts of an experiment cost: counted, predicted by a table of times, measured in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from model import BLOCKS, Candidate, LanguageModel, Layout, SoftmaxConfig, TimedCost, layout_letters
from nas.costs.budget import ROUNDING, Budget, LayoutCost
from nas.costs.latency import time_in_turn, unchecked
from nas.costs.table import CostTable, WorkloadTimes, read_table, spread_layouts, times_table
from nas.costs.workloads import WORKLOADS, Shapes
from utils.files import write_whole
from utils.screen import say

# Whole layouts, beside the reference, that the correction of a table is fitted to.
_FITTED, _FITTED_SEED, _HELD_OUT_SEED = 9, 0, 1
# A name that no layout has.
REFERENCE = "the reference"
_MEASURE_HERE = (
    "measure here (tools.latency --out FILE), and give that table or leave costs.table out"
)


@dataclass(frozen=True)
class Use:
    """What a layout takes of a budget: parts of its limits by cost, and the times among them."""

    parts: Mapping[str, float]
    times: tuple[TimedCost, ...] = ()

    @property
    def over(self) -> dict[str, float]:
        """The parts that are more than the limit."""
        return {name: part for name, part in self.parts.items() if part > 1.0 + ROUNDING}


def over_text(over: Mapping[str, float]) -> str:
    """By how much a layout is over its limits; of throughput, by how much it falls short."""
    return ", ".join(
        f"{name} by {1 - 1 / times:.1%} (too few tokens per second)"
        if name == "throughput"
        else f"{name} by {times - 1:.1%}"
        for name, times in over.items()
    )


@dataclass(frozen=True)
class CostModel:
    """What layouts of an experiment cost.

    Attributes:
        candidates: of every slot; `slots` is how many there are.
        sizes: what all networks of the experiment have in common, as LanguageModel takes it.
        dropout: as LanguageModel takes it.
        flops: FLOPs per token of the candidates in a model's first slot.
        shapes: what is timed.
        rounds: how often each model is timed; short passes more often (`time_in_turn`).
        patience_s: how long a measurement waits for a quiet machine.
        key: all that times hold for.
        path: where the table of times lies.
        given: whether that is a table of the user's, to which nothing is added.
    """

    candidates: Sequence[Candidate]
    slots: int
    sizes: Mapping[str, Any]
    dropout: Any
    flops: Callable[[LanguageModel], LayoutCost]
    shapes: Shapes
    rounds: int
    patience_s: float
    key: Mapping[str, Any]
    path: Path
    given: bool = False

    def network(self, slots: Sequence[Sequence[Candidate]]) -> LanguageModel:
        """A language model with these candidates in its slots."""
        return LanguageModel(slots, **self.sizes, dropout=self.dropout)

    def counted(self, name: str, candidates: Sequence[Candidate] | None = None) -> LayoutCost:
        """Parameters, FLOPs per token, or the bytes of state that a stream keeps: exact.

        Of the experiment's candidates, or of others of the same network.
        """
        candidates = self.candidates if candidates is None else candidates
        labels = [candidate.label for candidate in candidates]
        if name == "cache":
            return LayoutCost(name, dict(zip(labels, self.state_bytes(candidates), strict=True)))
        with torch.device("meta"):
            model = self.network([candidates])
        if name == "flops":
            return self.flops(model)
        (slot,) = model.slots
        by_label = {
            label: float(sum(p.numel() for part in slot.parts(label) for p in part.parameters()))
            for label in labels
        }
        rest = sum(p.numel() for p in model.parameters()) - sum(by_label.values())
        return LayoutCost(name, by_label, rest, self.sizes["tie_slots"])

    def state_bytes(self, candidates: Sequence[Candidate]) -> list[float]:
        """What each candidate keeps at most of a stream read token by token, memory full."""
        # The state does not depend on the vocabulary.
        options = self.sizes["options"].model_copy(update={"d_embedding": None})
        small = {"vocabulary_size": 2, "softmax": SoftmaxConfig(cutoffs=()), "options": options}
        model = LanguageModel([candidates], **{**self.sizes, "tie_slots": None, **small})
        model.costliest().eval()
        with torch.inference_mode():
            ids_BT = torch.zeros(1, 1, dtype=torch.int64)
            mix = [[(k, None) for k in range(len(candidates))]]
            _, state, _ = model(ids_BT, model.initial_state(1, cached=True), mix)
        (states,), (memory,) = state.blocks, state.memory
        # The row that token_shift remembers.
        row = 0 if memory is None else memory.nbytes
        return [
            float((0 if one is None else one.nbytes) + row * (not BLOCKS[slot.kind].adds_nothing))
            for slot, one in zip(candidates, states, strict=True)
        ]

    def counted_parts(self, budget: Budget, layout: Layout) -> dict[str, float]:
        """What a layout of any candidates costs by what is counted, as parts of the limits."""
        candidates = list({slot.label: slot for slot in layout}.values())
        return {
            limit.cost.name: self.counted(limit.cost.name, candidates)(layout) / limit.most
            for limit in budget.limits()
            if limit.cost.name not in WORKLOADS
        }

    def costs(self, names: Sequence[str]) -> dict[str, LayoutCost]:
        """Costs by name; times as `table` has them."""
        timed = [name for name in names if name in WORKLOADS]
        workloads = self.table(timed).workloads if timed else {}
        return {
            name: workloads[name].cost(name) if name in timed else self.counted(name)
            for name in names
        }

    def table(self, workloads: Sequence[str]) -> CostTable:
        """The table with these workloads; what it lacks is measured now and kept.

        Raises:
            ValueError: a given table is of another machine or shape, or lacks a workload; or the
                machine is busy.
        """
        table = self.kept()
        for name in workloads:
            if name not in table.workloads:
                if self.given:
                    raise ValueError(f"{self.path}: has no {name}; measure it (tools.latency)")
                table = self.keep(table.with_workload(name, self.measure(name)))
            if (doubt := table.workloads[name].doubt) is not None:
                say(f"warning: {name}: {doubt}")
        return table

    def kept(self) -> CostTable:
        """The table as it was kept; an empty one where there is none."""
        if self.given or self.path.is_file():
            return read_table(self.path, self.key, _MEASURE_HERE)
        return CostTable(key=dict(self.key), workloads={})

    def keep(self, table: CostTable) -> CostTable:
        """Write the table where it lies."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, table.model_dump_json(indent=1) + "\n")
        return table

    def measure(self, workload: str, held_out: int = 0) -> WorkloadTimes:
        """Time one workload anew, and so many more layouts that the fit does not see.

        Raises:
            Busy: other processes used the machine for as long as was waited.
        """
        say(f"measuring {workload} of every candidate and of whole layouts, {self.in_turn}")
        fitted, other = (
            spread_layouts(self.candidates, self.slots, count, seed)
            for count, seed in ((_FITTED, _FITTED_SEED), (held_out, _HELD_OUT_SEED))
        )
        measure = lambda layouts: self.times_ms(workload, layouts)  # noqa: E731
        return times_table(measure, self.candidates, self.slots, fitted, other)

    def use(self, budget: Budget, layouts: Sequence[Layout]) -> dict[Layout, Use]:
        """What whole layouts take of a budget: counted, and timed in turn with the reference."""
        named = {REFERENCE: budget.reference, **{layout_letters(one): one for one in layouts}}
        timed = [name for name in budget.amounts if name in WORKLOADS]
        if timed:
            others = f"{budget.reference_name} whole, {self.in_turn}"
            say(f"measuring {counted(len(layouts), 'layout')} and {others}")
        times = {name: self.times_ms(name, named) for name in timed}

        def use_of(layout: Layout) -> Use:
            letters, parts = layout_letters(layout), self.counted_parts(budget, layout)
            costs = list[TimedCost]()
            for name, ms in times.items():
                most = budget.most(name, ms[REFERENCE])
                parts[name] = ms[letters] / most
                cost = TimedCost(
                    name=name,
                    ms=round(ms[letters], 4),
                    most_ms=round(most, 4),
                    reference=layout_letters(budget.reference),
                    reference_ms=round(ms[REFERENCE], 4),
                    key={key: str(value) for key, value in self.shapes.key(name).items()},
                )
                costs.append(cost)
            return Use(parts, tuple(costs))

        return {layout: use_of(layout) for layout in layouts}

    def build(self, layout: Layout) -> LanguageModel:
        """A layout's model at the weights that costs are taken of, on the device."""
        model = self.network([[candidate] for candidate in layout])
        return model.costliest().to(self.shapes.device)

    def times_ms(self, workload: str, layouts: Mapping[str, Layout]) -> dict[str, float]:
        """The median time of whole layouts, taken in turn; raises `Busy`."""
        models = {name: self.build(layout) for name, layout in layouts.items()}
        return self.times_of(workload, models)

    def times_of(self, workload: str, models: Mapping[str, LanguageModel]) -> dict[str, float]:
        """The median time of models, of this vocabulary, taken in turn; raises `Busy`."""
        passes = {name: WORKLOADS[workload](model, self.shapes) for name, model in models.items()}
        times = time_in_turn(
            passes, rounds=self.rounds, patience_s=self.patience_s, device=self.shapes.device
        )
        return {name: float(np.median(ms_N)) for name, ms_N in times.items()}

    @property
    def in_turn(self) -> str:
        """How models are timed, for a line."""
        return f"in turn{unchecked(self.shapes.device)}"


def counted(count: int, word: str) -> str:
    """E.g. `1 layout`, `2 layouts`."""
    return f"{count} {word}{'s' * (count != 1)}"
