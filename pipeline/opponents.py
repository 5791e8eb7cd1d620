"""Who is compared: the chosen layout, a Pareto front, and opponents, some of equal cost."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from model import (
    Architecture,
    Evidence,
    Layout,
    ModelOptions,
    Network,
    layout_letters,
    load_architecture,
)
from nas.costs.latency import unchecked
from nas.costs.workloads import WORKLOADS
from nas.derivation import PLACING, Derived, missing_kinds
from nas.opponents import OPPONENTS, Contest, NoOpponent
from nas.opponents.equal_cost import TOLERANCE, is_equal
from pipeline.costs import costs_of, counted_cost, measurement_of, table_key
from pipeline.derive import (
    NO_SEARCH,
    architecture_of,
    check_tokenizer,
    derive,
    request_of,
    write_architecture,
)
from pipeline.pareto import SUMMARY
from pipeline.plan import RunPlan
from pipeline.retrain import retrain_trainer
from pipeline.run_files import reading
from utils.files import read_object, write_whole
from utils.screen import say

FILE = "opponents.json"
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
    predicted, measured = (
        _timed(plan, cost, layout) if cost in WORKLOADS else _counted(plan, cost, layout)
    )
    # Not the seed of a derivation: the same opponents whatever was derived.
    request = replace(request, config=request.config.model_copy(update={"seed": 0}))
    return Contest(request, layout, taken, count, cost, predicted, measured)


Shares = tuple[Callable[[Layout], float], Callable[[Sequence[Layout]], list[float]]]


def _counted(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    def count(layout: Layout) -> float:
        candidates = list({slot.label: slot for slot in layout}.values())
        return counted_cost(plan, cost, candidates)(layout)

    # Of the experiment's candidates from one table: draws ask for thousands.
    table, whole = counted_cost(plan, cost), count(chosen)
    if not whole:
        raise NoOpponent(
            f"compare.equal: {layout_letters(chosen)} has a {cost} of 0, which nothing else can be "
            "a multiple of; give another cost"
        )

    def share(layout: Layout) -> float:
        known = all(slot.label in table.by_label for slot in layout)
        return (table(layout) if known else count(layout)) / whole

    return share, lambda layouts: [share(layout) for layout in layouts]


def _timed(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    table, measured = costs_of(plan, [cost])[cost], _MeasuredShares(plan, cost, chosen)
    if all(slot.label in table.by_label for slot in chosen):
        whole = table(chosen)
    else:  # its width was filled: a layout that the table knows is measured beside it
        known = (plan.candidates[0],) * len(plan.slots)
        whole = table(known) / measured([known])[0]
    return (lambda layout: table(layout) / whole), measured


class _MeasuredShares:
    """Times of layouts as multiples of the chosen one's, kept in RUN/opponents.json.

    Measured again they would differ a little, and a comparison that goes on would meet others.
    """

    def __init__(self, plan: RunPlan, cost: str, chosen: Layout) -> None:
        self._measurement, self._cost, self._chosen = measurement_of(plan), cost, chosen
        self._path = plan.run_dir / FILE
        slots = [slot.model_dump(mode="json") for slot in chosen]
        key = {**table_key(plan), "cost": cost, "chosen": slots}
        self._key = json.loads(json.dumps(key))  # as the file has it

    def __call__(self, layouts: Sequence[Layout]) -> list[float]:
        with reading(self._path):
            kept = read_object(self._path) if self._path.exists() else {}
            shares = {**kept["shares"]} if kept.get("key") == self._key else {}
        layout_of = {layout_letters(layout): layout for layout in layouts}
        missing = {name: layout for name, layout in layout_of.items() if name not in shares}
        if missing:
            turns = f"in turn{unchecked(self._measurement.shapes.device)}"
            say(f"measuring {self._cost} of {len(missing)} layouts and the chosen one, {turns}")
            times = self._measurement.times_ms(self._cost, {_CHOSEN: self._chosen, **missing})
            shares |= {name: times[name] / times[_CHOSEN] for name in missing}
            content = {"key": self._key, "shares": shares}
            write_whole(self._path, json.dumps(content, indent=1) + "\n")
        return [shares[layout_letters(layout)] for layout in layouts]


def equal_opponents(
    plan: RunPlan, name: str, chosen: Architecture, taken: frozenset[Network], count: int
) -> list[tuple[Architecture, float]]:
    """The opponents of a registered kind, each with its cost as a multiple of the chosen one's.

    NoOpponent where there is none of this cost.
    """
    opponents = OPPONENTS[name](contest(plan, chosen, taken, count))
    return [
        (
            architecture_of(plan, Derived(one.layout, Evidence(method=one.words)), one.name, []),
            one.share,
        )
        for one in opponents
    ]


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

    Every folder is opened before anything trains, so that nothing is refused hours later.

    Raises:
        ValueError: nothing was derived yet, the chosen architecture is of other sizes, an opponent
            cannot be made or measured, or a folder holds another experiment.
    """
    chosen = _chosen(plan)
    say("preparing the opponents: their layouts and folders")
    searched = chosen.evidence is not None and bool(chosen.evidence.pi)
    entries = [Contestant(chosen, "searched" if searched else "chosen")]
    for architecture in front:
        if not _is_another_name(entries, architecture):
            entries.append(Contestant(architecture, "front"))
    for kind in plan.experiment.compare.opponents:
        for architecture, share in _opponents(plan, entries, kind):
            if not _is_another_name(entries, architecture, kind, share):
                written = write_architecture(architecture, plan.experiment, plan.run_dir)
                entries.append(Contestant(written, "opponent", [kind], share))
    others = {entry.architecture.name: entry.share for entry in entries[1:]}
    if shares := {name: share for name, share in others.items() if share is not None}:
        entries[0].remark(of_equal_cost(equal_cost(plan, chosen), shares))
    for seed in plan.experiment.compare.seeds:
        for entry in entries:
            with closing(retrain_trainer(plan.with_seed(seed), entry.architecture)) as trainer:
                trainer.open()
    return entries


def of_equal_cost(cost: str, shares: Mapping[str, float]) -> str:
    """Which cost opponents have; what is cut by whole slots or widths may fall short of it."""
    less = [f"{name} {share:.3f}x" for name, share in shares.items() if not is_equal(share)]
    # A time is measured again for the table, beside other layouts.
    when = "had, when they were chosen," if cost in WORKLOADS else "have"
    words = f"opponents of equal cost {when} its {cost}, within {TOLERANCE:.0%}"
    return f"{words}; these have less: {', '.join(less)}" if less else words


def _is_another_name(
    entries: Sequence[Contestant],
    architecture: Architecture,
    kind: str | None = None,
    share: float | None = None,
) -> bool:
    """Whether a network takes part already; then its other name is kept there."""
    for entry in entries:
        if entry.architecture.network == architecture.network:
            entry.kinds += [kind] if kind else []
            entry.share = entry.share if share is None else share
            if architecture.name != entry.architecture.name:
                names = f"{architecture.name} = {entry.architecture.name}"
                entry.remark(f"{names}: one network, trained and shown once")
            return True
    return False


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
        opponents = equal_opponents(plan, kind, chosen.architecture, taken, wanted)
    except NoOpponent as error:
        chosen.remark(str(error))
        return []
    if len(opponents) < wanted:
        chosen.remark(f"{kind}: there are no other networks; {len(opponents)} of {wanted}")
    return [*opponents]


def front_of(plan: RunPlan) -> list[Architecture]:
    """The architectures that derive.py --pareto named, the cheapest first.

    Raises:
        ValueError: there is no front, or it is damaged, or of another text.
    """
    path, remedy = plan.run_dir / SUMMARY, f"run derive.py {plan.run_dir} --pareto first"
    if not path.exists():
        raise ValueError(f"{path}: not found; {remedy}")
    names = read_object(path).get("front")
    if not isinstance(names, list) or not all(_is_file_name(name) for name in names):
        raise ValueError(f"{path}: front: expected a list of names; {remedy}")
    folder = plan.run_dir / "architectures"
    front = [load_architecture(folder / f"{name}.json") for name in names]
    for architecture in front:
        _check_sizes(plan, folder / f"{architecture.name}.json", architecture)
    return front


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name


def _chosen(plan: RunPlan) -> Architecture:
    path = plan.run_dir / "architecture.json"
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {plan.run_dir} first ({NO_SEARCH})")
    chosen = load_architecture(path)
    _check_sizes(plan, path, chosen)
    return chosen


def _check_sizes(plan: RunPlan, path: Path, architecture: Architecture) -> None:
    """ValueError where opponents would be of other sizes or read another text."""
    check_tokenizer(plan.prepared.tokenizer, architecture)
    for key, its_size, our_size in _sizes(plan, architecture):
        if its_size != our_size:
            raise ValueError(
                f"{path}: {key} {its_size}, but model.{key} is {our_size}: opponents of other "
                "sizes are no comparison; derive again, or use the experiment it came from"
            )


def _sizes(plan: RunPlan, architecture: Architecture) -> Iterator[tuple[str, object, object]]:
    """What must be alike, in the architecture and in the experiment."""
    yield "d_model", architecture.d_model, plan.sizes["d_model"]
    yield "slots", len(architecture.slots), len(plan.slots)
    yield "tie_slots", architecture.tie_slots, plan.sizes["tie_slots"]
    yield "softmax", architecture.softmax, plan.softmax
    for name in ModelOptions.model_fields:
        yield name, getattr(architecture.options, name), getattr(plan.sizes["options"], name)
    candidates = {candidate.label: candidate for candidate in plan.candidates}
    for slot in architecture.slots:
        if slot.label in candidates:
            theirs, ours = slot.model_dump(), candidates[slot.label].model_dump()
            for name in sorted(theirs.keys() | ours.keys()):
                yield f"candidates[{slot.label}].{name}", theirs.get(name), ours.get(name)
