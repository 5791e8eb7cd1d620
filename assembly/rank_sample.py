"""The layouts of a rank harness: drawn by a seed, of one cost and free, each network once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from assembly.architectures import derive
from assembly.costs import layout_costs
from assembly.workbench import Workbench
from model import Network, network_of
from nas.derivation import Layout
from nas.derivation.base import Choice, Networks
from nas.tabular.sampling import equal_layouts, free_layouts, median_layout, nearest_layout

TOLERANCE = 0.03


@dataclass(frozen=True)
class Sample:
    """The layouts of a rank harness.

    Attributes:
        target_flops: what those of one cost cost, within 3%; None where none are wanted.
        target: where that comes from, in words.
        groups: "equal" and "free", no network twice in one of them; a network may be in both, by
            different layouts.
        tie_slots: `model.tie_slots`.
    """

    target_flops: float | None
    target: str
    groups: dict[str, list[Layout]]
    tie_slots: int | None = None

    @property
    def layouts(self) -> list[Layout]:
        """Each network once, by the first of its layouts."""
        return [forms[0] for forms in self._forms.values()]

    @property
    def drawn(self) -> list[Layout]:
        """All layouts that were drawn; one network may have two."""
        return [layout for group in self.groups.values() for layout in group]

    def forms(self, layout: Layout) -> list[Layout]:
        """The layouts of a layout's network that were drawn."""
        return self._forms[network_of(layout, self.tie_slots)]

    @cached_property
    def _forms(self) -> dict[Network, list[Layout]]:
        forms: dict[Network, list[Layout]] = {}
        for layout in self.drawn:
            forms.setdefault(network_of(layout, self.tie_slots), []).append(layout)
        return forms

    def groups_of(self, layout: Layout) -> dict[str, bool]:
        """In which groups a layout's network is."""
        forms = self.forms(layout)
        return {name: any(each in group for each in forms) for name, group in self.groups.items()}


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
    networks = Networks(candidates, bench.experiment.model.tie_slots)

    def cost(choice: Choice) -> float:
        return table(networks.layout(choice))

    def fits(choice: Choice) -> bool:
        return abs(cost(choice) - flops) <= TOLERANCE * flops

    frees = free_layouts(networks, slots, free, seed) if free else []
    groups = {"equal": [], "free": [networks.layout(choice) for choice in frees]}
    if not equal:
        return Sample(None, "", groups, networks.tie_slots)
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
    equals = equal_layouts(chosen, networks, equal, seed, fits)
    groups["equal"] = [networks.layout(choice) for choice in equals]
    return Sample(flops, words, groups, networks.tie_slots)


def _argmax(bench: Workbench, searches: Sequence[int]) -> Choice:
    config = bench.experiment.derive.model_copy(
        update={"method": "argmax", "searches": list(searches), "gap": False}
    )
    labels = [candidate.label for candidate in bench.experiment.model.completed_candidates()]
    return tuple(labels.index(candidate.label) for candidate in derive(bench, config).slots)
