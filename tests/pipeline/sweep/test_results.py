"""What is kept of trials, which study may be joined, what a sweep leaves."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from hpo.study import REASON, TrialEntry, entries, fill, set_aside
from model import default_candidates, load_architecture, parse_layout
from pipeline.experiment import load_experiment, with_settings
from pipeline.plan import set_up
from pipeline.sweep import results
from pipeline.sweep.plan import Sweep, chosen_experiment, create_study, join_study, points, sweep_of
from pipeline.sweep.results import clean, finish, rows
from pipeline.sweep.run import Progress
from report.sweep.trials import front
from tests.sweeping import add_sweep, memory_study, table

SMALL = ["sweep.set={retrain.steps: 9}"]


def sweep_with(file: Path, folder: Path, *settings: str) -> Sweep:
    return sweep_of(load_experiment(file, settings), folder)


@pytest.fixture
def file(experiment_file: Path) -> Path:
    return add_sweep(experiment_file, trials=4)


def ended_trials(sweep: Sweep, *values: float | None) -> optuna.Study:
    """A study in memory with trials of these values; None failed; each with a run's files."""
    trials = memory_study(sweep, [{}] * len(values))
    for value in values:
        trial = trials.ask()
        run = sweep.trial(trial.number) / "seed-0"
        for name in ("search/seed-0/last.safetensors", "retrain/a/seed-0/best-7.safetensors"):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text("tensors")
            (run / name).with_name("identity.json").write_text("{}")
        for folder in ("model", "retrain/a/seed-0/model"):
            (run / folder).mkdir()
            (run / folder / "model.safetensors").write_text("tensors")
        (run / "retrain/a/seed-0/result.json").write_text("{}")
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        trials.tell(trial, value, state=state)
    return trials


def with_tensors(sweep: Sweep) -> set[str]:
    found = sweep.run.rglob("trials/**/*.safetensors")
    return {path.relative_to(sweep.run).parts[1] for path in found}


def test_checkpoints_go_but_those_of_the_best_and_of_failed_trials(
    file: Path, tmp_path: Path
) -> None:
    sweep, left = sweep_with(file, tmp_path / "run"), {"0001", "0002"}
    trials = ended_trials(sweep, 3.0, 1.0, None, 2.0)
    clean(sweep, entries(trials))
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == left
    assert len(list(sweep.run.rglob("result.json"))) == 4
    assert {path.relative_to(sweep.run).parts[1] for path in sweep.run.rglob("model")} == left


def test_trials_that_are_not_done_keep_their_checkpoints(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    trials = ended_trials(sweep, 1.0)
    fill(trials, [{}] * 4)
    trials.ask()
    stopped = trials.ask()
    for number in (1, 2):
        tensors = sweep.trial(number) / "seed-0/search/seed-0/last.safetensors"
        tensors.parent.mkdir(parents=True)
        tensors.write_text("tensors")
    set_aside(stopped)
    assert entries(trials)[2].last.state == TrialState.WAITING
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == {"0000", "0001", "0002"}


def architecture_text(undisturbed: Path, letters: str) -> str:
    (path,) = undisturbed.glob("retrain/*/seed-0/architecture.json")
    one = load_architecture(path)
    known = {slot.label: slot for slot in one.blocks}
    known["identity"] = {made.kind: made for made in default_candidates()}["identity"]
    layout = parse_layout(letters, list(known.values()))
    return one.model_copy(update={"blocks": layout, "evidence": None}).to_json()


def test_trials_of_one_network_with_the_same_values_stand_once_on_the_front(
    file: Path, tmp_path: Path, undisturbed: Path
) -> None:
    sweep = sweep_with(file, tmp_path / "run", PAIR, "sweep.seeds=[0, 1]")
    sweep.run.mkdir()

    def ended(number: int, values: list[float], *layouts: str) -> TrialEntry:
        texts = [architecture_text(undisturbed, letters) for letters in layouts]
        runs = {str(seed): of_seed(1.0, text) for seed, text in enumerate(texts)}
        trial = create_trial(values=values, user_attrs={"runs": runs})
        trial.params = {**SLOTS, "model.n_blocks": 4 if number == 3 else 3}
        return TrialEntry(number, (trial,))

    trials = [
        ended(0, [2.0, 1.0], "d i d i", "a d d i"),
        ended(1, [2.0, 1.0], "i i d d", "i a d d"),
        # Another network of one seed.
        ended(2, [2.0, 1.0], "d i d i", "d a d i"),
        # The baseline.
        ended(3, [2.0, 1.0], "d d i i", "a d i d"),
        ended(4, [1.0, 2.0], "d i d i", "a d d i"),
        ended(5, [3.0, 3.0], "a a a a", "a a a a"),
    ]
    found = rows(sweep, trials)
    assert found[0].layout == "d i d i / a d d i"
    assert len({each.network for each in found}) == 3
    assert [each.number for each in front(found)] == [4, 3, 2]
    files = [path.name for path in results.write_experiments(sweep, found)]
    assert files == ["0004.yaml", "0003.yaml", "0002.yaml"]


SLOTS = {"search.tau.schedule": "linear", "search.tau.start": 1.0}
PAIR = "sweep.objectives=[flops, retrained]"


def told(
    sweep: Sweep,
    *trials: tuple[TrialState, list[float] | None],
    attributes: dict[str, Any] | None = None,
) -> optuna.Study:
    """A study in memory whose trials have 4, 3, 2 slots; the first is the baseline."""
    points = [{**SLOTS, "model.n_blocks": 4 - place} for place in range(len(trials))]
    made = memory_study(sweep, points)
    for state, values in trials:
        trial = made.ask()
        sweep.space.suggest(trial)
        for key, value in (attributes or {}).items():
            trial.set_user_attr(key, value)
        if state.is_finished():
            made.tell(trial, values, state=state)
    return made


@pytest.mark.parametrize(
    ("settings", "values", "confirmed"),
    [
        ((), [[3.0], [1.0], [2.0]], True),
        ((), [[3.0], [4.0]], False),
        # Of several objectives none is the best.
        ((PAIR,), [[9.0, 3.0], [5.0, 2.0], [1.0, 4.0]], False),
    ],
)
def test_what_is_confirmed_is_the_best_that_is_not_the_baseline(
    file: Path,
    tmp_path: Path,
    settings: tuple[str, ...],
    values: list[list[float]],
    confirmed: bool,
) -> None:
    sweep = sweep_with(file, tmp_path / "run", *settings)
    sweep.run.mkdir()
    found = rows(sweep, entries(told(sweep, *((TrialState.COMPLETE, each) for each in values))))
    commands = results.commands(sweep, results.write_experiments(sweep, found), "python")
    assert ("confirm" in commands) == confirmed
    if confirmed:
        run = sweep.run
        words = [run / "best.yaml", run / "sweep/experiment.yaml", "--run", run / "confirm"]
        assert commands["confirm"].split()[3:] == list(map(str, words))


@pytest.mark.parametrize(("method", "script"), [("par", "derive.py"), ("argmax", "search.py")])
def test_the_best_is_run_from_its_own_first_step(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, script: str
) -> None:
    monkeypatch.setattr("sys.argv", ["sweep.py"])
    settings = ["derive.method=par", "sweep.space={derive.method: {choices: [par, argmax]}}"]
    sweep = sweep_with(file, tmp_path, *settings)
    study = memory_study(sweep, [{"derive.method": method}])
    trial = study.ask()
    sweep.space.suggest(trial)
    study.tell(trial, [1.0])
    files = results.write_experiments(sweep, rows(sweep, entries(study)))
    assert results.commands(sweep, files, "python")["rerun"].split()[1] == script


def test_the_best_is_compared_with_seeds_that_did_not_choose_it(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path, "sweep.seeds=[0, 2]", "compare.seeds=[0, 1, 2]")
    found = rows(sweep, entries(told(sweep, *((TrialState.COMPLETE, [at]) for at in (2.0, 1.0)))))
    (best,) = results.write_experiments(sweep, found)
    assert load_experiment(best).compare.seeds == [3, 1, 4]


@pytest.mark.parametrize(
    ("objectives", "state"),
    [
        ("[retrained]", TrialState.PRUNED),
        ("[flops, retrained]", TrialState.FAIL),
        ("[flops, retrained]", TrialState.RUNNING),
    ],
)
def test_a_sweep_without_a_finished_trial_leaves_its_table_and_report(
    file: Path, tmp_path: Path, objectives: str, state: TrialState
) -> None:
    sweep = sweep_with(file, tmp_path / "run", f"sweep.objectives={objectives}")
    sweep.run.mkdir()
    (sweep.run / "best.yaml").write_text("of an earlier time")
    why = {REASON: "no luck"} if state == TrialState.FAIL else {}
    trials = told(sweep, (state, None), (state, None), attributes=why)
    if state == TrialState.RUNNING:
        finish(sweep, entries(trials), ended=False)
    else:
        reason = "no luck" if state == TrialState.FAIL else "pruned"
        with pytest.raises(ValueError, match=f"^no trial was done: {reason}$"):
            finish(sweep, entries(trials), ended=True)
    assert sorted(path.name for path in sweep.run.glob("*.*")) == ["sweep.html", "trials.csv"]


def test_a_sweep_that_was_stopped_leaves_what_is_there(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run", PAIR)
    (sweep.run / "pareto").mkdir(parents=True)
    (sweep.run / "pareto/mine.yaml").touch()
    done, running = TrialState.COMPLETE, TrialState.RUNNING
    trials = told(sweep, (done, [2.0, 1.0]), (done, [1.0, 2.0]), (running, None))
    finish(sweep, entries(trials), ended=False)
    assert [row["state"] for row in table(sweep.run)] == ["done", "done", "running"]
    best = sorted(path.name for path in (sweep.run / "pareto").iterdir())
    assert best == ["0000.yaml", "0001.yaml", "mine.yaml"]


def of_seed(bits: float, text: str) -> dict[str, Any]:
    return {"values": [bits], "architecture": text}


def test_a_row_tells_of_every_seed_and_a_line_of_the_trial(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], undisturbed: Path
) -> None:
    sweep = sweep_with(file, tmp_path / "run", "sweep.seeds=[0, 5, 6]")
    one, other = (architecture_text(undisturbed, letters) for letters in ("a d a d", "d d a d"))
    runs = {"0": of_seed(1.0, one), "5": of_seed(2.0, other), "6": of_seed(6.0, one)}
    trials = told(sweep, (TrialState.COMPLETE, [3.0]), attributes={"runs": runs, "host": "pc"})
    (found,) = rows(sweep, entries(trials))
    assert found.seeds == {"0": [1.0], "5": [2.0], "6": [6.0]}
    assert (found.layout, found.host) == ("a d a d / d d a d", "pc")
    assert found.flops_per_token is not None
    progress = Progress(sweep, entries(memory_study(sweep)))
    assert progress.show(entries(trials))
    assert not progress.show(entries(trials))
    (line,) = capsys.readouterr().out.splitlines()
    words = "[1/1] trial 0  3.0000 bits per byte of validation  a d a d / d d a d  "
    assert words in line
    assert not Progress(sweep, entries(trials)).show(entries(trials))
    trials = told(sweep, (TrialState.FAIL, None), attributes={"runs": {"0": runs["0"]}})
    (found,) = rows(sweep, entries(trials))
    assert (found.state, found.reason, found.layout) == ("failed", results.LOST, "a d a d")


GRID = (
    "sweep.sampler={kind: grid}",
    "sweep.trials=null",
    "search.tau={start: 0.3, end: 0.1}",
    "sweep.space={model.n_blocks: {choices: [3, 4]}, "
    "search.tau.start: {low: 0.1, high: 0.4, step: 0.1}}",
)


@pytest.mark.parametrize(
    ("settings", "baselines"), [((), [0]), (("model.n_blocks=7",), []), (GRID, [6])]
)
def test_the_baseline_is_the_trial_with_the_file_s_own_values(
    file: Path, tmp_path: Path, settings: tuple[str, ...], baselines: list[int]
) -> None:
    sweep = sweep_with(file, tmp_path, *settings)
    trials = memory_study(sweep, points(sweep))
    for _ in range(2):  # while they wait, and when they were run
        found = rows(sweep, entries(trials))
        assert [each.number for each in found if each.baseline] == baselines
        for entry in entries(trials):
            if not entry.last.params:
                sweep.space.suggest(trials.ask())


def test_the_chosen_experiment_has_its_values_and_its_full_length(
    file: Path, tmp_path: Path
) -> None:
    sweep = sweep_with(file, tmp_path, *SMALL)
    params = {"search.tau.schedule": "linear", "search.tau.start": 0.7, "model.n_blocks": 3}
    chosen = chosen_experiment(sweep, params)
    assert chosen == with_settings(sweep.experiment, params)
    assert chosen.retrain == sweep.experiment.retrain
    assert chosen.sweep is None


def test_the_first_trial_has_the_file_s_own_values(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path)
    first = {"search.tau.schedule": "linear", "search.tau.start": 1.0, "model.n_blocks": 4}
    assert points(sweep) == [first, {}, {}, {}]
    assert points(sweep_with(file, tmp_path, "model.n_blocks=7")) == [{}] * 4


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ("sweep.trials=9", True),
        ("sweep.retries=3", True),
        ("run.log_every=3", True),
        ("run.threads=2", True),
        ("compare.baselines=[par]", True),
        ("search.steps=31", False),
        ("model.dropout=0.2", False),
        ("run.validate_every=9", False),
        ("sweep.objectives=[retrained, flops]", False),
        ("sweep.seeds=[1]", False),
        ("sweep.sampler={kind: random}", False),
        ("sweep.set={retrain.steps: 9}", False),
    ],
)
def test_a_study_takes_only_trials_that_can_be_compared(
    file: Path, tmp_path: Path, setting: str, same: bool
) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    inputs = set_up(sweep.experiment, sweep.run).inputs()
    sweep.own.mkdir(parents=True)
    assert len(entries(create_study(sweep, inputs))) == 4
    changed = sweep_with(file, tmp_path / "run", setting)
    if same:
        assert len(entries(join_study(changed, inputs))) == 4
    else:
        with pytest.raises(ValueError, match="is that of another experiment"):
            join_study(changed, inputs)


def test_a_worker_with_another_text_is_refused(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    sweep.own.mkdir(parents=True)
    create_study(sweep, set_up(sweep.experiment, sweep.run).inputs())
    train = tmp_path / "train.txt"
    train.write_text(train.read_text() + "one more line\n")
    with pytest.raises(ValueError, match="is that of another experiment, space, text or tokenizer"):
        join_study(sweep, set_up(sweep.experiment, sweep.run).inputs())
