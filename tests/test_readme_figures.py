"""The measured figures of README and docs are those of their records, at the digits shown.

Where a record is made again, these tests fail and show the sentence to write instead.
"""

import csv
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kinds_alone import entries, less, nats_of
from benchmarks.layout_rows import rows_of
from benchmarks.layoutbench.regret import regret_of
from benchmarks.layoutbench.table import read_table
from model import ModelConfig
from nas.costs.model import CostTable
from report.comparison import read_comparison, text_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
# The default of today with seeds that took no part in its choice, and the default of before.
FRESH = ("spos_soft_f50_confirm", "default_30", "default_36")
BEFORE = "default"


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def words_of(page: str) -> str:
    """The text of a page with its lines joined."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def ranked() -> str:
    """Kendall's tau of the SuperNet with its interval, and of counting parameters."""
    groups = record("quickstart_rank.json")["groups"]

    def taus(group: str) -> str:
        tau, counted = groups[group]["supernet"], groups[group]["trivial"]["parameters"]
        interval = f"[{tau['low']:.2f}, {tau['high']:.2f}]"
        return f"{tau['tau']:.2f} {interval} against {counted['tau']:.2f}"

    return f"Kendall's tau is {taus('equal')} at equal FLOPs, and {taus('free')} over free layouts"


def searched() -> str:
    """Mean regrets on LayoutBench, in nats."""
    searches = {each["name"]: each for each in record("layoutsearches.json")["searches"]}
    fresh = [regret for name in FRESH for regret in searches[name]["regrets"]["each"]]
    assert len(fresh) == len({seed for name in FRESH for seed in searches[name]["seeds"]}) == 20
    return (
        f"layouts lie {statistics.fmean(fresh):.3f} nats above the best, and those of random "
        f"search at its cost {searches[FRESH[0]]['random_regret']:.3f}"
    )


def searched_before() -> str:
    (soft,) = (each for each in record("layoutsearches.json")["searches"] if each["name"] == BEFORE)
    assert len(soft["seeds"]) == 5
    interleaved = regret_of(read_table(RESULTS / "layoutbench.csv"), ["adadad"]).mean
    return (
        "A search with `soft` for weights and alpha lies "
        f"{soft['regrets']['mean']:.3f} above the best (five other seeds). Of the rules, which "
        f"cost one training, `interleaved` lies {interleaved:.3f} above the best"
    )


def within_two_attentions() -> str:
    (row,) = (each for each in record("budget_regret.json")["budgets"] if each["attentions"] == 2)
    assert len(row["top_k"]["each"]) == 5
    return (
        f"`top_k`'s layouts lie {row['top_k']['mean']:.3f} nats above the best, random search's "
        f"{row['random_search']:.3f} and the rules' "
        f"{min(rule['regret'] for rule in row['rules'].values()):.3f} and more"
    )


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", within_two_attentions),
        ("docs/evaluation.md", ranked),
        ("README.md", searched),
        ("docs/evaluation.md", searched),
        ("docs/evaluation.md", searched_before),
    ],
)
def test_a_page_says_what_the_records_say(page: str, sentence: Callable[[], str]) -> None:
    assert sentence() in words_of(page)


def test_the_table_of_the_demo_is_its_record(tmp_path: Path) -> None:
    """As compare.py prints it, up to the verdict."""
    rows = record("demo.json")["rows"]
    with (tmp_path / "comparison.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    said = {"intervals": {}, "latency_interval_ms": {}, **record("demo.json")}
    (tmp_path / "comparison.json").write_text(json.dumps(said), encoding="utf-8")
    printed = text_table(read_comparison(tmp_path)).partition("\nforward latency")[0]
    assert f"```\n{printed}\n```" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_tells_the_demo_in_its_figures() -> None:
    rows = {row["name"]: row for row in record("demo.json")["rows"]}
    (chosen_row,) = (row for row in rows.values() if row["role"] == "chosen")

    def times(name: str, key: str) -> float:
        return float(chosen_row[key] / rows[name][key])

    share, more = times("interleaved", "latency_ms"), times("interleaved", "perplexity") - 1
    assert (
        f"At {share:.2f}x of `interleaved`'s latency it has {100 * more:.0f}% more perplexity; "
        "`interleaved-5`, the same cut to these FLOPs, has as much"
    ) in words_of("README.md")
    assert times("interleaved-5", "perplexity") == pytest.approx(1.0, abs=0.005)


def test_readme_tells_what_the_demo_trained_to_choose() -> None:
    tried = sorted(record("demo.json")["derived"], key=lambda layout: float(layout["valid_nats"]))
    assert [bool(layout["rule"]) for layout in tried] == [True] * 5 + [False]
    assert tried[0]["rule"].startswith("attention first")
    assert (
        "`derive.py` trained five layouts of rules and the search's best one. "
        'The rule "attention first" won, and the search\'s layout came last.'
    ) in words_of("README.md")


@pytest.mark.parametrize("workload", ["latency", "decode", "train_step", "throughput"])
def test_the_page_of_costs_says_how_well_times_are_predicted(workload: str) -> None:
    table = CostTable.model_validate(record("latency_table.json"))
    times = table.workloads[workload]
    assert len(times.held_out) == 20
    assert times.doubt is None
    shown = times.agreement
    row = f"| `{workload}` | {100 * shown.error:.1f}% | {shown.tau:.2f} |"
    assert row in (ROOT / "docs/costs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("shape", ["small", "large"])
def test_readme_says_how_many_tokens_a_step_takes(shape: str) -> None:
    speed = record(f"step_time_{shape}.json")["sides"]["ours"]["tokens_per_s"]
    assert f"| {speed:,.0f} tokens/s |" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_sandwich_is_the_best_of_the_table() -> None:
    """README: "The rule `sandwich` is the best"; k = 2, which 6 slots have by default."""
    assert regret_of(read_table(RESULTS / "layoutbench.csv"), ["aaaddd"]).mean == 0.0


def test_whether_the_supernet_beats_counting_is_as_readme_says() -> None:
    """The verdict's words, and with them README's, would change with these intervals."""
    for group in record("quickstart_rank.json")["groups"].values():
        assert group["difference"]["low"] <= 0, "README: is not shown to beat parameter counting"


def test_what_several_processes_give_depends_on_dropout() -> None:
    """The laws for several processes hold without dropout alone, which is not the default."""
    default = ModelConfig.model_fields["dropout"].default
    assert default > 0
    assert f"(`model.dropout` is {default} by default)" in words_of("docs/scale.md")


def test_the_replayed_methods_are_as_good_as_readme_says() -> None:
    regret = {
        (within, name): f"{method['regret_nats']:.3f}"
        for within, contest in record("layoutbench2_replay.json")["budgets"].items()
        for name, method in contest["methods"].items()
    }
    (wide, wider), tight = ("0.65x", "0.75x"), "0.5x"
    assert (
        f"lie {regret[wide, 'finals']} and {regret[wider, 'finals']} nats above the best at 0.65x "
        f"and 0.75x of the FLOPs, random search {regret[wide, 'random search']} and "
        f"{regret[wider, 'random search']}. At 0.5x they lie {regret[tight, 'finals']} above it, "
        f"[short trainings](docs/predictor.md) {regret[tight, 'predictor']}."
    ) in words_of("README.md")
    after = ", ".join(regret[within, "finals + search"] for within in (tight, wide))
    assert f"lies {after} and {regret[wider, 'finals + search']} above it" in words_of(
        "docs/predictor.md"
    )


def test_the_speeds_of_kinds_are_those_that_were_measured() -> None:
    kinds, page = record("kinds_time.json")["kinds"], words_of("docs/blocks.md")
    for name, kind in kinds.items():
        over = kind["over_attention"]
        speeds = " | ".join(f"{over[what]:.2f}" for what in ("evaluation", "training", "decode"))
        is_slower = min(over.values()) <= 1 and name != "attention"
        why = f"{kind['why']} |" if is_slower else "|"
        assert f"| `{name}` | {speeds} | {kind['cache_bytes'] / 1024:,.0f} | {why}" in page
    base = kinds["attention"]
    assert (
        f"evaluates {base['evaluation_tokens_per_s']:,.0f} tokens a second, trains "
        f"{base['training_tokens_per_s']:,.0f}, and decodes a token in "
        f"{base['decode_ms_per_token']:.1f} ms"
    ) in page
    rounds_ms = base["sides"]["decode"]["rounds_ms"]
    between = f"seven rounds lay between {min(rounds_ms):.1f} and {max(rounds_ms):.1f} ms"
    assert f"{between}, so the {kinds['multi_query']['over_attention']['decode']:.2f}" in page
    pays = f"{kinds['gated_delta']['over_attention']['evaluation']:.1f} times as fast as attention"
    assert f"{pays} at a memory of 2,048" in page


def test_the_worth_of_kinds_alone_is_what_was_measured() -> None:
    page, times = words_of("docs/blocks.md"), record("kinds_alone_times.json")
    rows = rows_of(RESULTS / "kinds_alone.csv")
    cells: dict[str, list[str]] = {}
    for entry in filter(lambda one: one.kind, entries(["aaaddd", "adadad"])):
        above = less(nats_of(rows, entry.layout), nats_of(rows, entry.base)).replace("+-", "±")
        medians = [times[name]["median_ms"] for name in ("latency", "train_step")]
        ratios = [f"{ms[entry.layout] / ms[entry.base]:.2f}" for ms in medians]
        cells.setdefault(entry.kind, []).extend([above, *ratios])
    for kind, row in cells.items():
        assert f"| `{kind}` | {' | '.join(row)} |" in page


def test_the_search_over_all_kinds_is_as_it_was_compared() -> None:
    rows, page = record("all_blocks_comparison.json")["rows"], words_of("docs/blocks.md")
    for row in rows:
        thousands = [
            f"{float(row[name]) / 1000:.0f}k" for name in ("parameters", "flops_per_token")
        ]
        cells = [f"{float(row['nats_per_token']):.4f}", *thousands]
        latency = f"{float(row['relative_latency']):.2f}x"
        start, _, rest = page.partition(f"| `{row['layout']}`, ")
        assert rest.split("|")[1:5] == [f" {cell} " for cell in (*cells, latency)], start[-200:]
    less = [float(rows[0]["nats_per_token"]) - float(row["nats_per_token"]) for row in rows]
    assert f"has {-less[1]:.3f} ± 0.026 nats less than `interleaved` and {-less[-1]:.3f} ±" in page
