"""What a phase says before its first step."""

from pathlib import Path

from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.summary import LEAST_TOKENS, text_summary


def test_a_text_of_a_few_tokens_is_warned_of(experiment_file: Path, tmp_path: Path) -> None:
    bench = set_up(load_experiment(experiment_file, []), tmp_path / "run")
    assert "say hardly anything" not in text_summary(bench)
    short = tmp_path / "short.txt"
    short.write_text("abc def\n")
    setting = f"data.files.valid={short}"
    bench = set_up(load_experiment(experiment_file, [setting]), tmp_path / "run")
    assert len(bench.prepared.tokens["valid"]) < LEAST_TOKENS
    found = [line for line in text_summary(bench).splitlines() if "say hardly anything" in line]
    assert len(found) == 1
    assert found[0].startswith("warning: valid has ")
