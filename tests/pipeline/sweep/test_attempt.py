"""An attempt at a trial: what it tells Optuna, however its runs end."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from hpo.heartbeat import now_s, own_lease
from hpo.queue import LEASE, REASON, Queue
from pipeline.experiment import Experiment, load_experiment
from pipeline.processes.run_scripts import Failed, Limits
from pipeline.sweep.attempt import Attempt, AttemptResult, ResourceSlice
from pipeline.sweep.plan import Sweep, sweep_of
from pipeline.sweep.trial import SeedOutcome
from tests.sweeping import Clock, add_sweep, memory_queue

Run = Callable[..., SeedOutcome]


def outcome(value: float, **more: Any) -> SeedOutcome:
    """What a run came to, as if it had run."""
    facts = {"layout": "a d", "parameters": 7, "flops_per_token": 5.0, "went_on_from": []}
    objectives = {"retrained": value, "onehot": value + 1, "flops": 5.0, "parameters": 7.0}
    return SeedOutcome(objectives, {**facts, **more}, "{}")


def sweep_with(file: Path, folder: Path, more: str = "") -> Sweep:
    return sweep_of(load_experiment(add_sweep(file, trials=9, more=more)), folder)


def claimed_attempt(
    sweep: Sweep, queue: Queue, share: ResourceSlice, clock: Callable[[], float] = now_s
) -> Attempt:
    """The first trial that waits, claimed."""
    lease = own_lease()
    trial = queue.claim(lease)
    assert trial is not None
    values = sweep.space.suggest(trial)
    return Attempt(
        trial,
        values,
        sweep,
        queue,
        share,
        lease,
        is_ending=lambda: False,
        wait=lambda: pytest.fail("nothing to wait for"),
        clock=clock,
    )


def attempt_of(
    sweep: Sweep, run: Run, monkeypatch: pytest.MonkeyPatch, trials: int = 1
) -> list[tuple[Attempt, AttemptResult]]:
    """Attempt so many trials, each run by a function."""
    queue = memory_queue(sweep, [{}] * trials)
    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    done = []
    for _ in range(trials):
        attempt = claimed_attempt(sweep, queue, ResourceSlice(1, 2))
        result = attempt.run()
        queue.finish(attempt.trial.number, result.state, result.values)
        done.append((attempt, result))
    return done


def test_the_values_are_means_over_seeds_in_the_order_of_the_objectives(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(
        experiment_file, tmp_path, "  seeds: [3, 4]\n  objectives: [flops, retrained]\n"
    )
    seen = []

    def run(experiment: Experiment, objectives: Any, folder: Path, *rest: Any) -> SeedOutcome:
        seen.append((experiment.run.seed, folder.relative_to(tmp_path).as_posix()))
        assert objectives == ("flops", "retrained")
        assert experiment.sweep is None
        assert not experiment.run.figures
        return outcome(float(experiment.run.seed), layout=f"l{experiment.run.seed}")

    ((_, ended),) = attempt_of(sweep, run, monkeypatch)
    assert seen == [(3, "trials/0000/seed-3"), (4, "trials/0000/seed-4")]
    assert (ended.state, ended.values) == (TrialState.COMPLETE, [5.0, 3.5])
    runs = ended.attributes["runs"]
    assert {seed: one["values"] for seed, one in runs.items()} == {"3": [5.0, 3.0], "4": [5.0, 4.0]}
    assert {seed: one["layout"] for seed, one in runs.items()} == {"3": "l3", "4": "l4"}


def test_every_seed_of_a_trial_is_a_derivation_of_its_own(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  seeds: [3, 4]\n  set: {derive.method: sampled, derive.seed: 10}\n"
    sweep, seen = sweep_with(experiment_file, tmp_path, more), []

    def run(experiment: Experiment, *rest: Any) -> SeedOutcome:
        seen.append((experiment.run.seed, experiment.derive.seed))
        return outcome(1.0)

    attempt_of(sweep, run, monkeypatch)
    assert seen == [(3, 13), (4, 14)]


def test_a_trial_has_its_values_and_the_settings_of_trials_but_no_inactive_key(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path, "  set: {retrain.steps: 9, run.threads: 3}\n")
    experiments = []

    def run(experiment: Experiment, *rest: Any) -> SeedOutcome:
        experiments.append(experiment)
        return outcome(1.0)

    attempts = attempt_of(sweep, run, monkeypatch, trials=8)
    for experiment, (attempt, ended) in zip(experiments, attempts, strict=True):
        params = attempt.trial.params
        tau = experiment.search.tau
        assert (tau.schedule, tau.start) == (
            params["search.tau.schedule"],
            params["search.tau.start"],
        )
        assert tau.stairs == params.get("search.tau.stairs")
        assert experiment.model.slots == params["model.slots"]
        assert experiment.retrain.steps == 9
        assert experiment.run.threads == ended.attributes["threads"] == 3
        same = {"data", "compare"}
        assert experiment.model_dump(include=same) == sweep.experiment.model_dump(include=same)
        no_gap = sweep.experiment.derive.model_copy(update={"gap": False})
        assert experiment.derive == no_gap
    assert {experiment.search.tau.schedule for experiment in experiments} == {"linear", "step"}


def test_a_failure_keeps_its_reason_and_what_was_found_before(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path, "  seeds: [0, 1]\n")

    def run(experiment: Experiment, *rest: Any) -> SeedOutcome:
        if experiment.run.seed:
            raise Failed("exit code 3: the loss is no number")
        return outcome(1.0)

    ((_, ended),) = attempt_of(sweep, run, monkeypatch)
    assert (ended.state, ended.values) == (TrialState.FAIL, None)
    assert ended.attributes[REASON] == "exit code 3: the loss is no number"
    assert ended.attributes["runs"]["0"]["values"] == [1.0]


def test_the_search_s_own_validation_prunes(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  pruner: {kind: median, startup: 2, warmup: 0}\n"
    sweep = sweep_with(experiment_file, tmp_path, more)
    number = iter(range(9))

    def run(
        experiment: Experiment, objectives: Any, folder: Path, limits: Any, watcher: Any
    ) -> SeedOutcome:
        bits = 1.0 + next(number)
        curve: dict[int, float] = {}
        for step in (10, 20, 30):
            curve[step] = bits
            watcher.report(curve)
            watcher.report(curve)
        return outcome(bits)

    ended = [ended for _, ended in attempt_of(sweep, run, monkeypatch, trials=4)]
    assert [each.state.name for each in ended] == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]
    assert ended[2].attributes[REASON] == "at search step 10, at 3.0000 bits per byte"
    assert ended[2].values is None


def test_without_a_pruner_nothing_is_reported(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path, "  objectives: [onehot, flops]\n")

    def run(
        experiment: Experiment, objectives: Any, folder: Path, limits: Any, watcher: Any
    ) -> SeedOutcome:
        watcher.search_wrote(tmp_path)  # a folder, which nobody can read
        return outcome(1.0)

    ((_, ended),) = attempt_of(sweep, run, monkeypatch)
    assert ended.values == [2.0, 5.0]


def test_a_trial_beyond_its_limits_is_told_their_keys(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = "  trial_minutes: 3\n  silent_minutes: 2\n"
    sweep, said = sweep_with(experiment_file, tmp_path, more), list[str | None]()

    def run(
        experiment: Experiment, objectives: Any, folder: Path, limits: Limits, watcher: Any
    ) -> SeedOutcome:
        for minutes in (0.0, 2.5, 3.5):
            limits.clock = lambda now_s=limits._began_s + 60 * minutes: now_s
            said.append(limits.broken([]))
        return outcome(1.0)

    attempt_of(sweep, run, monkeypatch)
    assert said == [
        None,
        "silent for 2 minutes (sweep.silent_minutes)",
        "not done after 3 minutes (sweep.trial_minutes)",
    ]


DAMAGES = {
    "an array": "[1]\n",
    "nested": "[" * 100_000 + "\n",
    "no bits": '{"step": 10, "kind": "valid", "net": "soft"}\n',
    "a word": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": "two"}\n',
    "no number": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": NaN}\n',
    "endless": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": 1e999}\n',
    "too large": f'{{"step": 9, "kind": "valid", "net": "soft", "bits_per_byte": {10**400}}}\n',
    "lossy": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": null}\n',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_curve_that_cannot_be_read_fails_the_trial_and_nobody_else(
    experiment_file: Path, tmp_path: Path, damage: str
) -> None:
    more = "  pruner: {kind: median, startup: 2, warmup: 0}\n"
    sweep = sweep_with(experiment_file, tmp_path, more)
    attempt = claimed_attempt(sweep, memory_queue(sweep), ResourceSlice())
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(DAMAGES[damage])
    with pytest.raises(Failed, match=r"metrics\.jsonl.*damaged|no bits per byte"):
        attempt.search_wrote(metrics)


def test_a_trial_that_goes_on_where_its_folder_is_not_says_so(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = sweep_with(experiment_file, tmp_path / "here")
    queue = memory_queue(sweep)
    claimed_attempt(sweep, queue, ResourceSlice())
    queue.requeue(queue.trials(TrialState.RUNNING)[0], "its worker died")
    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", lambda *rest: outcome(1.0))
    attempt = claimed_attempt(sweep, queue, ResourceSlice())
    (said,) = attempt.run().attributes["went_on_from"]
    folder = tmp_path / "here" / "trials" / "0000"
    assert said == f"the start, since {folder} is not on this machine"
    assert said in capsys.readouterr().out


def test_a_folder_of_another_trial_is_moved_aside_and_its_own_is_kept(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path)
    old = tmp_path / "trials" / "0000"
    (old / "seed-0").mkdir(parents=True)
    (old / "seed-0" / "result").write_text("of an earlier sweep")
    attempt_of(sweep, lambda *rest: outcome(1.0), monkeypatch)
    assert not (old / "seed-0").exists()
    (aside,) = (path for path in (tmp_path / "trials").iterdir() if path != old)
    assert (aside / "seed-0" / "result").read_text() == "of an earlier sweep"


def test_a_trial_that_comes_back_finds_its_folder(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path)
    queue = memory_queue(sweep)
    for _ in range(2):

        def run(*arguments: Any) -> SeedOutcome:
            (tmp_path / "trials" / "0000" / "visits").open("a").write("x")
            raise Failed("for the test")

        monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
        claimed_attempt(sweep, queue, ResourceSlice()).run()
        (running,) = queue.trials(TrialState.RUNNING)
        queue.requeue(running, "its worker died")
    assert (tmp_path / "trials" / "0000" / "visits").read_text() == "xx"
    assert [path.name for path in (tmp_path / "trials").iterdir()] == ["0000"]


def test_a_process_hears_of_its_worker_only_what_the_storage_heard(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(experiment_file, tmp_path)
    queue, clock = memory_queue(sweep), Clock()
    attempt = claimed_attempt(sweep, queue, ResourceSlice(), clock)
    signs: list[float] = []

    class Process:
        def beat(self) -> None:
            signs.append(clock.now)

    process: Any = Process()
    for _ in range(8):  # a sign is due after a ninth of 30 s
        clock.now += 1.0
        attempt.check(process)
    assert signs == [104.0, 108.0]
    assert queue.trials()[0].system_attrs[LEASE]["count"] == 2

    def away(*arguments: Any) -> Any:
        raise RuntimeError("away")

    monkeypatch.setattr("hpo.retry.is_transient", lambda error: True)
    monkeypatch.setattr(queue, "beat", away)
    clock.now += 4.0
    attempt.check(process)
    assert signs == [104.0, 108.0]


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("auto", "7")])
def test_the_gpu_is_recorded_of_a_trial_that_had_one(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    gpu: str | None,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    sweep = sweep_with(experiment_file, tmp_path, f"  set: {{run.device: {device}}}\n")
    ((_, ended),) = attempt_of(sweep, lambda *arguments: outcome(1.0), monkeypatch)
    assert ended.attributes["gpu"] == gpu


def test_workers_share_out_threads_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)), raising=False)
    slices = [ResourceSlice(0, 1), ResourceSlice(1, 3), ResourceSlice(2, 16), ResourceSlice(31, 32)]
    assert [part.threads for part in slices] == [16, 5, 1, 1]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    gpus = [ResourceSlice(place, 4).environment["CUDA_VISIBLE_DEVICES"] for place in range(4)]
    assert gpus == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert ResourceSlice(1, 2).environment == {"CUDA_VISIBLE_DEVICES": "7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert ResourceSlice(1, 2).environment == {}
