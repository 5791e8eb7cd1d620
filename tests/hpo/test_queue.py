"""The queue of a sweep: no trial lost, none twice, whoever dies wherever."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from hpo.heartbeat import HeartbeatMonitor, Lease
from hpo.queue import (
    ENTRY,
    LOSSES,
    LOST,
    REASON,
    RETRY_OF,
    ROOT,
    STOPPED,
    SURPLUS,
    LeaseLost,
    Queue,
    stale_trials,
)
from tests.sweeping import Clock

LEASE = Lease(host="here", machine="m", pid=1, began="1")


def queue_of(folder: Path, *, trials: int = 3, retries: int = 2) -> Queue:
    """A queue on a journal, filled."""
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = optuna.create_study(
        storage=storage,
        study_name="s",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    queue = Queue(study, storage, retries=retries)
    queue.fill([{}] * trials)
    return queue


def claimed(queue: Queue) -> FrozenTrial:
    """Claim a trial and give it one value."""
    trial = queue.claim(LEASE)
    assert trial is not None
    trial.suggest_float("x", 0, 1)
    (found,) = (each for each in queue.trials() if each.number == trial.number)
    return found


def test_fewer_trials_than_before_drop_what_nobody_has_begun(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=6)
    running, lost = claimed(queue), claimed(queue)
    queue.requeue(lost, STOPPED)
    queue.fill([{}])
    assert [entry.number for entry in queue.entries()] == [running.number, lost.number]
    assert claimed(queue).user_attrs[ROOT] == lost.number
    assert queue.claim(LEASE) is None
    queue.fill([{}] * 4)
    assert len(queue.entries()) == 4
    assert [claimed(queue).user_attrs[ENTRY] for _ in range(2)] == [2, 3]


def test_the_number_of_trials_is_exact_and_filling_again_adds_only_what_is_missing(
    tmp_path: Path,
) -> None:
    queue = queue_of(tmp_path)
    queue.fill([{}] * 3)
    assert len(queue.entries()) == 3
    queue.fill([{}] * 5)
    assert [entry.number for entry in queue.entries()] == [0, 1, 2, 3, 4]


def test_fixed_values_are_suggested(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=0)
    queue.fill([{"x": 0.25}])
    assert claimed(queue).params == {"x": 0.25}


def test_an_empty_queue_gives_nothing_and_makes_no_trial(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1)
    assert queue.claim(LEASE) is not None
    assert queue.claim(LEASE) is None
    assert len(queue.trials()) == 1


def test_a_trial_that_was_made_for_a_late_claim_counts_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(tmp_path, trials=1)
    look, seen = queue.trials, []

    def too_late(*states: TrialState) -> list[FrozenTrial]:
        found = look(*states)
        if states == (TrialState.WAITING,) and not seen:
            seen.append(queue.study.ask())
        return found

    monkeypatch.setattr(queue, "trials", too_late)
    assert queue.claim(LEASE) is None
    assert [trial.state for trial in look()] == [TrialState.RUNNING, TrialState.FAIL]
    assert look()[1].user_attrs == {SURPLUS: True}
    assert [entry.number for entry in queue.entries()] == [0]


def test_a_lost_trial_comes_back_with_its_values_under_its_first_number(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1)
    first = claimed(queue)
    assert queue.requeue(first, "its worker died")
    (entry,) = queue.entries()
    assert not entry.finished
    second = claimed(queue)
    assert second.params == first.params
    assert second.user_attrs == {ROOT: 0, RETRY_OF: 0, LOSSES: 1}
    queue.finish(second.number, TrialState.COMPLETE, [1.0])
    (entry,) = queue.entries()
    assert (entry.number, entry.finished, len(entry.attempts)) == (0, True, 2)
    assert entry.attempts[0].user_attrs[LOST] == "its worker died"
    assert entry.last.values == [1.0]


def test_only_the_first_of_two_finders_gives_a_trial_back(tmp_path: Path) -> None:
    queue, other = queue_of(tmp_path), queue_of(tmp_path)
    trial = claimed(queue)
    assert [queue.requeue(trial, "died"), other.requeue(trial, "died")] == [True, False]
    assert sum(RETRY_OF in each.user_attrs for each in queue.trials()) == 1


def test_after_too_many_losses_a_trial_fails_with_the_reason(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1, retries=1)
    for _ in range(2):
        assert queue.requeue(claimed(queue), "its worker died")
    queue.repair()
    assert queue.claim(LEASE) is None
    (entry,) = queue.entries()
    assert entry.finished
    assert entry.last.user_attrs[REASON] == "its worker died; so ended 2 attempts at it"


def test_being_stopped_is_no_loss(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1, retries=0)
    for _ in range(4):
        assert queue.requeue(claimed(queue), STOPPED)
    (entry,) = queue.entries()
    assert (entry.finished, len(entry.attempts)) == (False, 5)


def test_a_worker_whose_trial_was_given_away_is_told(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    trial = claimed(queue)
    live = optuna.trial.Trial(queue.study, trial._trial_id)
    queue.requeue(trial, "died")
    for action in (
        lambda: queue.beat(trial.number, LEASE),
        lambda: queue.note(trial.number, {"a": 1}),
        lambda: queue.finish(trial.number, TrialState.COMPLETE, [0.0]),
        lambda: queue.is_pruned_at(live, 1.0, 1),
    ):
        with pytest.raises(LeaseLost):
            action()
    assert queue.entries()[0].attempts[0].state == TrialState.FAIL


def test_a_trial_has_ended_as_its_own_worker_said_and_no_other_way(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    failed, lost, running = (claimed(queue) for _ in range(3))
    queue.finish(failed.number, TrialState.FAIL)
    queue.requeue(lost, "died")
    ended = [queue.has_ended(each.number, TrialState.FAIL) for each in (failed, lost, running)]
    assert ended == [True, False, False]
    assert not queue.has_ended(failed.number, TrialState.COMPLETE)


def test_a_finder_that_dies_before_it_replaces_a_trial_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = queue_of(tmp_path, trials=1)
    first = claimed(queue)
    with monkeypatch.context() as patched:
        patched.setattr(queue, "repair", lambda: None)
        assert queue.requeue(first, "died")
    assert queue.claim(LEASE) is None
    # Meanwhile nobody may think that all is done.
    assert not queue.entries()[0].finished
    queue.repair()
    queue.repair()
    again = claimed(queue)
    assert again.params == first.params
    assert again.user_attrs == {ROOT: 0, RETRY_OF: 0, LOSSES: 1}
    assert queue.claim(LEASE) is None


def test_of_two_replacements_one_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_of(tmp_path, trials=1)
    first = claimed(queue)
    assert queue.requeue(first, "died")
    queue._replace(first, 1)
    assert len(queue.trials(TrialState.WAITING)) == 2
    again = claimed(queue)
    assert again.number == 1
    assert queue.claim(LEASE) is None
    assert not queue.entries()[0].finished
    queue.finish(again.number, TrialState.COMPLETE, [2.0])
    (entry,) = queue.entries()
    assert (entry.last.number, entry.finished) == (1, True)


@pytest.mark.parametrize("asked", [[], ["x"], ["x", "y"]])
def test_fixed_values_are_kept_whenever_the_worker_died(tmp_path: Path, asked: list[str]) -> None:
    queue = queue_of(tmp_path, trials=0)
    queue.fill([{"x": 0.25, "y": 0.75}])
    trial = queue.claim(LEASE)
    assert trial is not None
    for key in asked:
        trial.suggest_float(key, 0, 1)
    (running,) = queue.trials(TrialState.RUNNING)
    queue.requeue(running, "died")
    again = queue.claim(LEASE)
    assert again is not None
    assert [again.suggest_float(key, 0, 1) for key in ("x", "y")] == [0.25, 0.75]


def surplus_trial(queue: Queue) -> FrozenTrial:
    """A running trial that a late claim has made, and whose worker died there."""
    queue.study.ask()
    return queue.trials(TrialState.RUNNING)[-1]


@pytest.mark.parametrize("marked", [False, True])
def test_a_surplus_trial_whose_worker_died_is_dropped(tmp_path: Path, marked: bool) -> None:
    queue = queue_of(tmp_path, trials=1)
    claimed(queue)
    surplus = surplus_trial(queue)
    if marked:
        queue.note(surplus.number, {SURPLUS: True})
        surplus = queue.trials(TrialState.RUNNING)[-1]
    assert queue.requeue(surplus, "its worker died")
    assert queue.trials(TrialState.WAITING) == []
    assert [entry.number for entry in queue.entries()] == [0]


def test_a_second_replacement_whose_worker_died_is_dropped(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1)
    first = claimed(queue)
    assert queue.requeue(first, "died")
    queue._replace(first, 1)
    running = claimed(queue)
    second = queue.study.ask()  # claimed by a worker that dies before it can look
    (late,) = (trial for trial in queue.trials() if trial.number == second.number)
    assert queue.requeue(late, "died")
    assert queue.trials(TrialState.WAITING) == []
    assert queue.entries()[0].last.number == running.number


def test_one_death_that_several_find_is_one_loss(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1, retries=1)
    number = claimed(queue).number
    queue.note(number, {LOST: "its worker died"})  # and here the first finder dies itself
    (running,) = queue.trials(TrialState.RUNNING)
    assert queue.requeue(running, "its worker died")
    assert claimed(queue).user_attrs[LOSSES] == 1


def test_a_trial_that_failed_for_its_own_reason_is_not_run_again(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=1)
    trial = claimed(queue)
    queue.note(trial.number, {LOST: "a finder that was slower", REASON: "exit code 1"})
    queue.finish(trial.number, TrialState.FAIL)
    queue.repair()
    assert queue.claim(LEASE) is None
    assert queue.entries()[0].finished


def test_failed_trials_can_be_run_again(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, trials=3)
    for state in (TrialState.FAIL, TrialState.COMPLETE):
        trial = claimed(queue)
        queue.note(trial.number, {REASON: "the disk was full"} if state == TrialState.FAIL else {})
        queue.finish(trial.number, state, None if state == TrialState.FAIL else [1.0])
    failed = queue.entries()[0].last
    assert queue.retry_failed() == 1
    assert queue.retry_failed() == 0
    assert [entry.finished for entry in queue.entries()] == [False, True, False]
    claimed(queue)
    again = claimed(queue)
    assert (again.params, again.user_attrs[ROOT]) == (failed.params, 0)


def test_dead_trials_are_those_whose_worker_is_gone(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    one, two = claimed(queue), claimed(queue)
    clock = Clock()
    monitor = HeartbeatMonitor(10.0, clock)
    assert stale_trials(queue.trials(), monitor) == []
    for count in range(1, 4):
        clock.now += 3.4
        queue.beat(one.number, replace(LEASE, count=count))
        found = stale_trials(queue.trials(), monitor)
    assert [trial.number for trial, _ in found] == [two.number]
    assert one.system_attrs["parnas:lease"] == LEASE.as_json()
