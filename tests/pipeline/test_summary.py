"""What a phase says before its first step."""

from pathlib import Path

import pytest

from pipeline.summary import text_summary
from tests.pipeline.conftest import PlanWith


def test_text_that_stands_in_the_training_text_is_warned_of(
    plan_with: PlanWith, tmp_path: Path
) -> None:
    line = "the very same line of more than sixty characters stands in both of these texts\n"
    (tmp_path / "train.txt").write_text((tmp_path / "train.txt").read_text() + line)
    (tmp_path / "valid.txt").write_text(line * 50)
    summary = text_summary(plan_with())
    assert "warning: 50 of 50 long lines of valid also occur in the training text" in summary


def test_held_out_texts_of_few_tokens_are_warned_of_with_their_error(
    plan_with: PlanWith, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("abc def\n" * 100)
    plan = plan_with(f"data.files.valid={short}", "data.tokenizer={kind: bytes}")
    count = len(plan.prepared.tokens["valid"])
    lines = [line for line in text_summary(plan).splitlines() if "standard error" in line]
    assert [line.split(" has ")[0] for line in lines] == ["warning: valid", "warning: test"]
    assert lines[0].startswith(f"warning: valid has {count:,} tokens: the standard error of its ")
    assert f" about {3 / count**0.5:.2f} nats/token, and" in lines[0]
    monkeypatch.setattr("pipeline.summary.LEAST_TOKENS", count)
    assert "standard error" not in text_summary(plan)


def test_a_step_that_reads_the_whole_text_is_said_with_what_it_reads(plan_with: PlanWith) -> None:
    plan = plan_with("data.batch=16", "data.segment=5000", "data.evaluation_segment=8")
    train = len(plan.prepared.tokens["train"])
    summary = text_summary(plan)
    assert f"each step: 16 streams of {(train - 1) // 16} tokens;" in summary
    (batch, _) = (plan.training_batches().batch(index) for index in (0, 1))
    assert batch.input_BT.shape == (16, (train - 1) // 16)
