"""The ratio of two latencies among others: which pass counts as what, and its layouts."""

import json
import re
import statistics

from benchmarks import timing_company
from benchmarks.timing_company import COMPANIES, EXPERIMENT, ONE, OTHER, line, ratios_of
from model import parse_layout
from pipeline.experiment import load_experiment
from tests.runs import ROOT


def test_the_first_pass_of_a_turn_is_behind_another_model_and_the_second_behind_its_own() -> None:
    calls, now_s = list[str](), 0.0
    lasts_s = {ONE: [4.0, 2.0], OTHER: [6.0, 5.0], "a": [1.0, 1.0]}

    def run(name: str) -> None:
        nonlocal now_s
        now_s += lasts_s[name][calls.count(name) % 2]
        calls.append(name)

    passes = {name: (lambda name=name: run(name)) for name in lasts_s}
    ratios = ratios_of(passes, 3, clock=lambda: now_s)
    assert calls == [name for name in lasts_s for _ in range(2)] * 3
    assert ratios == {"another model": 1.5, "itself": 2.5}


def test_its_layouts_are_of_the_experiment() -> None:
    model = load_experiment(ROOT / EXPERIMENT, []).model
    for letters in (ONE, OTHER, *COMPANIES["many kinds"], *COMPANIES["attention and dense"]):
        assert len(parse_layout(letters, model.completed_candidates())) == model.slots


def test_the_documentation_says_what_was_measured() -> None:
    record = json.loads((ROOT / "benchmarks/results/timing_company.json").read_text())["ratios"]
    page = re.sub(r"\s+", " ", (ROOT / "docs/benchmarks.md").read_text())
    for behind in timing_company.BEHIND:
        ratios = {company: record[company][behind] for company in COMPANIES}
        one, other = (statistics.median(ratios[company]) for company in COMPANIES)
        apart = line(behind, ratios).rpartition("apart by ")[2]
        assert f"| {behind} | {one:.3f} | {other:.3f} | {apart} |" in page
