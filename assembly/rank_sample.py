"""The layouts of a rank harness: drawn by a seed, of one cost and free."""

from collections.abc import Sequence
from dataclasses import dataclass

from assembly.architectures import derive
from assembly.costs import layout_costs
from assembly.workbench import Workbench
from nas.derivation import Layout
from nas.layout_sample import Choice, equal_layouts, free_layouts, median_layout, nearest_layout

TOLERANCE = 0.03


@dataclass(frozen=True)
class Sample:
    """The layouts of a rank harness.

    Attributes:
        target_flops: what those of one cost cost, within 3%; None where none are wanted.
        target: where that comes from, in words.
        groups: "equal" and "free"; a layout may be in both.
    """

    target_flops: float | None
    target: str
    groups: dict[str, list[Layout]]

    @property
    def layouts(self) -> list[Layout]:
        """Each layout once."""
        return list(dict.fromkeys(each for group in self.groups.values() for each in group))


def sample_of(
    bench: Workbench,
    searches: Sequence[int],
    equal: int,
    free: int,
    seed: int,
    target_flops: float | None = None,
) -> Sample:
    """Draw the layouts.

    Those of one cost cost what the searches' argmax costs, within 3%; where the searches learned
    no alpha, the median of layouts drawn freely.

    Args:
        bench: the experiment.
        searches: seeds of the searches.
        equal: how many of one cost.
        free: how many others.
        seed: of the draws.
        target_flops: that cost instead.

    Raises:
        ValueError: there is no finished search to take the cost from, or none costs so much.
    """
    candidates = bench.experiment.model.completed_candidates()
    slots, table = bench.experiment.model.slots, layout_costs(bench)

    def layout(choice: Choice) -> Layout:
        return tuple(candidates[k] for k in choice)

    def cost(choice: Choice) -> float:
        return table(layout(choice))

    def fits(choice: Choice) -> bool:
        return abs(cost(choice) - flops) <= TOLERANCE * flops

    frees = free_layouts(len(candidates), slots, free, seed) if free else []
    groups = {"equal": [], "free": [layout(choice) for choice in frees]}
    if not equal:
        return Sample(None, "", groups)
    if target_flops is not None:
        words, flops = "--target-flops", target_flops
        chosen = nearest_layout(len(candidates), slots, seed, cost, flops)
        if not fits(chosen):
            raise ValueError(
                f"--target-flops {flops:g}: no layout found within 3% of it; the nearest costs "
                f"{cost(chosen):.0f} FLOPs per token"
            )
    elif bench.experiment.search.alpha_learns:
        chosen, words = _argmax(bench, searches), "what the search's argmax costs"
        flops = cost(chosen)
    else:
        chosen = median_layout(len(candidates), slots, seed, cost)
        words, flops = "the median of free layouts, as the search learned no alpha", cost(chosen)
    equals = equal_layouts(chosen, len(candidates), equal, seed, fits)
    return Sample(flops, words, {**groups, "equal": [layout(choice) for choice in equals]})


def _argmax(bench: Workbench, searches: Sequence[int]) -> Choice:
    config = bench.experiment.derive.model_copy(
        update={"method": "argmax", "searches": list(searches), "gap": False}
    )
    labels = [candidate.label for candidate in bench.experiment.model.completed_candidates()]
    return tuple(labels.index(candidate.label) for candidate in derive(bench, config).slots)
