"""What layouts of an experiment cost: counted, predicted by a table of times, measured in turn.

A layout's time is floor + scale * (rest + the sum of its candidates'). A candidate's time is that
of a model with it in every slot, less that of a model without slots, by the number of slots. Such
stacks repeat one block, and layouts mix them, so floor and scale are fitted to whole layouts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from model import BLOCKS, Candidate, LanguageModel, Layout, SoftmaxConfig, TimedCost, layout_letters
from nas.costs.budget import ROUNDING, Amount, Budget, LayoutCost
from nas.costs.latency import WORKLOADS, Shapes, time_in_turn
from utils.files import read_object, unlike, write_whole
from utils.screen import say
from utils.text import plural
from utils.validation import Section

# Above this mean error, or below this rank correlation, of whole layouts a table is warned of.
MOST_ERROR, LEAST_TAU = 0.08, 0.9


class Whole(Section):
    """A whole layout, measured, and as the table predicts it."""

    layout: str
    measured_ms: float
    predicted_ms: float


class WorkloadTimes(Section):
    """The times of one workload.

    Floor and scale were fitted to the layouts of `wholes`, and not to those of `held_out`.
    """

    rest_ms: float
    by_label_ms: dict[str, float]
    floor_ms: float
    scale: float
    wholes: tuple[Whole, ...]
    held_out: tuple[Whole, ...] = ()

    @property
    def agreement(self) -> tuple[float, float]:
        """How well whole layouts are predicted: held-out ones where there are any."""
        return agreement(self.held_out or self.wholes)

    @property
    def doubt(self) -> str | None:
        """Why predictions may not be trusted; None where they may."""
        error, tau = self.agreement
        if error <= MOST_ERROR and tau >= LEAST_TAU:
            return None
        which = "held-out" if self.held_out else "fitted"
        return (
            f"the table is unreliable: of {len(self.held_out or self.wholes)} {which} layouts "
            f"the mean error is {error:.1%} (at most {MOST_ERROR:.0%}) and Kendall's tau {tau:.2f} "
            f"(at least {LEAST_TAU}); measure it again, with a larger costs.repeats (tools.latency)"
        )

    def cost(self, name: str) -> LayoutCost:
        """The corrected time of layouts."""
        return LayoutCost(
            name,
            {label: self.scale * value for label, value in self.by_label_ms.items()},
            self.floor_ms + self.scale * self.rest_ms,
            error=self.agreement[0],
        )


class CostTable(Section):
    """Times by workload; `key` is all that they hold for."""

    version: Literal[1] = 1
    key: dict[str, Any]
    workloads: dict[str, WorkloadTimes]


def times_table(
    measure: Callable[[Mapping[str, Layout]], Mapping[str, float]],
    candidates: Sequence[Candidate],
    slots: int,
    wholes: Sequence[Layout],
    held_out: Sequence[Layout] = (),
) -> WorkloadTimes:
    """Time stacks of each candidate and whole layouts, all in turn, and fit the correction."""
    stacks = {candidate.label: (candidate,) * slots for candidate in candidates}
    named = {str(number): layout for number, layout in enumerate([*wholes, *held_out])}
    times = measure({"rest": (), **stacks, **named})
    rest_ms = times["rest"]
    by_label_ms = {label: max(0.0, (times[label] - rest_ms) / slots) for label in stacks}
    measured_N = np.array([times[name] for name in named])
    summed_N = np.array(
        [rest_ms + sum(by_label_ms[slot.label] for slot in one) for one in named.values()]
    )
    fitted = len(wholes)
    floor_ms, scale = fit_correction(summed_N[:fitted], measured_N[:fitted])
    predicted_N = floor_ms + scale * summed_N
    both = tuple(
        Whole(layout=layout_letters(layout), measured_ms=float(one), predicted_ms=float(other))
        for layout, one, other in zip(named.values(), measured_N, predicted_N, strict=True)
    )
    return WorkloadTimes(
        rest_ms=rest_ms,
        by_label_ms=by_label_ms,
        floor_ms=floor_ms,
        scale=scale,
        wholes=both[:fitted],
        held_out=both[fitted:],
    )


def fit_correction(summed_N: NDArray[Any], measured_N: NDArray[Any]) -> tuple[float, float]:
    """Floor and scale of least squared relative error; the floor is 0 where all sums are alike."""
    weights_N = 1.0 / measured_N
    one_N, scaled_N = weights_N, summed_N * weights_N
    columns = np.stack([one_N, scaled_N], axis=1)
    if np.ptp(summed_N) > 0.05 * summed_N.mean():
        (floor, scale), *_ = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)
        if scale > 0:
            return float(floor), float(scale)
    return 0.0, float(scaled_N.sum() / (scaled_N @ scaled_N))


def agreement(wholes: Sequence[Whole]) -> tuple[float, float]:
    """How well whole layouts are predicted: mean relative error and Kendall's tau-b."""
    from scipy.stats import kendalltau  # 0.7 s, for those who measure alone

    measured = np.array([whole.measured_ms for whole in wholes])
    predicted = np.array([whole.predicted_ms for whole in wholes])
    tau = float(kendalltau(measured, predicted).statistic)
    error = float(np.mean(np.abs(predicted - measured) / measured))
    return error, 0.0 if math.isnan(tau) else tau


def spread_layouts(
    candidates: Sequence[Candidate], slots: int, count: int, seed: int
) -> list[Layout]:
    """Random layouts, from nearly one kind to all mixed: kinds by a uniform mixture, any order."""
    generator = np.random.default_rng([seed, 4])
    part_NC = generator.dirichlet(np.ones(len(candidates)), size=count)
    layouts = list[Layout]()
    for part_C in part_NC:
        drawn = generator.choice(len(candidates), size=slots, p=part_C)
        layouts.append(tuple(candidates[k] for k in drawn))
    return layouts


# Whole layouts that the correction of a table is fitted to.
_FITTED, _FITTED_SEED, _HELD_OUT_SEED = 9, 0, 1
# A name that no layout has.
REFERENCE = "the reference"


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
        key: all that times hold for.
        path: where the table of times lies.
        take_unsure: times that vary too much are taken, and marked.
    """

    candidates: Sequence[Candidate]
    slots: int
    sizes: Mapping[str, Any]
    dropout: Any
    flops: Callable[[LanguageModel], LayoutCost]
    shapes: Shapes
    rounds: int
    key: Mapping[str, Any]
    path: Path
    take_unsure: bool = False

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
        return LayoutCost(name, by_label, rest, self.sizes["tie_blocks"])

    def state_bytes(self, candidates: Sequence[Candidate]) -> list[float]:
        """What each candidate keeps at most of a stream read token by token, memory full."""
        # The state does not depend on the vocabulary.
        options = self.sizes["options"].model_copy(update={"d_embedding": None})
        small = {"vocabulary_size": 2, "softmax": SoftmaxConfig(cutoffs=()), "options": options}
        model = LanguageModel([candidates], **{**self.sizes, "tie_blocks": None, **small})
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

        ValueError: it is of another machine or shape, or times are unsteady.
        """
        table = self.kept()
        if self.take_unsure:
            say("warning: costs.take_unsure: times in the table may be uncertain")
        for name in workloads:
            if name not in table.workloads:
                table = self.measured(name)
            if (doubt := table.workloads[name].doubt) is not None:
                say(f"warning: {name}: {doubt}")
        return table

    def kept(self) -> CostTable:
        """The table as it was kept; an empty one where there is none.

        ValueError: it is of another machine, shape or version; the message says which.
        """
        ours = json.loads(json.dumps(self.key))
        if not self.path.exists():
            return CostTable(key=ours, workloads={})
        content = read_object(self.path)
        for place, words in unlike(content.get("key", {}), ours):
            raise ValueError(
                f"{self.path}: of other conditions: {'.'.join(place)} {words}; give costs.table "
                "another name, or leave it out to measure here"
            )
        return CostTable.model_validate(content)

    def measured(self, workload: str, held_out: int = 0) -> CostTable:
        """The table with one workload timed anew, and so many more layouts that the fit ignores."""
        say(f"measuring {workload} of every candidate and of whole layouts, in turn")
        fitted, other = (
            spread_layouts(self.candidates, self.slots, count, seed)
            for count, seed in ((_FITTED, _FITTED_SEED), (held_out, _HELD_OUT_SEED))
        )
        measure = partial(self.times_ms, workload)
        times = times_table(measure, self.candidates, self.slots, fitted, other)
        known = self.kept()
        table = CostTable(key=known.key, workloads={**known.workloads, workload: times})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, table.model_dump_json(indent=1) + "\n")
        return table

    def budget(
        self,
        amounts: Mapping[str, Amount],
        reference: Layout,
        reference_name: str,
        *,
        key: str = "derive.budget.{}",
    ) -> Budget:
        """What layouts may cost; refused where none keeps a limit."""
        costs, tokens = self.costs(list(amounts)), self.shapes.many_BT.numel()
        budget = Budget(amounts, costs, reference, reference_name, tokens, key)
        budget.check(self.candidates, self.slots)
        return budget

    def use(self, budget: Budget, layouts: Sequence[Layout]) -> dict[Layout, Use]:
        """What whole layouts take of a budget: counted, and timed in turn with the reference."""
        named = {REFERENCE: budget.reference, **{layout_letters(one): one for one in layouts}}
        timed = [name for name in budget.amounts if name in WORKLOADS]
        if timed:
            others = f"{budget.reference_name} whole, in turn"
            say(f"measuring {plural(len(layouts), 'layout')} and {others}")
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
                    key={key: str(value) for key, value in self._key_of(name).items()},
                )
                costs.append(cost)
            return Use(parts, tuple(costs))

        return {layout: use_of(layout) for layout in layouts}

    def _key_of(self, workload: str) -> dict[str, str | int]:
        """What a measured time of a workload holds for, with the mark of an unsure one."""
        mark = {"sure": "perhaps not (costs.take_unsure)"} if self.take_unsure else {}
        return {**self.shapes.key(workload), **mark}

    def build(self, layout: Layout) -> LanguageModel:
        """A layout's model at the weights that costs are taken of, on the device."""
        model = self.network([[candidate] for candidate in layout])
        return model.costliest().to(self.shapes.device)

    def times_ms(self, workload: str, layouts: Mapping[str, Layout]) -> dict[str, float]:
        """The median time of whole layouts, taken in turn; raises `Unsteady`."""
        models = {name: self.build(layout) for name, layout in layouts.items()}
        return self.times_of(workload, models)

    def times_of(self, workload: str, models: Mapping[str, LanguageModel]) -> dict[str, float]:
        """The median time of models, of this vocabulary, taken in turn; raises `Unsteady`."""
        passes = {name: WORKLOADS[workload](model, self.shapes) for name, model in models.items()}
        times = time_in_turn(
            passes,
            rounds=self.rounds,
            device=self.shapes.device,
            take_unsure=self.take_unsure,
        )
        return {name: float(np.median(ms_N)) for name, ms_N in times.items()}
