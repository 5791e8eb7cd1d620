"""Which rule a derivation is judged against, and what the report says of the worst."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.trained_answers import ahead_of_rule, best_rule, key_of_derivations, report, train
from tests.test_readme_figures import record, words_of


def test_the_rule_is_the_best_expected_of_those_trained_in_full() -> None:
    names = ("layout", "length", "rule", "expected_nats")
    rows = [
        dict(zip(names, row, strict=True))
        for row in (
            ("a a d", "half", "attention first 2", "4.0"),
            ("a d a", "full", "spread 2", "4.3"),
            ("a d d", "full", "attention first 1", "4.2"),
            ("d a i", "full", "", "4.1"),
        )
    ]
    assert best_rule(rows) == "add"


def test_the_worst_derivation_is_that_whose_rule_was_judged_better_by_most(tmp_path: Path) -> None:
    def record(answer: float, rule: float) -> dict[str, object]:
        nats = {"aad": [answer, answer + 1], "add": [rule, rule + 1]}
        return {"elapsed_s": 60.0, "answer": "aad", "rule": "add", "judged_nats": nats}

    path, lines = tmp_path / "answers.json", list[str]()
    path.write_text(json.dumps({"derivations": {"0": record(4.0, 4.1), "1": record(4.1, 4.05)}}))
    report(argparse.Namespace(json=path), lines.append)
    assert lines[0] == "0: 60 s, answer aad, best rule add, judged -0.1000 nats"
    assert lines[-1] == "worst of 2: +0.0500 nats (not as wanted: 0.02); 60 s"


def test_the_page_of_the_derivations_has_their_answers_and_times() -> None:
    page = words_of("docs/experiments/fresh_derivations.md")
    derivations = record("trained_answers.json")["derivations"]
    for answer in {one["answer"] for one in derivations.values()}:
        numbers = [number for number, one in derivations.items() if one["answer"] == answer]
        one = derivations[numbers[0]]
        nats = ", ".join(f"{value:.4f}" for value in one["judged_nats"][answer])
        less = f"{ahead_of_rule(one):.4f}" if answer != one["rule"] else "0"
        assert f"| {', '.join(numbers)} | {nats} | {less} |" in page
    times_s = [one["elapsed_s"] for one in derivations.values()]
    assert f"{min(times_s):.0f} to {max(times_s):.0f} s" in page
    assert {one["commit"][:7] for one in derivations.values()} == {"737f14e"}


def test_derivations_of_another_method_are_not_gone_on_with(
    experiment_file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "answers.json"
    given = {"experiment": experiment_file, "set": [], "run": tmp_path / "run", "json": path}
    key = key_of_derivations(argparse.Namespace(**given, method="finals"))
    path.write_text(json.dumps({**key, "derivations": {}}))
    with pytest.raises(ValueError, match=r"method is finals, now predictor; .* another --json"):
        train(argparse.Namespace(**given, method="predictor", count=1, workers=1))
