"""What is said and drawn of finished searches."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model import Agreement
from nas.search.trajectory import write_pi_csv
from nas.statistics.agreement import agreement
from pipeline.caveats import log_once
from pipeline.cli import find_experiment
from pipeline.context import Workbench, set_up
from pipeline.experiment import load_experiment
from pipeline.search import _locked, finish_searches, run_searches
from tests.nas.test_derivation import write
from tests.training.test_phase import others_may_have
from training.run_dir import FolderLock, claim


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
        claim(folder, bench.search_identity, {})
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


def written_searches(
    undisturbed: Path, folder: Path, seeds: list[int], *settings: str
) -> Workbench:
    """A bench whose searches are done: their alpha stands where nobody searched."""
    bench = set_up(load_experiment(find_experiment(undisturbed), settings), folder)
    for seed in seeds:
        claim(folder / f"search/seed-{seed}", bench.search_identity, {})
        alpha_NLC = np.random.default_rng(seed).normal(size=(30, 4, 3))
        path = folder / f"search/seed-{seed}/pi.npz"
        write(path, alpha_NLC, ["attention", "dense", "identity"])
    return bench


def test_a_figure_that_cannot_be_drawn_keeps_no_search_from_its_turn(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> list[Path]:
        raise OSError(28, "No space left on device", str(folder / "figures/pi.png"))

    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    monkeypatch.setattr("report.search_figures.write_search_figures", full)
    bench, ran = written_searches(undisturbed, tmp_path, [0, 1, 2]), list[int]()

    def phase_of(bench: Workbench) -> Any:
        seed = bench.experiment.run.seed
        folder = tmp_path / f"search/seed-{seed}"
        return SimpleNamespace(
            folder=folder, open=list, close=list, run=lambda config: ran.append(seed)
        )

    monkeypatch.setattr("pipeline.search.search_phase", phase_of)
    run_searches(bench, [0, 1, 2], [])
    assert ran == [0, 1, 2]
    with pytest.raises(OSError, match="the searches are done, figures or report are not") as error:
        finish_searches(bench, [0, 1, 2])
    assert error.value.filename == str(tmp_path / "search/seed-0/figures/pi.png")
    for seed in ran:
        assert (tmp_path / f"search/seed-{seed}/pi.csv").exists()
        assert "kappa" in (tmp_path / f"search/seed-{seed}/train.log").read_text()


def test_what_is_added_to_a_search_that_is_done_is_added_under_its_lock(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = dict[str, bool]()

    def looks(name: str, write_it: Callable[..., object], folder: Path) -> None:
        def writes(*arguments: Any, **more: Any) -> object:
            free[name] = others_may_have(folder)
            return write_it(*arguments, **more)

        monkeypatch.setattr(f"pipeline.search.{name}", writes)

    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    bench = written_searches(undisturbed, tmp_path, [0], "run.figures=false")
    for name, write_it in (("log_once", log_once), ("write_pi_csv", write_pi_csv)):
        looks(name, write_it, tmp_path / "search/seed-0")
    finish_searches(bench, [0])
    assert free == {"log_once": False, "write_pi_csv": False}
    assert others_may_have(tmp_path / "search/seed-0")


def test_another_process_in_the_folder_of_a_search_that_is_done_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (has, told), (wait, go_on) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        lock = FolderLock(tmp_path)
        os.write(told, b".")
        os.read(wait, 1)
        lock.release()
        os._exit(0)
    assert os.read(has, 1) == b"."
    lines = list[str]()

    def announce(line: str) -> None:
        lines.append(line)
        os.write(go_on, b".")

    monkeypatch.setattr("pipeline.search.announce", announce)
    with _locked(tmp_path):
        assert not others_may_have(tmp_path)
    assert lines == [f"waiting for another process that has {tmp_path}"]
    assert os.waitpid(child, 0)[1] == 0
    for end in (has, told, wait, go_on):
        os.close(end)
