"""What runs that differ by their seed draw anew, and seeds that took part in a choice."""

from pathlib import Path

import pytest

import compare
from model import Evidence, load_architecture
from pipeline.baselines import entries_of
from pipeline.experiment import load_experiment
from pipeline.layout_scores import seeded
from tests.nas.derivation.test_derivation import letters
from tests.pipeline.conftest import plan_of
from tests.runs import refused, settings

ALONE = "compare.baselines=[interleaved]"


def test_a_derivation_draws_anew_with_each_seed_of_a_run(experiment_file: Path) -> None:
    asked = [load_experiment(experiment_file, [f"derive.seed={own}"]) for own in (0, 50)]
    runs = [seeded(experiment, seed) for experiment in asked for seed in (0, 1, 2)]
    assert [run.run.seed for run in runs] == [0, 1, 2] * 2
    assert len({letters("random", 12, seed=run.derive.seed) for run in runs}) == 6
    assert runs[0] == asked[0], "the first seed is the experiment as it is"


def trained_in(folder: Path, method: str) -> None:
    """A run whose architecture is one of a method, and where layouts were trained."""
    path = folder / "architecture.json"
    evidence = Evidence(method=f"{method}: best of 9 networks")
    path.write_text(load_architecture(path).model_copy(update={"evidence": evidence}).to_json())
    for place in (
        "trainings/half/a d/seed-1000",
        "trainings/full/a d/seed-1002",
        "trainings/full/d d/seed-1001",
    ):
        (folder / place).mkdir(parents=True, exist_ok=True)


@pytest.mark.parametrize(("method", "seed"), [("trained", 1001), ("predictor", 1000)])
def test_seeds_of_the_trainings_that_chose_are_refused(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str], method: str, seed: int
) -> None:
    trained_in(derived, method)
    asked = settings(f"compare.seeds=[0, {seed}]")
    line = refused(compare, capsys, experiment_file, "--run", derived, *asked)
    assert line == (
        f"compare.seeds 0, {seed}: {seed} is one of the seeds with which layouts were trained in "
        f"{derived} (1000, 1001, 1002), which took part in the choice; give other seeds"
    )


def test_seeds_of_trainings_that_did_not_choose_are_taken(
    experiment_file: Path, derived: Path
) -> None:
    trained_in(derived, "trained")
    assert entries_of(plan_of(experiment_file, derived, "compare.seeds=[0, 1, 1003]", ALONE))
    trained_in(derived, "argmax")
    assert entries_of(plan_of(experiment_file, derived, "compare.seeds=[1001]", ALONE))
