"""The measured figures of README and the guide are those of their records, at the digits shown.

Where a record is made again, these tests fail and show the sentence to write instead. Pages under
docs/experiments are dated notes of a laboratory and stay as they were written.
"""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.arms import arms_of
from benchmarks.arms_report import TrainedArm, difference_of, interval_beside, trained_arms
from benchmarks.kinds_alone import entries, less, nats_of
from benchmarks.layout_rows import rows_of
from benchmarks.layoutbench.regret import regret_of
from benchmarks.layoutbench.table import read_table
from benchmarks.timing_company import BEHIND, COMPANIES, line
from model import ModelConfig
from nas.costs.model import CostTable
from report.comparison import read_comparison, text_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
README, BENCHMARKS = "README.md", "docs/benchmarks.md"
# The default of today with seeds that took no part in its choice, and the default of before.
FRESH = ("spos_soft_f50_confirm", "default_30", "default_36")
BEFORE = "default"

# Pages and what they should say.
Claims = Iterator[tuple[str, str]]


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def words_of(page: str) -> str:
    """The text of a page with its lines joined."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def trained_of(name: str, table: str) -> dict[str, TrainedArm]:
    return trained_arms(arms_of(ROOT / f"benchmarks/{name}.yaml"), rows_of(RESULTS / table))


def beside(one: TrainedArm, other: TrainedArm) -> str:
    interval = interval_beside(one, other)
    assert interval is not None
    return f"{abs(interval[0]):.3f} +- {interval[1]:.3f} {'less' if interval[0] < 0 else 'more'}"


def headline() -> Claims:
    """Differences of eight paired seeds with their 95% intervals, and the latency measured."""
    ms = record("headline_times.json")["latency"]["median_ms"]
    trained = trained_of("headline_arms", "headline.csv")
    base, choice, cut = (trained[of] for of in ("interleaved", "chosen 0.65x", "cut 0.65x"))
    assert [len(one.nats) for one in (base, choice, cut)] == [8, 8, 8]
    share, cuts = (f"{ms[one.arm.name] / ms['interleaved']:.2f}x" for one in (choice, cut))
    yield README, f"At {share} of the latency of a 12-slot Transformer-XL, `{choice.layout}`"
    yield README, f"has {beside(choice, base).replace(' less', ' test nats less')}"
    yield README, f"cut to {cuts}, `{cut.layout}`, has {beside(cut, base)}"
    random = [one for name, one in trained.items() if name.startswith("random ")]
    lead = [difference_of(choice, them) for them in ([trained["SuperNet 0.65x"]], random)]
    alone, drawn = (-one.mean_nats for one in lead if one is not None)
    says = "own layout has {:.2f} nats more than the rules', random ones {:.2f} more (not shown)"
    yield README, says.format(alone, drawn)
    other = trained_of("wikitext_arms", "headline_wikitext.csv")
    more = beside(other["chosen 0.65x"], other["interleaved"])
    yield README, f"On a part of WikiText-2 it has {more}"


def demo() -> Claims:
    content = record("demo.json")
    rows = {row["name"]: row for row in content["rows"]}
    (chosen,) = (row for row in rows.values() if row["role"] == "chosen")
    plain, cut = rows["interleaved"], rows["interleaved-5"]
    share = chosen["latency_ms"] / plain["latency_ms"]
    more = chosen["perplexity"] / plain["perplexity"] - 1
    assert chosen["perplexity"] == pytest.approx(cut["perplexity"], rel=0.005)
    says = (
        f"At {share:.2f}x of `interleaved`'s latency it has {100 * more:.0f}% more perplexity; "
        "`interleaved-5`, the same cut to these FLOPs, has as much"
    )
    yield README, says
    tried = sorted(content["derived"], key=lambda layout: float(layout["valid_nats"]))
    assert [bool(layout["rule"]) for layout in tried] == [True] * 5 + [False]
    assert tried[0]["rule"].startswith("attention first")
    says = (
        "`derive.py` trained five layouts of rules and the search's best one. "
        'The rule "attention first" won, and the search\'s layout came last.'
    )
    yield README, says


def ranked() -> Claims:
    """Kendall's tau of the SuperNet with its interval, and of counting parameters."""
    taus = []
    for name in ("equal", "free"):
        group = record("quickstart_rank.json")["groups"][name]
        assert group["difference"]["low"] <= 0, "README: a search is not shown to be worth it"
        tau, counted = group["supernet"], group["trivial"]["parameters"]
        interval = f"[{tau['low']:.2f}, {tau['high']:.2f}]"
        taus.append(f"{tau['tau']:.2f} {interval} against {counted['tau']:.2f}")
    says = "Kendall's tau is {} at equal FLOPs, and {} over free layouts"
    yield "docs/evaluation.md", says.format(*taus)


def searched() -> Claims:
    """Mean regrets on LayoutBench, in nats."""
    searches = {each["name"]: each for each in record("layoutsearches.json")["searches"]}
    fresh = [regret for name in FRESH for regret in searches[name]["regrets"]["each"]]
    assert len(fresh) == len({seed for name in FRESH for seed in searches[name]["seeds"]}) == 20
    for page in (README, "docs/evaluation.md"):
        says = (
            f"layouts lie {statistics.fmean(fresh):.3f} nats above the best, and those of random "
            f"search at its cost {searches[FRESH[0]]['random_regret']:.3f}"
        )
        yield page, says
    soft, table = searches[BEFORE], read_table(RESULTS / "layoutbench.csv")
    assert len(soft["seeds"]) == 5
    interleaved = regret_of(table, ["adadad"]).mean
    says = (
        "A search with `soft` for weights and alpha lies "
        f"{soft['regrets']['mean']:.3f} above the best (five other seeds). Of the rules, which "
        f"cost one training, `interleaved` lies {interleaved:.3f} above the best"
    )
    yield "docs/evaluation.md", says
    assert regret_of(table, ["aaaddd"]).mean == 0.0, "k = 2, which 6 slots have by default"
    yield README, "The rule `sandwich` is the best"


def within_two_attentions() -> Claims:
    (row,) = (each for each in record("budget_regret.json")["budgets"] if each["attentions"] == 2)
    assert len(row["top_k"]["each"]) == 5
    rules = min(rule["regret"] for rule in row["rules"].values())
    says = (
        f"`top_k`'s layouts lie {row['top_k']['mean']:.3f} nats above the best, random search's "
        f"{row['random_search']:.3f} and the rules' {rules:.3f} and more"
    )
    yield README, says


def replayed() -> Claims:
    regret = {
        (within, name): f"{method['regret_nats']:.3f}"
        for within, contest in record("layoutbench2_replay.json")["budgets"].items()
        for name, method in contest["methods"].items()
    }
    (wide, wider), tight = ("0.65x", "0.75x"), "0.5x"
    says = (
        f"lie {regret[wide, 'finals']} and {regret[wider, 'finals']} nats above the best at "
        f"0.65x and 0.75x of the FLOPs, random search {regret[wide, 'random search']} and "
        f"{regret[wider, 'random search']}. At 0.5x they lie {regret[tight, 'finals']} above it, "
        f"[short trainings](docs/predictor.md) {regret[tight, 'predictor']}."
    )
    yield README, says
    after = ", ".join(regret[within, "finals + search"] for within in (tight, wide))
    says = f"lies {after} and {regret[wider, 'finals + search']} above it"
    yield "docs/predictor.md", says


def steps() -> Claims:
    """A training step's speed beside the textbook's and the ceiling's."""
    over = dict[str, list[str]]()
    for shape in ("small", "large"):
        found = record(f"step_time_{shape}.json")
        cells = [f"{side['tokens_per_s']:,.0f}" for side in found["sides"].values()]
        ratios = ("textbook", "textbook_with_our_allocator", "ceiling")
        over[shape] = [f"{found['speed'][f'ours_over_{ratio}']:.2f}" for ratio in ratios]
        yield BENCHMARKS, f"| {shape}, tokens/s | {' | '.join([*cells, *over[shape]])} |"
        yield README, f"| {cells[0]} tokens/s |"
    (small, _, low), (large, _, high) = over.values()
    says = (
        f"{small} (small) and {large} (large) times as fast as that of a textbook Transformer-XL, "
        f"and reaches {low} and {high} of a practical ceiling"
    )
    yield BENCHMARKS, says


def other_times() -> Claims:
    """Of evaluation, generation, bfloat16, processes, slots, and a pass among others."""
    for row in record("evaluation_time.json")["rows"]:
        each = [f"{1000 / row['ms_per_token'][side]:,.0f}" for side in ("kept", "not kept")]
        yield BENCHMARKS, f"| {row['segment']} | {' | '.join(each)} | {row['ratio']:#.3g} |"
    found = record("generation.json")
    kept, anew = (found["sides"][side]["median_ms"] for side in ("kept", "anew"))
    least, most = min(found["ratios"]), max(found["ratios"])
    cells = f"{kept:.1f} | {anew:.1f} | {found['ratio']:.1f} | {least:.1f} to {most:.1f}"
    yield BENCHMARKS, f"| {cells} |"
    found = record("precision_time_large.json")
    short, wide = (found["sides"][side]["median_ms"] for side in ("bfloat16", "float32"))
    says = f"{short:.0f} ms a step against {wide:.0f} ms in float32, {found['ratio']:.2f} times"
    yield BENCHMARKS, says
    one, two, _ = record("processes_time_small.json")["sides"].values()
    yield BENCHMARKS, f"the median of the rounds' ratios is {two['speed']:.2f}"
    yield BENCHMARKS, f"One process of one thread reaches {one['speed']:.2f}"
    found = record("step_scaling_slots_small.json")["line_ms"]
    says = f"{found['at_zero']:.1f} ms + {found['slope']:.2f} ms a slot, R2 {found['r2']:.3f}"
    yield BENCHMARKS, says
    ratios = record("timing_company.json")["ratios"]
    for behind in BEHIND:
        blocks = {company: ratios[company][behind] for company in COMPANIES}
        medians = " | ".join(f"{statistics.median(each):.3f}" for each in blocks.values())
        apart = line(behind, blocks).rpartition("apart by ")[2]
        yield BENCHMARKS, f"| {behind} | {medians} | {apart} |"


def predicted_times() -> Claims:
    table = CostTable.model_validate(record("latency_table.json"))
    assert set(table.workloads) == {"latency", "decode", "train_step", "throughput"}
    for workload, times in table.workloads.items():
        assert (len(times.held_out), times.doubt) == (20, None)
        error, tau = times.agreement
        yield "docs/costs.md", f"| `{workload}` | {100 * error:.1f}% | {tau:.2f} |"


def speeds_of_kinds() -> Claims:
    kinds, page = record("kinds_time.json")["kinds"], "docs/blocks.md"
    for name, kind in kinds.items():
        over = kind["over_attention"]
        speeds = " | ".join(f"{over[what]:.2f}" for what in ("evaluation", "training", "decode"))
        is_slower = min(over.values()) <= 1 and name != "attention"
        why = f"{kind['why']} |" if is_slower else "|"
        yield page, f"| `{name}` | {speeds} | {kind['cache_bytes'] / 1024:,.0f} | {why}"


def worth_of_kinds() -> Claims:
    times, page = record("kinds_alone_times.json"), "docs/blocks.md"
    rows = rows_of(RESULTS / "kinds_alone.csv")
    cells: dict[str, list[str]] = {}
    for entry in filter(lambda one: one.kind, entries(["aaaddd", "adadad"])):
        above = less(nats_of(rows, entry.layout), nats_of(rows, entry.base)).replace("+-", "±")
        medians = [times[name]["median_ms"] for name in ("latency", "train_step")]
        ratios = [f"{ms[entry.layout] / ms[entry.base]:.2f}" for ms in medians]
        cells.setdefault(entry.kind, []).extend([above, *ratios])
    for kind, row in cells.items():
        yield page, f"| `{kind}` | {' | '.join(row)} |"
    nats = [float(r["nats_per_token"]) for r in record("all_blocks_comparison.json")["rows"]]
    more = [one - nats[0] for one in nats]
    yield page, f"has {more[1]:.3f} ± 0.026 nats less than `interleaved` and {more[-1]:.3f} ±"


def dropout_by_default() -> Claims:
    """The laws for several processes hold without dropout alone."""
    default = ModelConfig.model_fields["dropout"].default
    assert default > 0
    yield "docs/scale.md", f"(`model.dropout` is {default} by default)"


CLAIMS: tuple[Callable[[], Claims], ...] = (
    headline, demo, ranked, searched, within_two_attentions, replayed, steps, other_times,
    predicted_times, speeds_of_kinds, worth_of_kinds, dropout_by_default,
)  # fmt: skip


@pytest.mark.parametrize("claims", CLAIMS, ids=lambda claims: claims.__name__)
def test_a_page_says_what_the_records_say(claims: Callable[[], Claims]) -> None:
    said = [*claims()]
    assert said
    for page, sentence in said:
        assert sentence in words_of(page), page


def test_the_table_of_the_demo_is_its_record(tmp_path: Path) -> None:
    """As compare.py prints it, up to the verdict."""
    said = {"intervals": {}, "latency_interval_ms": {}, **record("demo.json")}
    (tmp_path / "comparison.json").write_text(json.dumps(said), encoding="utf-8")
    printed = text_table(read_comparison(tmp_path)).partition("\nforward latency")[0]
    assert f"```\n{printed}\n```" in (ROOT / README).read_text(encoding="utf-8")
