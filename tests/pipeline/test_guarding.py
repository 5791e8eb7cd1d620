"""What the guard is given of a search: alpha's own steps, at their rates."""

import re
from pathlib import Path

import numpy as np
import pytest

from nas.search.diagnostics import directedness
from pipeline.caveats import guard_lines
from pipeline.cli import find_experiment
from pipeline.context import Workbench, set_up
from pipeline.experiment import load_experiment
from tests.nas.test_derivation import write

LABELS = ["attention", "dense", "identity"]
STEPS = 480


def bench_of(folder: Path, *settings: str) -> Workbench:
    said = [f"search.steps={STEPS}", *settings]
    return set_up(load_experiment(find_experiment(folder), said), folder)


def path_of(folder: Path, seed: int = 0) -> tuple[np.ndarray, Path]:
    """A path of 4 slots that wanders from its first step on, as no search's would."""
    generator = np.random.default_rng(seed)
    alpha_NLC = generator.normal(0.002, 0.05, size=(STEPS, 4, 3)).cumsum(0).astype(np.float32)
    return alpha_NLC, write(folder / "pi.npz", alpha_NLC, LABELS)


@pytest.mark.parametrize("freeze", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_alphas_own_steps_are_weighed_by_their_rates(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    freeze: float, every: int, schedule: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    alpha = {"freeze": freeze, "every": every, "schedule": schedule}
    bench = bench_of(undisturbed, *[f"search.alpha.{key}={value}" for key, value in alpha.items()])
    alpha_NLC, file = path_of(tmp_path)
    first = int(freeze * STEPS)
    due = range(first, STEPS, every)
    parts = [(step - first) / (STEPS - 1 - first) for step in due]
    rates = [1.0 if schedule == "constant" else 0.5 + 0.5 * np.cos(np.pi * x) for x in parts]
    own_NLC = np.concatenate([np.zeros((1, 4, 3)), alpha_NLC[list(due)].astype(np.float64)])
    t = np.median(directedness(own_NLC, rates))
    said = guard_lines(file, bench.schedules(), bench.adds_nothing)[0]
    assert re.findall(r"directed with t = (\S+) in the median slot", said) == [f"{t:.1f}"]


def test_slots_that_settled_at_once_are_counted(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    bench = bench_of(undisturbed, "search.alpha.freeze=0")
    alpha_NLC, _ = path_of(tmp_path)
    alpha_NLC[5:, 0, 1] += 20
    given = (bench.schedules(), bench.adds_nothing)
    said = guard_lines(write(tmp_path / "one.npz", alpha_NLC, LABELS), *given)
    assert "(1 of 4 settled in too few steps to tell)" in said[0]
    alpha_NLC[5:, :, 1] += 20
    alpha_NLC[5:, 0, 1] -= 20
    said = guard_lines(write(tmp_path / "all.npz", alpha_NLC, LABELS), *given)
    assert "too few steps of alpha until it settled to say how directed they were" in said[0]
    assert len(said) == 3
    assert "dense has 100% of pi" in said[1]
    assert "in 4 of 4 slots alpha took too few steps" in said[2]
