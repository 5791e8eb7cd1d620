"""Who is compared: the chosen layout, a Pareto front, and opponents, some of equal cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model import Architecture, Candidate, Evidence, Layout, Network, layout_letters
from nas.costs.latency import WORKLOADS
from nas.derivation import PLACING, TRAINED, missing_kinds
from nas.derivation.base import Derived
from nas.opponents import OPPONENTS, TOLERANCE, Contest, NoOpponent, is_equal
from pipeline.costs import cost_model
from pipeline.derive import (
    architecture_of,
    check_tokenizer,
    chosen_architecture,
    derive,
    request_of,
    write_architecture,
)
from pipeline.layout_scores import check_fresh, seeds_trained
from pipeline.plan import RunPlan
from pipeline.retrain import claim_retraining
from training.run_dir import identity_hash
from utils.kept import Kept
from utils.screen import say

FILE = "opponents.jsonl"
# A name that no layout has.
_CHOSEN = "the chosen one"


def equal_cost(plan: RunPlan, chosen: Architecture) -> str:
    """The cost that opponents share with the chosen layout; `auto` is what it was derived for."""
    asked = plan.experiment.compare.equal
    if asked != "auto":
        return asked
    timed = [time.name for time in chosen.costs.times] if chosen.costs is not None else []
    return "latency" if "latency" in timed else next(iter(timed), "flops")


def contest(plan: RunPlan, chosen: Architecture, taken: frozenset[Network], count: int) -> Contest:
    """What an opponent may ask; times are measured when they are asked for."""
    cost, layout = equal_cost(plan, chosen), tuple(chosen.slots)
    request = request_of(plan, plan.experiment.derive, [])
    # Not the seed of a derivation: the same opponents whatever was derived.
    request = replace(request, config=request.config.model_copy(update={"seed": 0}))
    shares = _timed if cost in WORKLOADS else _counted
    return Contest(request, layout, taken, count, cost, *shares(plan, cost, layout))


# Costs as multiples of the chosen layout's: predicted of one, and measured of several.
Shares = tuple[Callable[[Layout], float], Callable[[Sequence[Layout]], list[float]]]


def _counted(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    costs = cost_model(plan)
    # Of the experiment's candidates from one table: draws ask for thousands.
    table = costs.counted(cost)

    def count(layout: Layout) -> float:
        if all(slot.label in table.by_label for slot in layout):
            return table(layout)
        return costs.counted(cost, list({slot.label: slot for slot in layout}.values()))(layout)

    whole = count(chosen)
    if not whole:
        raise NoOpponent(
            f"compare.equal: {layout_letters(chosen)} has a {cost} of 0, which nothing else can be "
            "a multiple of; give another cost"
        )
    return lambda layout: count(layout) / whole, lambda some: [count(one) / whole for one in some]


def _timed(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    """Shares by the table, and as they are measured.

    What was measured is kept in RUN/opponents.jsonl: again it would differ a little, and a
    comparison that goes on would meet others.
    """
    costs = cost_model(plan)
    table, slots = costs.costs([cost])[cost], [slot.model_dump(mode="json") for slot in chosen]
    key = identity_hash({**costs.key, "cost": cost, "chosen": slots})
    kept = Kept(plan.run_dir / FILE, key)

    def measured(layouts: Sequence[Layout]) -> list[float]:
        named = {layout_letters(layout): layout for layout in layouts}
        missing = {name: layout for name, layout in named.items() if name not in kept.values}
        if missing:
            say(f"measuring {cost} of {len(missing)} layouts and the chosen one, in turn")
            times = costs.times_ms(cost, {_CHOSEN: chosen, **missing})
            for name in missing:
                kept.add(name, times[name] / times[_CHOSEN])
        return [kept.values[layout_letters(layout)] for layout in layouts]

    if all(slot.label in table.by_label for slot in chosen):
        whole = table(chosen)
    else:  # its width was filled: a layout that the table knows is measured beside it
        known = (plan.candidates[0],) * len(plan.slots)
        whole = table(known) / measured([known])[0]
    return lambda layout: table(layout) / whole, measured


@dataclass
class Contestant:
    """One network of the comparison, by the layout that is trained.

    Attributes:
        role: searched, chosen, front or opponent.
        kinds: the names in compare.opponents that came to this network.
        share: of an opponent of equal cost, that cost as a multiple of the chosen layout's.
        remarks: which opponents are the same network; of the chosen one also which there are not.
    """

    architecture: Architecture
    role: str
    kinds: list[str] = field(default_factory=list)
    share: float | None = None
    remarks: list[str] = field(default_factory=list)

    def remark(self, line: str) -> None:
        """Print a remark and keep it for the table."""
        print(line)
        self.remarks.append(line)


def contestants(plan: RunPlan, front: Sequence[Architecture] = ()) -> list[Contestant]:
    """The chosen architecture, a front, and opponents; each network stands once.

    Every folder is looked at before anything trains, so that nothing is refused hours later.
    """
    chosen = chosen_architecture(plan.run_dir)
    check_sizes(plan, plan.run_dir / "architecture.json", chosen)
    if chosen.evidence is not None and chosen.evidence.method.partition(":")[0] in TRAINED:
        whose = f"the seeds with which layouts were trained in {plan.run_dir}"
        seeds = plan.experiment.compare.seeds
        check_fresh(seeds, "compare.seeds", seeds_trained(plan.run_dir), whose)
    say("preparing the opponents: their layouts and folders")
    searched = chosen.evidence is not None and bool(chosen.evidence.pi)
    entries = [Contestant(chosen, "searched" if searched else "chosen")]
    for architecture in front:
        _join(plan, entries, Contestant(architecture, "front"))
    for kind in plan.experiment.compare.opponents:
        for architecture, share in _opponents(plan, entries, kind):
            _join(plan, entries, Contestant(architecture, "opponent", [kind], share))
    others = {entry.architecture.name: entry.share for entry in entries[1:]}
    if shares := {name: share for name, share in others.items() if share is not None}:
        entries[0].remark(of_equal_cost(equal_cost(plan, chosen), shares))
    for seed in plan.experiment.compare.seeds:
        for entry in entries:
            claim_retraining(plan.with_seed(seed), entry.architecture)
    return entries


def of_equal_cost(cost: str, shares: Mapping[str, float]) -> str:
    """Which cost opponents have; what is cut by whole slots or widths may fall short of it."""
    less = [f"{name} {share:.3f}x" for name, share in shares.items() if not is_equal(share)]
    # A time is measured again for the table, beside other layouts.
    when = "had, when they were chosen," if cost in WORKLOADS else "have"
    words = f"opponents of equal cost {when} its {cost}, within {TOLERANCE:.0%}"
    return f"{words}; these have less: {', '.join(less)}" if less else words


def _join(plan: RunPlan, entries: list[Contestant], new: Contestant) -> None:
    """Add a network; where it takes part already, its other name and its share are kept there."""
    for entry in entries:
        if entry.architecture.network == new.architecture.network:
            entry.kinds += new.kinds
            entry.share = entry.share if new.share is None else new.share
            if new.architecture.name != entry.architecture.name:
                names = f"{new.architecture.name} = {entry.architecture.name}"
                entry.remark(f"{names}: one network, trained and shown once")
            return
    if new.role == "opponent":
        new.architecture = write_architecture(new.architecture, plan.experiment, plan.run_dir)
    entries.append(new)


def _opponents(
    plan: RunPlan, entries: Sequence[Contestant], kind: str
) -> list[tuple[Architecture, float | None]]:
    """The opponents of a kind; of those of equal cost as many as there are, with their shares."""
    compare, chosen = plan.experiment.compare, entries[0]
    if kind in PLACING and (kinds := missing_kinds(plan.candidates)):
        chosen.remark(f"{kind}: left out, it needs {' and '.join(kinds)} among model.candidates")
        return []
    if kind not in OPPONENTS:
        return [(derive(plan, method=kind), None)]
    wanted = {"random": compare.random_layouts, "permuted": compare.permutations}.get(kind, 1)
    taken = frozenset(entry.architecture.network for entry in entries)
    try:
        opponents = OPPONENTS[kind](contest(plan, chosen.architecture, taken, wanted))
    except NoOpponent as error:
        chosen.remark(str(error))
        return []
    if len(opponents) < wanted:
        chosen.remark(f"{kind}: there are no other networks; {len(opponents)} of {wanted}")
    return [
        (
            architecture_of(plan, Derived(one.layout, Evidence(method=one.words)), one.name),
            one.share,
        )
        for one in opponents
    ]


def check_sizes(plan: RunPlan, path: Path, architecture: Architecture) -> None:
    """ValueError where opponents would be of other sizes or read another text."""
    check_tokenizer(plan.prepared.tokenizer, architecture)
    theirs = _sizes(architecture.slots, dict(architecture))
    ours = _sizes(plan.candidates, plan.sizes) | {"slots": len(plan.slots)}
    for key, size in theirs.items():
        if size != ours.get(key, size):
            raise ValueError(
                f"{path}: {key} {size}, but model.{key} is {ours[key]}: opponents of other "
                "sizes are no comparison; derive again, or use the experiment it came from"
            )


def _sizes(slots: Sequence[Candidate], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """What must be alike, in the architecture and in the experiment."""
    alike = {"slots": len(slots)} | {key: sizes[key] for key in ("d_model", "tie_slots", "softmax")}
    alike |= dict(sizes["options"])
    for slot in slots:
        of_slot = slot.model_dump().items()
        alike |= {f"candidates[{slot.label}].{key}": value for key, value in of_slot}
    return alike
