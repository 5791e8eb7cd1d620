"""What runs that differ by their seed draw anew, and seeds that took part in a choice."""

from pathlib import Path

import pytest

from pipeline.experiment import load_experiment
from pipeline.layoutbench import search_all
from pipeline.seeds import seeded
from tests.nas.derivation.test_derivation import letters
from training.signals import StopRequest


def test_a_derivation_draws_anew_with_each_seed_of_a_run(experiment_file: Path) -> None:
    asked = [load_experiment(experiment_file, [f"derive.seed={own}"]) for own in (0, 50)]
    runs = [seeded(experiment, seed) for experiment in asked for seed in (0, 1, 2)]
    assert [run.run.seed for run in runs] == [0, 1, 2] * 2
    assert len({letters("random", 12, seed=run.derive.seed) for run in runs}) == 6
    assert runs[0] == asked[0], "the first seed is the experiment as it is"


def test_the_searches_of_layoutbench_derive_anew(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = list[tuple[int, int]]()
    monkeypatch.setattr(
        "pipeline.layoutbench.run_all",
        lambda jobs, **how: seeds.extend(
            (job.experiment.run.seed, job.experiment.derive.seed) for job in jobs
        ),
    )
    search_all(load_experiment(experiment_file), tmp_path, [5, 6], workers=1, stop=StopRequest())
    assert seeds == [(5, 5), (6, 6)]
