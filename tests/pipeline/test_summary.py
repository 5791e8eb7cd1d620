"""What a phase says before its first step."""

from pathlib import Path

from pipeline.derive import derive as derive_by
from pipeline.retrain import retrain_trainer
from pipeline.summary import LEAST_TOKENS, text_summary
from tests.pipeline.conftest import PlanWith


def test_the_summary_says_what_differs_from_the_usual(plan_with: PlanWith) -> None:
    settings = [
        *("model.tie_slots=2", "model.dropout_dense=0.3", "data.random_offset=true"),
        *("run.micro_batches=2", "retrain.optimiser.kind=sgd", "retrain.optimiser.momentum=0.9"),
        *("retrain.optimiser.clip_norm=null", "retrain.optimiser.clip_value=0.1"),
    ]
    plan = plan_with(*settings)
    architecture = derive_by(plan, method="layout", layout="a d a a")
    summary = retrain_trainer(plan, architecture).summary
    for said in (
        "every epoch begins at another place; in 2 micro-batches",
        "dropout: residual 0.1, embedding 0.1, attention 0, dense 0.3",
        "tied: 2 of 4 candidates of slots share weights with another slot's",
        "weights: sgd, momentum 0.9, ",
        "clip value 0.1",
    ):
        assert said in summary


def test_text_that_stands_in_the_training_text_is_warned_of(
    plan_with: PlanWith, tmp_path: Path
) -> None:
    line = "the very same line of more than sixty characters stands in both of these texts\n"
    (tmp_path / "train.txt").write_text((tmp_path / "train.txt").read_text() + line)
    (tmp_path / "valid.txt").write_text(line * 50)
    summary = text_summary(plan_with())
    assert "warning: 50 of 50 long lines of valid stand in the training text" in summary


def test_a_window_that_outreaches_the_memory_is_warned_of(plan_with: PlanWith) -> None:
    summary = text_summary(plan_with("model.window=40"))
    assert "warning: attention: window 40 needs memory 39, found 8" in summary
    summary = text_summary(plan_with("model.window=9"))
    assert "warning: attention" not in summary


def test_a_text_of_a_few_tokens_is_warned_of(plan_with: PlanWith, tmp_path: Path) -> None:
    assert "say hardly anything" not in text_summary(plan_with())
    short = tmp_path / "short.txt"
    short.write_text("abc def\n")
    plan = plan_with(f"data.files.valid={short}")
    assert len(plan.prepared.tokens["valid"]) < LEAST_TOKENS
    (line,) = (line for line in text_summary(plan).splitlines() if "say hardly anything" in line)
    assert line.startswith("warning: valid has ")
