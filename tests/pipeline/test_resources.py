"""Whether a run fits the machine: memory, its forecast, threads and free cores."""

import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

import retrain
import search
from nas.search.estimators import ESTIMATORS
from pipeline import jobs
from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.jobs import Job, run_all
from pipeline.resources import (
    _draws,
    busy_lines,
    memory_bytes,
    memory_notes,
    memory_shortage,
    search_memory,
    too_many_threads,
)
from pipeline.search import search_trainer
from pipeline.sweep.trial import Failed
from tests.refusal import refused
from training.distributed import Ranks
from training.endings import Diverged
from training.memory import Forecast
from training.signals import StopRequest
from training.step import Forward
from utils.cores import CpuReading

START = CpuReading(all_s=100.0, own_s=10.0, at_s=50.0)
ALONE_ON_CPU = Forward(torch.device("cpu"), "float32")


def later(others: float, own: float = 1.0, after_s: float = 2.0) -> CpuReading:
    """The counters after some seconds, with so many cores used meanwhile."""
    return CpuReading(
        all_s=START.all_s + after_s * (others + own),
        own_s=START.own_s + after_s * own,
        at_s=START.at_s + after_s,
    )


@pytest.mark.parametrize(
    ("threads", "workers", "cores", "remedy"),
    [
        (2, 2, 2, "give --workers 1, or --set run.threads=1"),
        (4, 3, 8, "give --workers 2, or --set run.threads=2"),
        (1, 5, 2, "give --workers 2"),
        (4, 1, 2, "give --workers 1, or --set run.threads=2"),
        (1, 2, 2, None),
        (2, 2, 4, None),
    ],
)
def test_runs_that_would_share_cores_are_warned_of(
    threads: int, workers: int, cores: int, remedy: str | None
) -> None:
    line = too_many_threads(threads, workers, cores)
    assert (line is None) == (remedy is None)
    if line is not None:
        assert line.startswith(f"warning: {workers} x {threads} threads for {cores} cores")
        assert line.endswith(str(remedy))


@pytest.mark.parametrize(
    ("others", "threads", "cores", "remedy"),
    [
        (1.9, 2, 2, "run.threads=1"),
        (0.5, 2, 2, "run.threads=1"),
        (5.0, 4, 8, "run.threads=3"),
        (0.0, 4, 2, "run.threads=2"),
        (0.2, 2, 2, None),
        (4.0, 4, 8, None),
        (1.9, 1, 2, None),
    ],
)
def test_a_training_with_more_threads_than_free_cores_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, others: float, threads: int, cores: int, remedy: str | None
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    monkeypatch.setattr("pipeline.resources.usable_cores", lambda: cores)
    lines = busy_lines(ALONE_ON_CPU, START, lambda: later(others))
    assert len(lines) == (remedy is not None)
    for line in lines:
        assert line.startswith(f"warning: {threads} threads for {cores - others:.1f} free cores")
        assert line.endswith(str(remedy))


def test_a_phase_warns_of_its_own_threads_on_a_cpu_where_the_load_is_known(
    experiment_file: Path, tmp_path: Path
) -> None:
    set_up(load_experiment(experiment_file, ["run.threads=2"]), tmp_path / "run")
    assert torch.get_num_threads() == 2
    busy = later(1e6)
    (line,) = busy_lines(ALONE_ON_CPU, START, lambda: busy)
    assert line.startswith("warning: 2 threads for 0.0 free cores")
    assert busy_lines(ALONE_ON_CPU, START, lambda: None) == []
    assert busy_lines(ALONE_ON_CPU, None, lambda: busy) == []
    assert busy_lines(ALONE_ON_CPU, START, lambda: later(1e6, after_s=0.05)) == []
    on_gpu = replace(ALONE_ON_CPU, device=torch.device("cuda"))
    assert busy_lines(on_gpu, START, lambda: busy) == []
    # The other processes of one training are no strangers.
    assert busy_lines(replace(ALONE_ON_CPU, ranks=Ranks(world=2)), START, lambda: busy) == []


def test_cores_that_the_process_may_not_use_are_not_free_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 9}, raising=False)
    (line,) = busy_lines(ALONE_ON_CPU, START, lambda: later(1.0))
    assert line.startswith("warning: 2 threads for 1.0 free cores (other processes use 1.0 of 2)")


def test_several_runs_with_asked_threads_are_warned_of_once(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(jobs, "usable_cores", lambda: 2)
    monkeypatch.setattr(jobs, "run_scripts", lambda *arguments: None)

    def said(workers: int, **settings: Any) -> str:
        overrides = [f"{key}={value}" for key, value in settings.items()]
        experiment = load_experiment(experiment_file, overrides)
        jobs = [Job(name, experiment, ("derive",), tmp_path / name) for name in "abc"]
        run_all(jobs, workers=workers, stop=StopRequest(), done=lambda job: None)
        return capsys.readouterr().out

    assert said(2, **{"run.threads": 1}) == ""
    assert said(2, **{"run.threads": "null"}) == ""
    warning = said(2, **{"run.threads": 2})
    assert warning.startswith("warning: 2 x 2 threads for 2 cores")
    assert warning.count("\n") == 1
    # There are three jobs, however many may run at a time.
    assert said(9, **{"run.threads": 1}).startswith("warning: 3 x 1 threads")


@pytest.mark.parametrize(("code", "ending"), [(3, Diverged), (2, ValueError), (None, ValueError)])
def test_a_run_that_diverged_ends_all_as_divergence_does(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int | None,
    ending: type[Exception],
) -> None:
    def failing(*arguments: Any) -> None:
        raise Failed("no number", code)

    monkeypatch.setattr(jobs, "run_scripts", failing)
    one = Job("one", load_experiment(experiment_file, []), ("retrain",), tmp_path / "one")
    with pytest.raises(ending, match=r"^one: no number$"):
        run_all([one], workers=1, stop=StopRequest(), done=lambda job: None)


@pytest.mark.parametrize("own", [(), ("--run", "elsewhere")])
def test_a_job_with_its_own_arguments_gets_its_share_of_the_cores_and_no_setting(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]
) -> None:
    """Without threads in the experiment, which later commands would take from its folder."""
    monkeypatch.setattr(jobs, "usable_cores", lambda: 6)
    given = list[Any]()
    monkeypatch.setattr(jobs, "run_scripts", lambda *arguments: given.append(arguments))
    experiment = load_experiment(experiment_file, ["run.threads=null"])
    todo = [Job("one", experiment, ("retrain",), tmp_path / "one", own)]
    run_all(todo, workers=2, stop=StopRequest(), done=lambda job: None)
    ((used, _, _, _, watcher, arguments),) = given
    assert arguments == own
    assert used.run.threads == (None if own else 3)
    assert (used == experiment) == bool(own)
    assert watcher.environment == ({"OMP_NUM_THREADS": "3"} if own else {})


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

    monkeypatch.setattr("pipeline.resources.memory_bytes", lambda device: 40 * GB)
    for kind, refuses in (("cpu", True), ("cuda", False)):
        ranks = Two(world=2, local_world=2)
        forward = Forward(torch.device(kind), "float32", ranks=ranks)
        notes = memory_notes(LARGE, forward, tmp_path, ignore=False)
        assert (notes.refusal is not None) == refuses


@pytest.fixture
def _small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.resources.memory_bytes", lambda device: 100_000)


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
    return memory_bytes(ALONE_ON_CPU.device, root)


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
    assert memory_bytes(ALONE_ON_CPU.device, tmp_path) == MACHINE
