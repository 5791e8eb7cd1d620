"""README is true: its measured figures are those of their records, at the digits shown.

Where a record is made again, this test fails and says which figure to write instead.
"""

import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from model import ModelConfig
from nas.tabular.regret import regret_of
from nas.tabular.table import read_table
from pipeline.experiment import load_experiment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"
NUMBER = r"(-?[0-9]+\.[0-9]+)"
# Sentences of README, each number of them in place of N, and where their numbers come from.
RANK = (
    "Kendall's tau is N [N, N] against N at equal FLOPs, and N [N, N] against N over free layouts"
)
SEARCHES = (
    "its layouts lie N nats above the best, and those of random search at its cost N: no "
    "difference is shown. A search with `soft` for weights and alpha lies N above the best (five "
    "other seeds). Of the rules, which cost one training, `interleaved` lies N above the best"
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


def wrong(readme: str, sentence: str, figures: Mapping[str, float]) -> list[str]:
    """What README says otherwise than the record, a line each."""
    words = (re.sub(r"\bN\b", lambda _: NUMBER, re.escape(word)) for word in sentence.split())
    pattern = r"\s+".join(words)
    said = re.findall(pattern, readme)
    if len(said) != 1:
        return [f"README has {len(said)} sentences like {sentence!r}, expected 1"]
    return [
        f"README says {text}, the record says {value:.{len(text.partition('.')[2])}f} "
        f"({value:.6f}, {name})"
        for text, (name, value) in zip(said[0], figures.items(), strict=True)
        if text != f"{value:.{len(text.partition('.')[2])}f}"
    ]


@pytest.mark.parametrize(
    ("sentence", "figures"), [(RANK, ranked), (SEARCHES, searched)], ids=["rank", "layoutbench"]
)
def test_readme_says_what_the_records_say(sentence: str, figures: Any) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert wrong(readme, sentence, figures()) == []


def test_the_sandwich_is_the_best_of_the_table() -> None:
    """README: "`sandwich` is the best"; k = 2, which 6 slots have by default."""
    assert regret_of(read_table(RESULTS / "layoutbench.csv"), ["aaaddd"]).mean == 0.0


def test_whether_the_supernet_beats_counting_is_as_readme_says() -> None:
    """The verdict's words, and with them README's, would change with these intervals."""
    for group in record("quickstart_rank.json")["groups"].values():
        assert group["difference"]["low"] <= 0, "README: is not shown to beat parameter counting"


def test_what_several_processes_give_depends_on_dropout() -> None:
    """The laws for several processes hold without dropout alone, which is not the default."""
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/scale.md")]
    readme, scale = (" ".join(page.split()) for page in pages)
    default = ModelConfig.model_fields["dropout"].default
    assert default > 0
    assert f"with dropout, whose default is {default}, it is another sample" in readme
    assert f"(`model.dropout` is {default} by default)" in scale
    quickstart = load_experiment(ROOT / "configs/quickstart.yaml", [])
    assert set(asdict(quickstart.model.dropouts()).values()) == {0.0}, (
        "README: as in the quickstart"
    )


def test_another_figure_is_named_with_the_records() -> None:
    sentence, figures = "tau is N [N, N]", {"tau": 0.3574, "low": -0.0223, "high": 0.6819}
    assert wrong("its tau is\n  0.36 [-0.02, 0.7] there", sentence, figures) == []
    assert wrong("its tau is 0.39 [-0.02, 0.68]", sentence, figures) == [
        "README says 0.39, the record says 0.36 (0.357400, tau)"
    ]
    assert wrong("nothing", sentence, figures) == [
        "README has 0 sentences like 'tau is N [N, N]', expected 1"
    ]
