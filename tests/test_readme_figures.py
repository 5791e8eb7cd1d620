"""The measured figures of README and docs are those of their records, at the digits shown.

A claim is a page and figures that stand together in one of its paragraphs, list items or rows of a
table; the words around them are free. The notes in benchmarks/records are dated and stay as they
were written.
"""

import csv
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from benchmarks import shrink_evidence
from benchmarks.arms import arms_of
from benchmarks.arms_report import TrainedArm, difference_of, interval_beside, paired, trained_arms
from benchmarks.copying_onset import onset
from benchmarks.kinds_alone import entries, less, nats_of
from benchmarks.layout_rows import Row, rows_of
from benchmarks.layoutbench.regret import regret_of
from benchmarks.layoutbench.table import read_table
from benchmarks.timing_company import BEHIND, COMPANIES, line
from model import BLOCKS, ModelConfig
from nas.baselines import PARENT
from nas.costs.model import CostTable
from nas.statistics.intervals import paired_interval
from tests.runs import ROOT

RESULTS = ROOT / "benchmarks/results"
README, BENCHMARKS = "README.md", "docs/benchmarks.md"
FOUND, LAYOUTBENCH = "docs/results.md", "docs/layoutbench.md"
HEADLINE, SHRINKING = "docs/headline.md", "docs/shrinking.md"
RECIPE = "benchmarks/records/recipe.md"
KINDS = "benchmarks/records/kinds.md"
CUT = "interleaved, cut"
# The default of today with seeds that took no part in its choice, and the default of before.
FRESH = ("spos_soft_f50_confirm", "default_30", "default_36")
BEFORE = "default"

# A page, and figures that one passage of it has.
Claims = Iterator[tuple[str, ...]]


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@cache
def passages(page: str) -> list[str]:
    """The paragraphs, list items and rows of tables of a page, each on one line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- |\||\d+\. )", text)]


def missing(page: str, figures: tuple[str, ...]) -> list[str]:
    """What the passage that has most of the figures lacks; 0.17 is not found in 0.173."""
    each = [re.compile(rf"(?<![\w.]){re.escape(figure)}(?!\w|\.\d)") for figure in figures]
    lacks = (
        [figure for figure, whole in zip(figures, each, strict=True) if not whole.search(passage)]
        for passage in passages(page)
    )
    return min(lacks, key=len)


def trained_of(name: str, table: str, *more: str) -> dict[str, TrainedArm]:
    rows = [row for each in (table, *more) for row in rows_of(RESULTS / each)]
    return trained_arms(arms_of(ROOT / f"benchmarks/{name}.yaml"), rows)


def mean_of(one: TrainedArm) -> float:
    return statistics.fmean(one.nats.values())


def mean_sd(one: TrainedArm) -> str:
    return f"{mean_of(one):.4f} ({statistics.stdev(one.nats.values()):.3f})"


def beside(one: TrainedArm, other: TrainedArm, digits: int = 3) -> str:
    interval = interval_beside(one, other)
    assert interval is not None
    return f"{abs(interval[0]):.{digits}f} +- {interval[1]:.{digits}f}"


def less_of(one: TrainedArm, others: list[TrainedArm]) -> str:
    found = difference_of(one, others)
    assert found is not None
    return f"{found.mean_nats:+.4f} +- {found.half_nats:.4f}"


def percent(nats: float) -> str:
    """A difference of nats as one of perplexity."""
    return f"{100 * abs(math.expm1(nats)):.0f}%"


def headline() -> Claims:
    """Differences of eight paired seeds with their 95% intervals, and the times measured."""
    times = record("recipe_headline_times.json")
    trained = trained_of("recipe_headline_arms", "recipe_headline.csv")
    names = ("interleaved", "first 0.65x", "cut 0.65x", "SuperNet 0.65x")
    base, first, cut, own = (trained[of] for of in names)
    assert [len(one.nats) for one in (base, first, cut, own)] == [8, 8, 8, 8]
    recipes = trained_of("recipe_arms", "recipe.csv", "headline.csv")
    gain = beside(recipes["shift and norm interleaved 12"], recipes["interleaved 12"])
    ms = times["latency"]["median_ms"]
    share, more = f"{ms[first.arm.name] / ms['interleaved']:.2f}x", beside(first, base)
    pilot = [recipes[f"shift and norm {of}"] for of in ("attention first 7", "interleaved 12")]
    mean, half = paired_interval(paired(first.nats, base.nats) + paired(*(o.nats for o in pilot)))
    pooled = f"{mean:.3f} +- {half:.3f}"
    plain = trained_of("headline_arms", "headline.csv")
    lead = beside(plain["chosen 0.65x"], plain["interleaved"])
    prose = trained_of("recipe_prose_arms", "recipe_prose.csv")
    of_prose = beside(prose["both interleaved 6"], prose["interleaved 6"])
    step_ms = record("recipe_times.json")["train_step"]["median_ms"]
    alone, both = (
        step_ms[of] / step_ms["adadad"] for of in ("token shift", "shift and norm of q and k")
    )
    shift = beside(recipes["shift interleaved 12"], recipes["interleaved 12"])
    yield README, gain
    yield README, shift, f"{alone:.2f}x", f"{both:.2f}x"
    for one in (first, cut, own):
        of_one = f"{ms[one.arm.name] / ms['interleaved']:.2f}x", beside(one, base)
        yield README, f"`{one.layout}`", *of_one
    yield README, beside(own, cut)
    yield FOUND, f"`{own.layout}`", beside(own, base), beside(own, cut)
    yield FOUND, share, f"`{first.layout}`", more, pooled, gain, of_prose, lead
    yield HEADLINE, share, f"`{first.layout}`", more, gain
    for one in (base, first, cut, own):
        than = [] if one is base else [beside(one, base, 4)]
        medians = (times[of]["median_ms"] for of in ("latency", "train_step"))
        shares = [f"{of[one.arm.name] / of['interleaved']:.3f}x" for of in medians]
        deviation = f"{statistics.stdev(one.nats.values()):.3f}"
        yield HEADLINE, f"`{one.layout}`", f"{mean_of(one):.4f}", deviation, *than, *shares
    random = [one for name, one in trained.items() if name.startswith("random ")]
    found = difference_of(own, random)
    assert found is not None
    assert len(random) == 8
    less = f"{found.mean_nats:.3f} +- {found.half_nats:.3f}"
    yield HEADLINE, beside(first, cut, 4)
    yield HEADLINE, beside(own, cut), less
    yield FOUND, less


def plain_headline() -> Claims:
    """The same by the plain recipe."""
    ms = record("headline_times.json")["latency"]["median_ms"]
    trained = trained_of("headline_arms", "headline.csv")
    base, choice, cut = (trained[of] for of in ("interleaved", "chosen 0.65x", "cut 0.65x"))
    yield HEADLINE, f"{ms[choice.arm.name] / ms['interleaved']:.3f}x", f"{mean_of(base):.4f}"
    for one in (choice, cut, trained["SuperNet 0.65x"]):
        yield HEADLINE, f"`{one.layout}`", beside(one, base, 4)


def longer_headline() -> Claims:
    """With 16 million tokens: seed 10 of each network, three of the best, less the whole one's."""
    every = rows_of(RESULTS / "recipe_long.csv")
    pairs = paired(*(nats_by_seed(every, of) for of in ("dadddaddd", "adadadadadad")))
    mean, half = paired_interval(pairs)
    assert len(pairs) == 3
    yield HEADLINE, "`dadddaddd`", f"{mean:+.4f} +- {half:.4f}"
    shorter = nats_by_seed(every, "adadadadadad", '{"retrain.steps": 9072}')
    gain, gain_half = paired_interval(paired(shorter, nats_by_seed(every, "dadddaddd")))
    for page in (README, HEADLINE, FOUND):
        yield page, f"{mean:.3f} +- {half:.3f}"
        yield page, f"{gain:.3f} +- {gain_half:.3f}"
    rows = [row for row in every if row["seed"] == "10"]
    base = next(row for row in rows if row["layout"] == "adadadadadad" and row["settings"] == "{}")
    nats = {(row["layout"], row["settings"]): float(row["test_nats"]) for row in rows}
    more = {key: found - float(base["test_nats"]) for key, found in nats.items()}
    for key, found in nats.items():
        shown = [f"{more[key]:+.4f}"] if more[key] else []
        layout = [] if "token_shift" in key[1] else [f"`{key[0]}`"]
        yield HEADLINE, *layout, f"{found:.4f}", *shown
    plain = next(found for key, found in more.items() if "token_shift" in key[1])
    yield FOUND, f"{plain:.3f}"
    yield README, f"{plain:+.3f}"
    for layout in ("aaaaddd", "adadada"):
        yield README, f"`{layout}`", f"{more[layout, '{}']:+.3f}"


def nats_by_seed(rows: list[Row], layout: str, settings: str = "{}") -> dict[int, float]:
    """Test nats of a network's trainings."""
    chosen = [row for row in rows if (row["layout"], row["settings"]) == (layout, settings)]
    return {int(row["seed"]): float(row["test_nats"]) for row in chosen}


def each_recipe() -> Claims:
    """Three fresh seeds by each recipe, and what token shift and then the norm are worth."""
    code = trained_of("recipe_arms", "recipe.csv", "headline.csv")
    prose = trained_of("recipe_prose_arms", "recipe_prose.csv")
    networks = ("interleaved 6", "attention first 6", "interleaved 12", "attention first 7")
    present, shift, both = (
        [code[f"{recipe}{of}"] for of in networks] for recipe in ("", "shift ", "shift and norm ")
    )
    of_prose = [[prose[f"{recipe}{of}"] for of in networks] for recipe in ("both ", "")]
    for of_recipe in (both, shift, present, *of_prose):
        yield RECIPE, *map(mean_sd, of_recipe)
    shift_of_prose = [prose[f"shift {of}"] for of in networks[:2]]
    yield RECIPE, *map(mean_sd, shift_of_prose)
    normed = list(zip(both + of_prose[0][:2], shift + shift_of_prose, strict=True))
    worth = zip(shift, present, strict=True), zip(*of_prose, strict=True)
    for pairs in (*worth, normed[:4], normed[4:]):
        yield RECIPE, *(beside(*pair) for pair in pairs)
    mean, half = paired_interval([mean_of(one) - mean_of(other) for one, other in normed])
    for page in (README, HEADLINE, RECIPE):
        yield page, f"{-mean:.3f} +- {half:.3f}"


def on_prose() -> Claims:
    """Eight seeds of each network on prose."""
    trained = trained_of("recipe_on_prose_arms", "recipe_on_prose.csv")
    base, first, cut = (trained[of] for of in ("interleaved", "feed-forward first", CUT))
    assert {len(one.nats) for one in trained.values()} == {8}
    for one in trained.values():
        than = [] if one is base else [beside(one, base, 4)]
        yield HEADLINE, f"`{one.layout}`", f"{mean_of(one):.4f}", *than
        if one is not base:
            yield README, f"`{one.layout}`", beside(one, base)
    yield HEADLINE, beside(first, base)
    last = trained["attention first"]
    before = trained_of("recipe_prose_arms", "recipe_prose.csv")
    pilot = [before[f"both {of}"].nats for of in ("attention first 7", "interleaved 12")]
    mean, half = paired_interval(paired(last.nats, base.nats) + paired(*pilot))
    yield FOUND, beside(first, base), beside(first, cut), beside(last, base)
    for page in (FOUND, HEADLINE):
        yield page, f"{mean:.3f} +- {half:.3f}"
    for page in (README, HEADLINE):
        yield page, beside(first, cut)


def headline_on_another_text() -> Claims:
    other = trained_of("wikitext_arms", "headline_wikitext.csv")
    base, choice = (other[of] for of in ("interleaved", "chosen 0.65x"))
    more = percent(mean_of(choice) - mean_of(base))
    yield HEADLINE, beside(choice, base, 4), more
    yield FOUND, more


def shrunk() -> Claims:
    """Of every way to shrink: mean nats, and less the parents'."""
    rows = rows_of(RESULTS / "shrinking.csv")
    _, _, *lines = shrink_evidence.report_lines(rows)
    for of_way in lines:
        _, way, mean_nats, more, *_ = (cell.strip() for cell in of_way.split("|"))
        yield SHRINKING, mean_nats, *([] if way == PARENT else [more])
    less = [less_shrunk(rows, "chosen", other) for other in (PARENT, "chosen anew, 3600 steps")]
    for page in (README, FOUND):
        yield page, *less, share_shrunk(rows)


def shrunk_otherwise() -> Claims:
    """Other budgets, steps and texts, and without the teacher, with two models each."""
    for name in ("eighty", "half", "300", "prose"):
        rows = rows_of(RESULTS / f"shrinking_{name}.csv")
        share = [share_shrunk(rows)] if name != "300" else []
        yield SHRINKING, less_shrunk(rows, "chosen", PARENT), *share
    yield SHRINKING, less_shrunk(rows, "chosen", "whole")
    yield SHRINKING, less_shrunk(rows, "chosen", "chosen anew, 3600 steps")
    rows = rows_of(RESULTS / "shrinking_labels.csv")
    yield SHRINKING, *(less_shrunk(rows, way, PARENT) for way in ("chosen", "whole"))


def less_shrunk(rows: list[Row], way: str, other: str) -> str:
    """By how much a way is above another, or below it, in the mean of the parents."""
    kept = ({row["parent"]: row for row in rows if row["way"] == one} for one in (way, other))
    one, than = ({parent: float(row["test_nats"]) for parent, row in of.items()} for of in kept)
    mean, half = paired_interval([one[parent] - than[parent] for parent in than])
    return f"{abs(mean):.3f} +- {half:.3f}"


def share_shrunk(rows: list[Row]) -> str:
    """What the chosen subsets take of the latency."""
    shares = [float(row["latency"]) for row in rows if row["way"] == "chosen"]
    return f"{statistics.fmean(shares):.2f}x"


def copied() -> Claims:
    """Mean nats of tokens that can be copied (a rare pair, a common one) and of the others."""
    for name, layouts in (
        ("copying_recipe.json", ("adadadadadad", "aaaaddd", "adadada")),
        ("copying.json", ("aaaaddd", "adadada")),
    ):
        for layout in layouts:
            seeds = record(name)["models"][f"{layout}, 3000 steps"]
            fresh = [nats for seed, nats in seeds.items() if int(seed) < 100]
            assert len(fresh) == 8
            means = [f"{statistics.fmean(kind):.3f}" for kind in zip(*fresh, strict=True)]
            yield HEADLINE, *means


def more_kinds() -> Claims:
    trained = trained_of("hybrid_arms", "hybrid.csv", "headline.csv")
    yield HEADLINE, less_of(trained["gated"], [trained["narrow"]])[1:]


def recalled() -> Claims:
    """The best of four trainings of each layout, at both tasks."""
    with (RESULTS / "recall.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for layout in sorted({row["layout"] for row in rows}):
        best = [
            max(
                float(row["accuracy"])
                for row in rows
                if (row["layout"], row["task"]) == (layout, task)
            )
            for task in ("in-context recall", "selective copy")
        ]
        yield FOUND, f"`{layout}`", *(f"{100 * share:.1f}%" for share in best)


def demo() -> Claims:
    """Of the chosen layout beside the Transformer-XL, its cut one, and a random one."""
    content = record("demo.json")
    (chosen,) = (row for row in content["rows"] if row["role"] == "chosen")
    others = {name: one["chosen_less_it"] for name, one in content["intervals"].items()
              if name != chosen["name"]}  # fmt: skip
    shown = {name: content["intervals"][name]["shown"] for name in others}
    assert shown == {"interleaved": "nothing", "interleaved-4": "nothing", "random-0": "better"}
    whole = [f"{100 * math.expm1(nats):.1f}%" for nats in others["interleaved"]]
    yield README, f"{chosen['relative_latency']:.2f}x", *whole
    yield README, f"{-100 * math.expm1(others['random-0'][0]):.1f}%"


def ranked() -> Claims:
    """Kendall's tau of the SuperNet with its interval, and of counting parameters."""
    for name in ("equal", "free"):
        group = record("quickstart_rank.json")["groups"][name]
        assert group["difference"]["low"] <= 0, "pages: a search is not shown to be worth it"
        tau, counted = group["supernet"], group["trivial"]["parameters"]
        interval = f"[{tau['low']:.2f}, {tau['high']:.2f}]"
        yield FOUND, f"{tau['tau']:.2f}", interval, f"{counted['tau']:.2f}"


def searched() -> Claims:
    """Mean regrets on LayoutBench, in nats."""
    searches = {each["name"]: each for each in record("layoutsearches.json")["searches"]}
    fresh = [regret for name in FRESH for regret in searches[name]["regrets"]["each"]]
    assert len(fresh) == len({seed for name in FRESH for seed in searches[name]["seeds"]}) == 20
    regret, random = statistics.fmean(fresh), searches[FRESH[0]]["random_regret"]
    soft, table = searches[BEFORE], read_table(RESULTS / "layoutbench.csv")
    assert len(soft["seeds"]) == 5
    rules = [regret_of(table, [layout]).mean for layout in ("adadad", "aaaddd")]
    assert rules[1] == 0.0, "sandwich, with k = 2, which 6 slots have by default"
    yield "docs/estimators.md", f"{soft['regrets']['mean']:.3f}", f"{regret:.3f}"
    for each in (regret, random, *rules):
        yield FOUND, f"{each:.3f}"
    for each in (regret, soft["regrets"]["mean"], *rules):
        yield LAYOUTBENCH, f"{each:.4f}"


def replayed() -> Claims:
    by_recipe = "layoutbench2_recipe_replay"
    budgets = record("layoutbench2_replay.json")["budgets"]
    tight, wide, _ = budgets
    regret = {
        (within, name): method["regret_nats"]
        for within, matching in budgets.items()
        for name, method in matching["methods"].items()
    }
    # As the page calls the methods of the record.
    called = {
        "predictor": "predictor",
        "short trainings at random": "random probes",
        "random search": "random search",
        "hand-written layouts alone": "rules alone",
        "`trained`, no search": "finals",
        "a search's best eight, in full": "search, finals",
        "`trained` after a search": "finals + search",
    }
    for words, name in called.items():
        yield LAYOUTBENCH, words, *(f"{regret[within, name]:.4f}" for within in budgets)

    def at(within: str, *names: str) -> list[str]:
        return [f"{regret[within, name]:.3f}" for name in names]

    against = ("finals", "random search")
    yield FOUND, *at(wide, *against), *at(tight, *against)
    yield FOUND, *at(tight, "predictor")
    shifted, mended = (
        {
            name: f"{one['regret_nats']:.3f}"
            for name, one in of["budgets"]["0.5x"]["methods"].items()
        }
        for of in map(record, (f"{by_recipe}.json", f"{by_recipe}_after_dense.json"))
    )
    yield "docs/choosing.md", "`trained`, no search", mended["finals"]
    for words in ("predictor", "random search", "`trained`, no search", "`trained` after a search"):
        regrets = (at(within, called[words])[0] for within in budgets)
        yield "docs/choosing.md", words, *regrets, shifted[called[words]]
    yield FOUND, *(shifted[name] for name in against)
    yield LAYOUTBENCH, *(shifted[name] for name in (*against, "search, finals", "predictor"))


def dense_first() -> Claims:
    """A layout that begins with a feed-forward block, beside the whole one and the cut one."""
    trained = trained_of("recipe_dense_first_arms", "recipe_dense_first.csv", "recipe_headline.csv")
    one = trained["feed-forward first"]
    ms = record("recipe_dense_first_times.json")["latency"]["median_ms"]
    than = [beside(one, trained[of]) for of in ("interleaved", CUT)]
    shares = [f"{ms[of] / ms['interleaved']:.2f}x" for of in (one.arm.name, CUT)]
    yield FOUND, f"`{one.layout}`", *than, *shares
    rows = rows_of(RESULTS / "recipe_dense_first.csv") + rows_of(RESULTS / "recipe_headline.csv")
    flops = {row["layout"]: float(row["flops_per_token"]) for row in rows}
    yield README, f"`{one.layout}`", than[0], shares[0]
    yield README, than[1], f"{flops['adadada'] / flops[one.layout]:.2f}x"


def steps() -> Claims:
    """A training step's speed beside those of other positions, the textbook, and the ceiling."""
    found = [record(f"step_time_{shape}.json") for shape in ("small", "large")]
    for side in found[0]["sides"]:
        cells = []
        for one in found:
            cells.append(f"{one['sides'][side]['tokens_per_s']:,.0f}")
            word = side.removeprefix("ours, ").replace(", ", "_with_").replace(" ", "_")
            for over, power in ((f"ours_over_{word}", 1), (f"{word}_over_relative", -1)):
                cells += [f"{one['speed'][over] ** power:.2f}"] if over in one["speed"] else []
        yield BENCHMARKS, side.split(", ")[0], *cells
        if side == "textbook":
            yield BENCHMARKS, f"{cells[1]} (small) and {cells[3]} (large)"
        elif side == "ceiling":
            yield BENCHMARKS, f"{cells[1]} and {cells[3]} of"


def taught_steps() -> Claims:
    """A step with a teacher over one without, and both memories."""
    found = [record(f"distilled_step_{shape}.json")["sides"] for shape in ("small", "large")]
    for side in found[0]:
        both = [
            f"{of[side]['median_ms']:.0f} ms"
            if side == "plain"
            else f"{of[side]['over_plain']:.2f}x"
            for of in found
        ]
        memory = [f"{of[side]['peak_mb']:,.0f} MB" for of in found]
        yield BENCHMARKS, *(f"{one}, {mb}" for one, mb in zip(both, memory, strict=True))


def other_times() -> Claims:
    """Of evaluation, generation, bfloat16, processes, slots, and a pass among others."""
    rows = record("evaluation_time.json")["rows"]
    for row in (rows[0], rows[-1]):
        each = [f"{1000 / row['ms_per_token'][side]:,.0f}" for side in ("kept", "not kept")]
        yield BENCHMARKS, f"{row['segment']}", *each, f"{row['ratio']:#.3g}"
    found = record("generation.json")
    kept, anew = (found["sides"][side]["median_ms"] for side in ("kept", "anew"))
    least, most = min(found["ratios"]), max(found["ratios"])
    yield BENCHMARKS, *(f"{each:.1f}" for each in (kept, anew, found["ratio"], least, most))
    found = record("precision_time_large.json")
    short, wide = (found["sides"][side]["median_ms"] for side in ("bfloat16", "float32"))
    yield BENCHMARKS, f"{short:.0f} ms", f"{wide:.0f} ms", f"{found['ratio']:.2f}"
    one, two, _ = record("processes_time_small.json")["sides"].values()
    yield BENCHMARKS, f"{two['speed']:.2f}", f"{one['speed']:.2f}"
    for name in ("128_cuda_bfloat16", "cuda_tf32", "cuda_float32"):
        (side,) = record(f"device_step_paper_{name}.json")["sides"].values()
        yield BENCHMARKS, f"{side['tokens_per_s']:,.0f}"
        if name.startswith("128"):
            yield "docs/one_gpu.md", f"{side['tokens_per_s']:,.0f}"
    found = record("step_scaling_slots_small.json")["line_ms"]
    yield BENCHMARKS, f"{found['at_zero']:.1f}", f"{found['slope']:.2f}", f"{found['r2']:.3f}"
    ratios = record("timing_company.json")["ratios"]
    blocks = {company: ratios[company][BEHIND[0]] for company in COMPANIES}
    yield "docs/budgets.md", line(BEHIND[0], blocks).rpartition("apart by ")[2]


def predicted_times() -> Claims:
    table = CostTable.model_validate(record("latency_table.json"))
    assert set(table.workloads) == {"latency", "decode", "train_step", "throughput"}
    for workload, times in table.workloads.items():
        assert (len(times.held_out), times.doubt) == (20, None)
        error, tau = times.agreement
        yield "docs/budgets.md", f"`{workload}`", f"{100 * error:.1f}%", f"{tau:.2f}"


def speeds_of_kinds() -> Claims:
    kinds = record("kinds_time.json")["kinds"]
    for name, kind in kinds.items():
        over = kind["over_attention"]
        speeds = [f"{over[what]:.2f}" for what in ("evaluation", "training", "decode")]
        yield KINDS, f"`{name}`", *speeds, f"{kind['cache_bytes'] / 1024:,.0f}"
        if name in BLOCKS:
            yield "docs/blocks.md", f"`{name}`", speeds[0]
    fast = ("gated_delta", "short_conv", "linear_attention")
    yield FOUND, *(f"{kinds[name]['over_attention']['evaluation']:.2f}" for name in fast)


def worth_of_kinds() -> Claims:
    times, page = record("kinds_alone_times.json"), KINDS
    rows = rows_of(RESULTS / "kinds_alone.csv")
    cells: dict[str, list[str]] = {}
    for entry in filter(lambda one: one.kind, entries(["aaaddd", "adadad"])):
        above = less(nats_of(rows, entry.layout), nats_of(rows, entry.base)).replace("+-", "±")
        medians = [times[name]["median_ms"] for name in ("latency", "train_step")]
        ratios = [f"{ms[entry.layout] / ms[entry.base]:.2f}" for ms in medians]
        cells.setdefault(entry.kind, []).extend([above, *ratios])
    for kind, row in cells.items():
        yield page, f"`{kind}`", *row
    yield FOUND, "`gated_delta`", cells["gated_delta"][3]
    nats = [float(r["nats_per_token"]) for r in record("all_blocks_comparison.json")["rows"]]
    more = [one - nats[0] for one in nats]
    yield page, f"{more[1]:.3f}", f"{more[-1]:.3f}"
    yield FOUND, f"{more[1]:.3f}"


def dropout_by_default() -> Claims:
    """The laws for several processes hold without dropout alone."""
    default = ModelConfig.model_fields["dropout"].default
    assert default > 0
    yield "docs/several_gpus.md", "`model.dropout`", f"{default}"


CLAIMS: tuple[Callable[[], Claims], ...] = (
    headline, each_recipe, on_prose, plain_headline, longer_headline, headline_on_another_text,
    shrunk, shrunk_otherwise, copied, more_kinds, recalled,
    demo, ranked, searched, replayed, dense_first, steps, taught_steps, other_times,
    predicted_times, speeds_of_kinds, worth_of_kinds, dropout_by_default,
)  # fmt: skip


def test_copying_begins_at_one_step_by_the_recipe_and_not_by_the_plain_one() -> None:
    rows = rows_of(RESULTS / "copying_onset.csv")
    for layout in ("adadadadadad", "aaaaddd", "dadddaddd"):
        own = [[row for row in rows if (row["layout"], row["name"]) == (layout, name)]
               for name in ("with the recipe", "plain")]  # fmt: skip
        assert [onset(each) for each in own] == [1250, None]


@pytest.mark.parametrize("claims", CLAIMS, ids=lambda claims: claims.__name__)
def test_a_page_has_the_figures_of_the_records(claims: Callable[[], Claims]) -> None:
    said = [*claims()]
    assert said
    assert {claim: lacks for claim in said if (lacks := missing(claim[0], claim[1:]))} == {}
