"""Which rule a derivation is judged against, and what the report says of the worst."""

import json
from pathlib import Path

from benchmarks.trained_answers import best_rule, main
from tests.refusal import refused
from tests.runs import Capture


def test_the_rule_is_the_best_expected_of_those_trained_in_full() -> None:
    names = ("layout", "length", "rule", "expected_nats")
    rows = [
        dict(zip(names, row, strict=True))
        for row in (
            ("a a d", "half", "attention blocks first: 2", "4.0"),
            ("a d a", "full", "attention blocks spread: 2", "4.3"),
            ("a d d", "full", "attention blocks first: 1", "4.2"),
            ("d a i", "full", "", "4.1"),
        )
    ]
    assert best_rule(rows) == "add"


def test_the_worst_derivation_is_that_whose_rule_was_judged_better_by_most(
    experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    def record(answer: float, rule: float) -> dict[str, object]:
        nats = {"aad": [answer, answer + 1], "add": [rule, rule + 1]}
        return {"elapsed_s": 60.0, "answer": "aad", "rule": "add", "judged_nats": nats}

    path = tmp_path / "answers.json"
    derivations = {"0": record(4.0, 4.1), "1": record(4.1, 4.05)}
    path.write_text(json.dumps({"method": "finals", "derivations": derivations}))
    assert main(["report", "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0: 60 s, answer aad, best rule add, judged -0.1000 nats"
    assert lines[-1] == "worst of 2: +0.0500 nats (not as wanted: 0.02); 60 s"
    said = refused(main, capsys, "train", experiment_file, "--json", path, "--run", tmp_path / "x")
    assert "give another --json" in said
