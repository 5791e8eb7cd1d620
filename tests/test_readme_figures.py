"""The measured figures of README and docs are those of their records, at the digits shown.

Where a record is made again, this test fails and says which figure to write instead.
"""

import csv
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from model import ModelConfig
from nas.tabular.regret import regret_of
from nas.tabular.table import read_table
from report.comparison import read_comparison, text_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
NUMBER = r"(-?[0-9]+\.[0-9]+)"
# Sentences of the pages, each number of them in place of N, and where their numbers come from.
RANK = (
    "Kendall's tau is N [N, N] against N at equal FLOPs, and N [N, N] against N over free layouts"
)
SEARCHES = (
    "its layouts lie N nats above the best, and those of random search at its cost N: no "
    "difference is shown. A search with `soft` for weights and alpha lies N above the best (five "
    "other seeds). Of the rules, which cost one training, `interleaved` lies N above the best"
)
IN_SHORT = (
    "the default search's layouts lie N nats above the best, and those of random search at its "
    "cost N"
)
# The default of today with seeds that took no part in its choice, and the default of before.
FRESH = ("spos_soft_f50_confirm", "default_30", "default_36")
BEFORE = "default"


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def ranked() -> dict[str, float]:
    """Kendall's tau of the SuperNet with its interval, and of counting parameters."""
    figures = {}
    for group in ("equal", "free"):
        content = record("quickstart_rank.json")["groups"][group]
        for key in ("tau", "low", "high"):
            figures[f"{group}: supernet.{key}"] = content["supernet"][key]
        figures[f"{group}: trivial.parameters.tau"] = content["trivial"]["parameters"]["tau"]
    return figures


def searched() -> dict[str, float]:
    """Mean regrets on LayoutBench, in nats."""
    searches = {each["name"]: each for each in record("layoutsearches.json")["searches"]}
    fresh = [regret for name in FRESH for regret in searches[name]["regrets"]["each"]]
    assert len(fresh) == len({seed for name in FRESH for seed in searches[name]["seeds"]}) == 20
    assert len(searches[BEFORE]["seeds"]) == 5
    table = read_table(RESULTS / "layoutbench.csv")
    return {
        "regret of the default": statistics.fmean(fresh),
        "regret of random search": searches[FRESH[0]]["random_regret"],
        "regret of soft": searches[BEFORE]["regrets"]["mean"],
        "regret of interleaved": regret_of(table, ["adadad"]).mean,
    }


def in_short() -> dict[str, float]:
    return dict(list(searched().items())[:2])


def wrong(readme: str, sentence: str, figures: Mapping[str, float]) -> list[str]:
    """What a page says otherwise than the record, a line each."""
    words = (re.sub(r"\bN\b", lambda _: NUMBER, re.escape(word)) for word in sentence.split())
    pattern = r"\s+".join(words)
    said = re.findall(pattern, readme)
    if len(said) != 1:
        return [f"the page has {len(said)} sentences like {sentence!r}, expected 1"]
    return [
        f"the page says {text}, the record says {value:.{len(text.partition('.')[2])}f} "
        f"({value:.6f}, {name})"
        for text, (name, value) in zip(said[0], figures.items(), strict=True)
        if text != f"{value:.{len(text.partition('.')[2])}f}"
    ]


@pytest.mark.parametrize(
    ("page", "sentence", "figures"),
    [
        ("README.md", RANK, ranked),
        ("docs/evaluation.md", RANK, ranked),
        ("README.md", IN_SHORT, in_short),
        ("docs/evaluation.md", SEARCHES, searched),
    ],
)
def test_a_page_says_what_the_records_say(page: str, sentence: str, figures: Any) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert wrong(text, sentence, figures()) == []


def test_the_table_of_the_demo_is_its_record(tmp_path: Path) -> None:
    """As compare.py prints it, up to the verdict."""
    rows = record("demo.json")["rows"]
    with (tmp_path / "comparison.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "comparison.json").write_text(json.dumps(record("demo.json")), encoding="utf-8")
    printed = text_table(read_comparison(tmp_path)).partition("\nforward latency")[0]
    assert f"```\n{printed}\n```" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_tells_the_demo_in_its_figures() -> None:
    rows = {row["role"] + row["name"]: row for row in record("demo.json")["rows"]}
    searched_row = rows["searchedargmax-0"]

    def ratio(name: str, key: str) -> int:
        return round(100 * (rows[name][key] / searched_row[key] - 1))

    interleaved = rows["opponentinterleaved"]
    saved = 1 - searched_row["flops_per_token"] / interleaved["flops_per_token"]
    more = searched_row["perplexity"] / interleaved["perplexity"] - 1
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"saves {100 * saved:.0f}% of the FLOPs for {100 * more:.0f}% more perplexity" in readme
    dearer = ratio("opponentsandwich-2", "flops_per_token")
    assert f"is the best of the five and costs {dearer}% more FLOPs" in readme
    assert min(rows.values(), key=lambda row: row["nats_per_token"])["name"] == "sandwich-2"
    worse = ratio("opponentrandom-0", "perplexity")
    assert f"of nearly the same cost has {worse}% more perplexity" in readme


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
    scale = " ".join((ROOT / "docs/scale.md").read_text(encoding="utf-8").split())
    default = ModelConfig.model_fields["dropout"].default
    assert default > 0
    assert f"(`model.dropout` is {default} by default)" in scale


def test_another_figure_is_named_with_the_records() -> None:
    sentence, figures = "tau is N [N, N]", {"tau": 0.3574, "low": -0.0223, "high": 0.6819}
    assert wrong("its tau is\n  0.36 [-0.02, 0.7] there", sentence, figures) == []
    assert wrong("its tau is 0.39 [-0.02, 0.68]", sentence, figures) == [
        "the page says 0.39, the record says 0.36 (0.357400, tau)"
    ]
    assert wrong("nothing", sentence, figures) == [
        "the page has 0 sentences like 'tau is N [N, N]', expected 1"
    ]
