"""What is said of several finished searches."""

from pathlib import Path

import numpy as np
import pytest

from assembly.searches import finish_searches
from assembly.searching import search_identity
from assembly.workbench import set_up
from cli import find_experiment
from experiment import load_experiment
from model import Agreement
from nas.agreement import agreement
from tests.nas.test_derivation import write
from training.run_dir import claim


def test_agreement_is_of_the_alpha_that_derive_takes_and_not_of_the_last_step(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    settings = ["derive.average=0.5", "run.figures=false"]
    bench = set_up(load_experiment(find_experiment(undisturbed), settings), tmp_path)
    means = np.random.default_rng(0).normal(size=(2, 4, 3))
    for seed, mean_LC in enumerate(means):
        alpha_NLC = np.stack([mean_LC] * 30)
        alpha_NLC[-1] = np.eye(3)[[0, 1, 2, 0]]
        folder = tmp_path / f"search/seed-{seed}"
        claim(folder, search_identity(bench), {})
        write(folder / "pi.npz", alpha_NLC, ["attention", "dense", "identity"])
    finish_searches(bench, [0, 1])
    said = capsys.readouterr().out
    wanted: Agreement = agreement([0, 1], means.argmax(2))
    assert 0 < sum(wanted.slots) < 4
    slots = "  ".join(f"{slot}: {alike:.2f}" for slot, alike in enumerate(wanted.slots))
    assert (
        "by the mean alpha of the last 15 of 30 steps of 2 searches, pairs of searches that "
        in said
    )
    assert f"chose alike, by slot: {slots}\n" in said
