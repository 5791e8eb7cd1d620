"""Who is compared: the chosen layout and baselines, some of equal cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model import (
    Architecture,
    Evidence,
    LanguageModel,
    Layout,
    Network,
    layout_letters,
    load_architecture,
    load_model,
)
from nas.baselines import BASELINES, DROPS, PARENT, Baseline, Matching, NoBaseline, of_equal_cost
from nas.costs.budget import ROUNDING
from nas.costs.latency import WORKLOADS
from nas.derivation import PLACING, missing_kinds
from nas.derivation.base import Derived
from pipeline.architectures import (
    architecture_of,
    check_tokenizer,
    chosen_by_trainings,
    write_architecture,
)
from pipeline.costs import cost_model
from pipeline.derive import derive
from pipeline.layout_scores import check_fresh, seeds_trained
from pipeline.plan import RunPlan
from pipeline.retrain import claim_retraining, retrain_identity
from pipeline.run_files import chosen_architecture, result_of_model
from pipeline.sub_networks import parent_of, start_of
from pipeline.summary import parameter_count
from training.run_dir import identity_hash, is_claimed
from utils.files import read_object
from utils.kept import Kept
from utils.screen import say

FILE = "baselines.jsonl"
# Shares are ratios of times, of throughput too.
_IN_WORDS = {"throughput": "pass time"}
# A name that no layout has.
_CHOSEN = "the chosen one"


def equal_cost(plan: RunPlan, chosen: Architecture) -> str:
    """The cost that baselines share with the chosen layout; `auto` is what it was derived for."""
    asked = plan.experiment.compare.equal
    if asked != "auto":
        return asked
    timed = [time.name for time in chosen.costs.times] if chosen.costs is not None else []
    return "latency" if "latency" in timed else next(iter(timed), "flops")


def matching(
    plan: RunPlan, chosen: Architecture, taken: frozenset[Network], count: int
) -> Matching:
    """What a baseline may ask; times are measured when they are asked for."""
    cost, layout = equal_cost(plan, chosen), tuple(chosen.blocks)
    request = plan.request(plan.experiment.derive, [])
    # Not the seed of a derivation: the same baselines whatever was derived.
    request = replace(request, config=request.config.model_copy(update={"seed": 0}))
    shares = _timed if cost in WORKLOADS else _counted
    return Matching(
        request, layout, taken, count, _IN_WORDS.get(cost, cost), *shares(plan, cost, layout)
    )


# Costs as multiples of the chosen layout's: predicted of one, and measured of several.
Shares = tuple[Callable[[Layout], float], Callable[[Sequence[Layout]], list[float]]]


def _counted(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    costs = cost_model(plan)
    # Of the experiment's candidates from one table: draws ask for thousands.
    table = costs.counted(cost)

    def count(layout: Layout) -> float:
        known = all(slot.label in table.by_label for slot in layout)
        return (table if known else costs.counted(cost, [*dict.fromkeys(layout)]))(layout)

    if not (whole := count(chosen)):
        raise NoBaseline(
            f"compare.equal: {layout_letters(chosen)} has a {cost} of 0, which nothing else can be "
            "a multiple of; give another cost"
        )
    return lambda layout: count(layout) / whole, lambda some: [count(one) / whole for one in some]


def _timed(plan: RunPlan, cost: str, chosen: Layout) -> Shares:
    """Shares by the table, and as they are measured.

    What was measured is kept in RUN/baselines.jsonl: again it would differ a little, and a
    comparison that goes on would meet others.
    """
    costs = cost_model(plan)
    table, slots = costs.costs([cost])[cost], [slot.model_dump(mode="json") for slot in chosen]
    kept = Kept(plan.run_dir / FILE, identity_hash({**costs.key, "cost": cost, "chosen": slots}))

    def measured(layouts: Sequence[Layout]) -> list[float]:
        named = {layout_letters(layout): layout for layout in layouts}
        missing = {name: layout for name, layout in named.items() if name not in kept.values}
        if missing:
            say(f"measuring {cost} of {len(missing)} layouts and the chosen one in turn")
            times = costs.times_ms(cost, {_CHOSEN: chosen, **missing})
            for name in missing:
                kept.add(name, times[name] / times[_CHOSEN])
        return [kept.values[name] for name in map(layout_letters, layouts)]

    # Its width may be filled: what the table knows is measured beside it.
    known = chosen
    if any(slot.label not in table.by_label for slot in chosen):
        known = (plan.candidates[0],) * len(plan.slots)
    whole = table(known) / (1.0 if known == chosen else measured([known])[0])
    return lambda layout: table(layout) / whole, measured


@dataclass
class Entry:
    """One network of the comparison, by the layout that is trained.

    The role is chosen, baseline or parent, which is trained already; `kinds` are the
    names in compare.baselines that came to it; `share` of a baseline of equal cost is that cost
    over the chosen layout's.
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


def entries_of(plan: RunPlan) -> list[Entry]:
    """The chosen architecture and baselines; each network stands once.

    Every folder is looked at before anything trains, so that nothing is refused hours later.
    """
    chosen = chosen_architecture(plan.run_dir)
    plan.experiment.check_seeds(plan.experiment.compare.seeds)
    _check_sizes(plan, chosen)
    if chosen_by_trainings(chosen):
        whose = f"the seeds with which layouts were trained in {plan.run_dir}"
        seeds = plan.experiment.compare.seeds
        check_fresh(seeds, "compare.seeds", seeds_trained(plan.run_dir), whose)
    for seed in plan.experiment.compare.seeds:
        seeded = plan.with_seed(seed)
        is_claimed(seeded.retrain_folder(chosen.name), retrain_identity(seeded, chosen))
    say("preparing the baselines: their layouts and folders")
    entries = [Entry(chosen, "chosen")]
    for kind in plan.experiment.compare.baselines:
        if kind == PARENT:
            architecture = load_architecture(start_of(plan) / "architecture.json")
            named = architecture.model_copy(update={"name": PARENT})
            write_architecture(named, plan.experiment, plan.run_dir)  # the report draws it
            entries.append(Entry(named, PARENT, [kind]))
            continue
        for architecture, share in _baselines(plan, entries, kind):
            _join(plan, entries, Entry(architecture, "baseline", [kind], share))
    others = {entry.architecture.name: entry.share for entry in entries[1:]}
    if shares := {name: share for name, share in others.items() if share is not None}:
        cost = equal_cost(plan, chosen)
        entries[0].remark(of_equal_cost(_IN_WORDS.get(cost, cost), shares))
    for seed in plan.experiment.compare.seeds:
        for entry in to_train(entries):
            claim_retraining(plan.with_seed(seed), entry.architecture)
    return entries


def to_train(entries: Sequence[Entry]) -> list[Entry]:
    """All but the parent."""
    return [entry for entry in entries if entry.role != PARENT]


def _join(plan: RunPlan, entries: list[Entry], new: Entry) -> None:
    """Add a network; where it takes part already, its other name and its share are kept there."""
    for entry in to_train(entries):
        if _is_same(plan, entry, new):
            entry.kinds += new.kinds
            entry.share = entry.share if new.share is None else new.share
            if new.architecture.name != entry.architecture.name:
                names = f"{new.architecture.name} = {entry.architecture.name}"
                entry.remark(f"{names}: the same network, trained and shown once")
            return
    new.architecture = write_architecture(new.architecture, plan.experiment, plan.run_dir)
    entries.append(new)


def parent_model(plan: RunPlan) -> tuple[LanguageModel, dict[str, Any]]:
    """The model of retrain.start, and what it comes to on the texts of this experiment."""
    folder = start_of(plan)
    model, path = load_model(folder).to(plan.device), result_of_model(folder)
    result = {
        "parameters": parameter_count(model),
        "flops_per_token": plan.flops_per_token(model),
        "tokens": None if path is None else read_object(path)["tokens"],
        **{split: plan.evaluate(model, plan.streams(split)).row() for split in ("valid", "test")},
    }
    return model, result


def _is_same(plan: RunPlan, one: Entry, other: Entry) -> bool:
    """Whether two are one training; of one network whose blocks begin otherwise they are two."""
    if plan.experiment.retrain.start is not None:
        return one.architecture.blocks == other.architecture.blocks
    return one.architecture.network == other.architecture.network


def _baselines(
    plan: RunPlan, entries: Sequence[Entry], kind: str
) -> list[tuple[Architecture, float | None]]:
    """The baselines of a kind; of those of equal cost as many as there are, with their shares."""
    compare, chosen = plan.experiment.compare, entries[0]
    if kind in PLACING and (kinds := missing_kinds(plan.candidates)):
        chosen.remark(f"{kind}: left out, as it needs {' and '.join(kinds)} among model.candidates")
        return []
    if kind not in (*BASELINES, *DROPS):
        return [(derive(plan, method=kind), None)]
    count = compare.random_layouts if kind in ("random", "drop_random") else 1
    wanted = compare.permutations if kind == "permuted" else count
    taken = frozenset(entry.architecture.network for entry in entries)
    try:
        asked = matching(plan, chosen.architecture, taken, wanted)
        baselines = _dropped(plan, kind, asked) if kind in DROPS else BASELINES[kind](asked)
    except NoBaseline as error:
        chosen.remark(f"{kind}: {str(error).removeprefix(f'{kind}: ')}")
        return []
    if len(baselines) < wanted:
        chosen.remark(f"{kind}: found {len(baselines)} of {wanted}; there are no other networks")
    return [
        (
            architecture_of(plan, Derived(one.layout, Evidence(method=one.words)), one.name),
            one.share,
        )
        for one in baselines
    ]


def _dropped(plan: RunPlan, kind: str, asked: Matching) -> list[Baseline]:
    """What a rule leaves of the parent of the chosen layout, at no more of the cost."""
    from nas import dropping

    layout_of = asked.request.networks.layout
    drop = dropping.Dropping(
        parent_of(plan)[1],
        layout_of,
        lambda layout: asked.predicted(layout) - 1.0 - ROUNDING,
        [limit.over for limit in asked.request.limits],
        asked.count,
    )
    layouts = [layout_of(choice) for choice in getattr(dropping, kind)(drop)]
    shares = asked.measured(layouts)
    return [
        Baseline(f"{kind}-{number}", layout, kind, share)
        for number, (layout, share) in enumerate(zip(layouts, shares, strict=True))
    ]


def _check_sizes(plan: RunPlan, architecture: Architecture) -> None:
    """ValueError where baselines would be of other sizes or read another text."""
    check_tokenizer(plan.prepared.tokenizer, architecture)
    ours = {"n_blocks": len(plan.slots), **plan.sizes, **dict(plan.sizes["options"])}
    ours |= {f"candidates[{candidate.label}]": candidate for candidate in plan.candidates}
    theirs = {key: getattr(architecture, key) for key in plan.sizes if key != "options"} | {
        **dict(architecture.options),
        "n_blocks": len(architecture.blocks),
        **{f"candidates[{slot.label}]": slot for slot in architecture.blocks},
    }
    for key, size in theirs.items():
        if size != ours.get(key, size):
            raise ValueError(
                f"{architecture.name}: {key} {size}, but model.{key} is {ours[key]}: baselines of "
                "other sizes are not comparable; derive again, or use the experiment it came from"
            )
