"""Whether a run fits the memory of its device: sizes, forecasts, what a container allows."""

import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

import retrain
import search
from nas.search.estimators import ESTIMATORS
from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.memory import _draws, memory_bytes, memory_notes, memory_shortage, search_memory
from pipeline.search import search_trainer
from tests.refusal import refused
from training.distributed import Ranks
from training.memory import Forecast
from training.step import Forward

GB = 10**9
LARGE = Forecast(GB, GB, 2 * GB, 0, 26 * GB, GB)


@pytest.mark.parametrize(
    ("estimator", "computed"), [("single_path", 1), ("spos", 1), ("two_path", 2)]
)
def test_every_choice_of_what_is_computed_is_drawn_in_all_slots(
    estimator: str, computed: int
) -> None:
    alpha_LC, found = torch.zeros(2, 3), []
    for noise_LC in _draws(2, computed, 3):
        mix = ESTIMATORS[estimator](alpha_LC, noise_LC, 1.0)
        drawn = {tuple(k for k, _ in terms) for terms in mix}
        assert len(drawn) == 1
        found += drawn
    assert sorted(found) == sorted(permutations(range(3), computed))
    assert len(list(_draws(2, 0, 3))) == 1, "where all are computed one draw is enough"


@pytest.mark.parametrize("estimator", ["single_path", "spos", "two_path"])
@pytest.mark.forecast
def test_the_greediest_candidate_counts_wherever_it_stands(
    experiment_file: Path, tmp_path: Path, estimator: str
) -> None:
    found = []
    for kinds in ("attention, dense, identity", "identity, dense, attention"):
        settings = [f"search.estimator={estimator}", f"model.candidates=[{kinds}]"]
        trainer = search_trainer(set_up(load_experiment(experiment_file, settings), tmp_path))
        step: Any = trainer.step
        found.append(search_memory(step, trainer.state, trainer.batches.batch(0)).activations)
    assert found[0] == pytest.approx(found[1], rel=0.02)


@pytest.mark.parametrize(
    ("options", "available", "claimed", "words"),
    [
        ({"micro_batches": 2}, 25, False, "cpu has 25,000 MB: set run.recompute=true, "
         "raise run.micro_batches (now 2), or lower data.batch"),
        ({"recompute": True, "ranks": Ranks(local_world=2)}, 12, False,
         "cpu has 12,000 MB for each process: raise run.micro_batches (now 1), "
         "or lower data.batch"),
        # A folder that is claimed would refuse another batch.
        ({}, 25, True, "cpu has 25,000 MB: set run.recompute=true, or raise run.micro_batches "
         "(now 1)"),
        ({"recompute": True}, 25, True, "cpu has 25,000 MB: raise run.micro_batches (now 1)"),
    ],
)  # fmt: skip
def test_a_shortage_says_what_is_needed_what_there_is_and_the_remedies(
    options: dict[str, Any], available: int, claimed: bool, words: str
) -> None:
    forward = Forward(torch.device("cpu"), "float32", **options)
    assert memory_shortage(LARGE, forward, LARGE.total, claimed=claimed) is None
    line = memory_shortage(LARGE, forward, available * GB, claimed=claimed)
    assert line == f"about 31,000 MB of memory are needed, and {words}"


def test_processes_of_one_machine_share_its_memory_and_those_with_gpus_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two(Ranks):
        def first_message(self, text: str | None) -> str | None:
            return text

    monkeypatch.setattr("pipeline.memory.memory_bytes", lambda device: 40 * GB)
    for kind, refuses in (("cpu", True), ("cuda", False)):
        ranks = Two(world=2, local_world=2)
        forward = Forward(torch.device(kind), "float32", ranks=ranks)
        notes = memory_notes(LARGE, (), forward, tmp_path, ignore=False)
        assert (notes.refusal is not None) == refuses


def test_what_may_grow_is_said_and_is_no_reason_to_refuse(tmp_path: Path) -> None:
    forward = Forward(torch.device("cpu"), "float32")
    small = Forecast(*[10**6] * 6)
    notes = memory_notes(small, ["adaptive_span", "far"], forward, tmp_path, ignore=False)
    words = "adaptive_span, far may learn to see more than at first"
    assert notes.lines[1:] == [f"memory may grow beyond that: {words}"]
    assert notes.refusal is None
    assert len(memory_notes(small, (), forward, tmp_path, ignore=False).lines) == 1


@pytest.fixture
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.memory.memory_bytes", lambda device: 100_000)


SAID = "MB of memory are needed, and cpu has 0.1 MB: set run.recompute=true, raise "


@pytest.mark.forecast
@pytest.mark.usefixtures("_small_machine")
@pytest.mark.parametrize("script", [search, retrain])
def test_what_does_not_fit_is_refused_before_the_folder_is_claimed(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: Any
) -> None:
    layout = ["--layout", "a d a d"] if script is retrain else []
    said = refused(script.main, capsys, experiment_file, "--run", tmp_path / "run", *layout)
    lines = [line for line in said.splitlines() if not line.startswith("files: ")]
    assert len(lines) == 1
    assert SAID in lines[0]
    assert ", or lower data.batch; " in lines[0]
    assert lines[0].endswith("; --set run.ignore_memory_forecast=true trains all the same")
    assert not list((tmp_path / "run").rglob("seed-0"))


@pytest.mark.forecast
@pytest.mark.usefixtures("_small_machine")
def test_a_phase_that_is_done_opens_on_a_small_machine_and_a_resume_is_refused(
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed, tmp_path / "run")
    arguments = [str(tmp_path / "run"), "--layout", "a d a d"]
    assert retrain.main(arguments) == 0
    folder = tmp_path / "run/retrain/layout-adad/seed-0"
    (folder / "last.safetensors").unlink()  # the one before has steps left
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    line = refused(retrain.main, capsys, *arguments)
    assert SAID.replace("true, raise", "true, or raise") in line
    assert "data.batch" not in line
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert retrain.main([*arguments, "--set", "run.ignore_memory_forecast=true"]) == 0
    said = capsys.readouterr().out
    assert "goes on from step 21 of 25" in said


MACHINE = 64 * 2**30
NO_LIMIT_V1 = "9223372036854771712"


@pytest.fixture
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MACHINE // 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)


def limited(root: Path, groups: str, **limits: str | int) -> int:
    """The memory where the process is in those groups, and those files stand below the mount."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, limit in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    return memory_bytes(torch.device("cpu"), root)


@pytest.mark.usefixtures("_machine")
@pytest.mark.parametrize(
    ("groups", "limits", "wanted"),
    [
        ("0::/\n", {"memory.max": 2**30}, 2**30),
        ("0::/\n", {"memory.max": "max"}, MACHINE),
        ("0::/a/b\n", {"a/b/memory.max": 3 * 2**30, "a/memory.max": 2**30}, 2**30),
        ("0::/a/b\n", {"a/b/memory.max": 2**30, "a/memory.max": "max"}, 2**30),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": 2**30}, 2**30),
        ("0::/a\n", {"a/memory.max": 2 * MACHINE}, MACHINE),
        # Of the others of the machine.
        ("0::/a\n", {"b/memory.max": 2**30}, MACHINE),
        # The host's name of the group, which the container sees as the mount.
        ("0::/docker/4f\n", {"memory.max": 2**30}, 2**30),
        ("0::/../4f\n", {"memory.max": 2**30}, 2**30),
        ("4:memory:/a:b\n", {"memory/a:b/memory.limit_in_bytes": 2**30}, 2**30),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": NO_LIMIT_V1}, MACHINE),
        ("4:cpu,memory:/a/b\n0::/\n", {"memory/a/memory.limit_in_bytes": 2**30}, 2**30),
        ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": 2**30}, MACHINE),
    ],
)
def test_memory_is_the_least_that_the_machine_or_a_group_allows(
    tmp_path: Path, groups: str, limits: dict[str, str | int], wanted: int
) -> None:
    assert limited(tmp_path, groups, **limits) == wanted


@pytest.mark.usefixtures("_machine")
def test_a_system_without_groups_has_what_the_machine_has(tmp_path: Path) -> None:
    assert memory_bytes(torch.device("cpu"), tmp_path) == MACHINE
