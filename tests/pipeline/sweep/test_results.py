"""What is kept of trials, which study may be joined, which trial is the best that is no slower."""

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from hpo.study import REASON, Entry, entries, fill, set_aside
from model import default_candidates, load_architecture, parse_layout
from nas.costs.latency import Latencies
from pipeline.experiment import load_experiment, with_settings
from pipeline.plan import set_up
from pipeline.sweep import results, study
from pipeline.sweep.plan import Sweep, chosen_experiment, points, sweep_of
from pipeline.sweep.results import clean, finish, rows
from pipeline.sweep.run import Progress
from report.sweep.trials import Row, front
from tests.sweeping import add_sweep, memory_study

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
        run = sweep.paths.seed(trial.number, 0)
        for name in ("search/seed-0/last.safetensors", "retrain/a/seed-0/best-7.safetensors"):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text("tensors")
        for folder in ("model", "retrain/a/seed-0/model"):
            (run / folder).mkdir()
            (run / folder / "model.safetensors").write_text("tensors")
        (run / "retrain/a/seed-0/result.json").write_text("{}")
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        trials.tell(trial, value, state=state)
    return trials


def with_tensors(sweep: Sweep) -> set[str]:
    found = sweep.paths.trials.rglob("*.safetensors")
    return {path.relative_to(sweep.paths.trials).parts[0] for path in found}


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("[best]", {"0001", "0002"}),
        ("[best, 3]", {"0001", "0002", "0003"}),
        ("[]", {"0002"}),
        ("[all]", {"0000", "0001", "0002", "0003"}),
    ],
)
def test_checkpoints_go_but_those_kept_by_name_and_of_failed_trials(
    file: Path, tmp_path: Path, keep: str, left: set[str]
) -> None:
    sweep = sweep_with(file, tmp_path / "run", f"sweep.keep={keep}")
    trials = ended_trials(sweep, 3.0, 1.0, None, 2.0)
    clean(sweep, entries(trials))
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == left
    assert len(list(sweep.paths.trials.rglob("result.json"))) == 4
    models = {
        path.relative_to(sweep.paths.trials).parts[0] for path in sweep.paths.trials.rglob("model")
    }
    assert models == left


def test_what_was_best_goes_when_a_better_one_comes(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    trials = ended_trials(sweep, 3.0, 2.0)
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == {"0001"}
    fill(trials, [{}] * 3)
    trial = trials.ask()
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == {"0001"}
    trials.tell(trial, 1.0)
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == set()


def test_trials_that_are_not_done_keep_their_checkpoints(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run", "sweep.keep=[]")
    trials = ended_trials(sweep, 1.0)
    fill(trials, [{}] * 4)
    trials.ask()
    stopped = trials.ask()
    for number in (1, 2):
        tensors = sweep.paths.seed(number, 0) / "search" / "seed-0" / "last.safetensors"
        tensors.parent.mkdir(parents=True)
        tensors.write_text("tensors")
    set_aside(stopped)
    assert entries(trials)[2].last.state == TrialState.WAITING
    clean(sweep, entries(trials))
    assert with_tensors(sweep) == {"0001", "0002"}


def row(
    number: int, bits: float, latency_ms: float | None, baseline: bool = False, flops: float = 0.0
) -> Row:
    values = [flops, bits]
    return Row(number, "done", values=values, latency_ms=latency_ms, baseline=baseline)


@pytest.mark.parametrize(
    ("table", "best"),
    [
        ([row(0, 2.0, 5.0, True), row(1, 1.0, 6.0), row(2, 1.5, 5.0), row(3, 1.8, 1.0)], 2),
        ([row(0, 2.0, 5.0, True), row(1, 1.0, 6.0)], 0),
        (
            [row(0, 2.0, 5.0, True, 3.0), row(1, 2.5, 1.0, False, 1.0), row(2, 1.9, 4.0, False, 2)],
            2,
        ),
        ([row(0, 2.0, 5.0), row(1, 1.0, 4.0)], None),
        ([row(0, 2.0, None, True), row(1, 1.0, 4.0)], None),
        ([], None),
    ],
)
def test_the_best_that_is_no_slower_than_the_baseline(
    file: Path, tmp_path: Path, table: list[Row], best: int | None
) -> None:
    found = results.no_slower(sweep_with(file, tmp_path, PAIR), table)
    assert (None if found is None else found.number) == best


def architecture_text(undisturbed: Path, letters: str) -> str:
    (path,) = undisturbed.glob("retrain/*/seed-0/architecture.json")
    one = load_architecture(path)
    known = {slot.label: slot for slot in one.slots}
    known["identity"] = {made.kind: made for made in default_candidates()}["identity"]
    layout = parse_layout(letters, list(known.values()))
    return one.model_copy(update={"slots": layout, "evidence": None}).to_json()


def test_trials_of_one_network_with_the_same_values_stand_once_on_the_front(
    file: Path, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(file, tmp_path / "run", PAIR, "sweep.seeds=[0, 1]")
    sweep.paths.run.mkdir()
    plan = set_up(sweep.experiment, sweep.paths.run)

    def ended(number: int, values: list[float], *layouts: str) -> Entry:
        texts = [architecture_text(undisturbed, letters) for letters in layouts]
        runs = {
            str(seed): of_seed(1.0, letters, 1, "", text)
            for seed, (letters, text) in enumerate(zip(layouts, texts, strict=True))
        }
        params = {**SLOTS, "model.slots": 4 if number == 3 else 3}
        trial = create_trial(values=values, user_attrs={"runs": runs})
        trial.params = params
        return Entry(number, (trial,))

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
    timed: list[int] = []

    def time(plan: Any, models: Any) -> Latencies:
        timed.append(len(models))
        return Latencies(dict.fromkeys(models, 2.0), "measured", {})

    monkeypatch.setattr(results, "time_models", time)
    latencies = results.measure(plan, (entry.last for entry in trials))
    assert timed == [4], "dd, add, dad, aaaa"
    table = rows(sweep, trials, latencies.median_ms)
    assert [each.latency_ms for each in table] == [2.0] * 6
    assert len({each.network for each in table}) == 3
    assert [each.number for each in front(table)] == [4, 3, 2]
    unmeasured = rows(sweep, trials)
    files = [path.name for path in results.write_experiments(sweep, unmeasured)]
    assert files == ["0004.yaml", "0003.yaml", "0002.yaml"]


SLOTS = {"search.tau.schedule": "linear", "search.tau.start": 1.0}
PAIR = "sweep.objectives=[flops, retrained]"


def told(
    sweep: Sweep,
    *trials: tuple[TrialState, list[float] | None],
    attributes: dict[str, Any] | None = None,
) -> optuna.Study:
    """A study in memory whose trials have 4, 3, 2 slots; the first is the baseline."""
    points = [{**SLOTS, "model.slots": 4 - place} for place in range(len(trials))]
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
    ("settings", "values", "no_slower", "confirmed"),
    [
        ((), [[3.0], [1.0], [2.0]], 2, "best_no_slower.yaml"),
        ((), [[3.0], [1.0], [4.0]], 0, "best.yaml"),
        ((), [[3.0], [4.0]], None, None),
        ((PAIR,), [[9.0, 3.0], [5.0, 2.0], [1.0, 4.0]], 2, "best_no_slower.yaml"),
        ((PAIR,), [[9.0, 3.0], [5.0, 2.0], [1.0, 4.0]], None, "pareto/0001.yaml"),
        ((PAIR,), [[9.0, 1.0], [5.0, 2.0], [1.0, 4.0]], None, None),
    ],
)
def test_what_is_confirmed_is_the_best_that_is_not_the_baseline(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
    values: list[list[float]],
    no_slower: int | None,
    confirmed: str | None,
) -> None:
    sweep = sweep_with(file, tmp_path / "run", *settings)
    sweep.paths.run.mkdir()
    trials = told(sweep, *((TrialState.COMPLETE, each) for each in values))
    monkeypatch.setattr(
        results,
        "no_slower",
        lambda sweep, table: None if no_slower is None else table[no_slower],
    )
    table = rows(sweep, entries(trials))
    commands = results.commands(sweep, results.write_experiments(sweep, table), "python")
    assert commands["sweep"].endswith(f"sweep.py {sweep.paths.run}")
    if confirmed is None:
        assert "confirm" not in commands
    else:
        _, _, words = commands["confirm"].partition("tools.confirm ")
        assert words.split() == [
            str(sweep.paths.run / confirmed), str(sweep.paths.own_experiment),
            "--run", str(sweep.paths.run / "confirm"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("objectives", "state"),
    [
        ("[retrained]", TrialState.PRUNED),
        ("[flops, onehot]", TrialState.FAIL),
        ("[flops, onehot]", TrialState.RUNNING),
    ],
)
def test_a_sweep_without_a_finished_trial_leaves_its_table_and_report(
    file: Path, tmp_path: Path, objectives: str, state: TrialState
) -> None:
    sweep = sweep_with(file, tmp_path / "run", f"sweep.objectives={objectives}")
    sweep.paths.run.mkdir()
    (sweep.paths.run / "best.yaml").write_text(f"{results._TITLE}\nof an earlier time")
    plan = set_up(sweep.experiment, sweep.paths.run)
    why = {REASON: "no luck"} if state == TrialState.FAIL else {}
    trials = told(sweep, (state, None), (state, None), attributes=why)
    if state == TrialState.RUNNING:
        finish(plan, sweep, entries(trials), ended=False)
    else:
        reason = "no luck" if state == TrialState.FAIL else "pruned"
        with pytest.raises(ValueError, match=f"^no trial was done: {reason}$"):
            finish(plan, sweep, entries(trials), ended=True)
    assert sorted(path.name for path in sweep.paths.run.glob("*.*")) == [
        "sweep.html", "sweep.json", "trials.csv"
    ]  # fmt: skip


def test_a_sweep_that_was_stopped_leaves_what_is_there(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run", PAIR)
    sweep.paths.run.mkdir()
    plan = set_up(sweep.experiment, sweep.paths.run)
    done, running = TrialState.COMPLETE, TrialState.RUNNING
    trials = told(sweep, (done, [2.0, 1.0]), (done, [1.0, 2.0]), (running, None))
    finish(plan, sweep, entries(trials), ended=False)
    summary = json.loads((sweep.paths.run / "sweep.json").read_text())
    assert [row["state"] for row in summary["rows"]] == ["done", "done", "running"]
    assert (summary["best"], summary["no_slower"]) == ([1, 0], None)
    front = sorted(path.name for path in (sweep.paths.run / "pareto").iterdir())
    assert front == ["0000.yaml", "0001.yaml"]
    best = sweep.paths.run / "pareto/0000"
    assert summary["commands"]["rerun"].endswith(f" {best}.yaml --run {best}")


def test_what_to_type_next_runs_from_the_screen_and_names_no_machine_in_a_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.orig_argv", ["/opt/venv/bin/python"])
    sweep = sweep_with(file, tmp_path / "run", PAIR)
    sweep.paths.run.mkdir()
    trials = told(sweep, (TrialState.COMPLETE, [1.0, 2.0]), (TrialState.COMPLETE, [2.0, 1.0]))
    finish(set_up(sweep.experiment, sweep.paths.run), sweep, entries(trials), ended=False)
    commands = json.loads((sweep.paths.run / "sweep.json").read_text())["commands"]
    for name in ("sweep", "rerun", "confirm"):
        assert commands[name].startswith("python ")
    assert "/opt/venv" not in (sweep.paths.run / "sweep.html").read_text()
    shown = capsys.readouterr().out
    assert f"\nnext: /opt/venv/bin/{commands['rerun']}\n" in shown
    assert f"\n  /opt/venv/bin/{commands['confirm']}\n" in shown


def of_seed(bits: float, layout: str, parameters: int, went_on: str, text: str) -> dict[str, Any]:
    return {
        "values": [bits],
        "layout": layout,
        "parameters": parameters,
        "flops_per_token": float(parameters),
        "went_on_from": [went_on],
        "architecture": text,
    }


def test_a_row_tells_of_every_seed_and_where_it_ran(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_network", lambda text: "of one text")
    sweep = sweep_with(file, tmp_path / "run", "sweep.seeds=[0, 5, 6]")
    runs = {
        "0": of_seed(1.0, "a d a d", 10, "search step 4", "{}"),
        "5": of_seed(2.0, "d d a d", 20, "retrain step 2", "{}"),
        "6": of_seed(6.0, "a d a d", 60, "search step 9", "{}"),
    }
    facts = {"host": "pc", "threads": 2, "gpu": "1", "torch": "2.9", "commit": "abc"}
    attributes = {"runs": runs, **facts}
    trials = told(sweep, (TrialState.COMPLETE, [3.0]), attributes=attributes)
    progress = Progress(sweep, [])
    assert not progress.show(entries(trials)), "who lets a trial fail may enqueue it again"
    assert progress.show(entries(trials))
    assert not progress.show(entries(trials))
    (line,) = capsys.readouterr().out.splitlines()
    words = "[1/1] trial 0  3.0000 bits per byte of validation  a d a d / d d a d  "
    assert words in line
    Progress(sweep, entries(trials)).show(entries(trials))
    assert capsys.readouterr().out == ""
    (found,) = rows(sweep, entries(trials), {"of one text": 1.5})
    assert found.seeds == {"0": [1.0], "5": [2.0], "6": [6.0]}
    assert (found.layout, found.latency_ms) == ("a d a d / d d a d", 1.5)
    assert (found.parameters, found.flops_per_token) == (30, 30.0)
    assert found.went_on_from == [
        "seed 0: search step 4", "seed 5: retrain step 2", "seed 6: search step 9"
    ]  # fmt: skip
    assert {key: getattr(found, key) for key in facts} == facts
    alone = sweep_with(file, tmp_path / "run")
    trials = told(alone, (TrialState.FAIL, None), attributes={"runs": {"0": runs["0"]}})
    (found,) = rows(alone, entries(trials))
    assert (found.state, found.reason, found.layout) == ("failed", results.LOST, "a d a d")
    assert found.went_on_from == ["search step 4"]


def test_latency_is_the_mean_of_all_seeds_architectures(
    file: Path, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(file, tmp_path / "run", "sweep.seeds=[0, 1]")
    plan = set_up(sweep.experiment, sweep.paths.run)
    (path,) = undisturbed.glob("retrain/*/seed-0/architecture.json")
    one = load_architecture(path)
    ms = {"first": 2.0, "second": 5.0}
    texts = {name: one.model_copy(update={"name": name}).to_json() for name in ms}

    def time(plan: Any, models: Any) -> Latencies:
        return Latencies({key: ms[name] for key, name in models.items()}, "measured", {})

    monkeypatch.setattr(results, "_TIMED_TOGETHER", 1)
    monkeypatch.setattr(results, "build_model", lambda architecture: architecture.name)
    monkeypatch.setattr(results, "_network", lambda text: json.loads(text)["name"])
    monkeypatch.setattr(results, "time_models", time)
    runs = {str(seed): of_seed(1.0, "a", 1, "", text) for seed, text in enumerate(texts.values())}

    def measured(state: TrialState, values: list[float] | None) -> tuple[float | None, str]:
        found = entries(told(sweep, (state, values), attributes={"runs": runs}))
        latencies = results.measure(plan, (entry.last for entry in found))
        return rows(sweep, found, latencies.median_ms)[0].latency_ms, latencies.note

    assert measured(TrialState.COMPLETE, [1.0]) == (3.5, "measured; 1 at a time")
    assert measured(TrialState.FAIL, None) == (None, "forward latency: no finished layout")
    larger = {"name": "first", "vocabulary_size": one.vocabulary_size + 1}
    runs["0"]["architecture"] = one.model_copy(update=larger).to_json()
    note = "measured; 1 layouts of another vocabulary not measured"
    assert measured(TrialState.COMPLETE, [1.0]) == (None, note)


GRID = (
    "sweep.sampler={kind: grid}",
    "sweep.trials=null",
    "search.tau={start: 0.3, end: 0.1}",
    "sweep.space={model.slots: {choices: [3, 4]}, "
    "search.tau.start: {low: 0.1, high: 0.4, step: 0.1}}",
)


@pytest.mark.parametrize(
    ("settings", "baselines"),
    [
        ((), [0]),
        (("sweep.baseline=false",), []),
        (("model.slots=7",), []),
        (GRID, [6]),
        ((*GRID, "sweep.baseline=false"), []),
    ],
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


@pytest.mark.parametrize("kind", ["tpe", "grid"])
def test_a_missing_baseline_has_its_reason(file: Path, tmp_path: Path, kind: str) -> None:
    settings = GRID if kind == "grid" else ()
    words = "3, 4" if kind == "grid" else "2 .. 4"
    for more, reason in (
        (["model.slots=7"], f"model.slots is 7 there, not in {words}"),
        ([], ""),
        (["model.slots=7", "sweep.baseline=false"], ""),
    ):
        assert sweep_with(file, tmp_path, *settings, *more).baseline.reason == reason


def test_the_chosen_experiment_has_its_values_and_its_full_length(
    file: Path, tmp_path: Path
) -> None:
    sweep = sweep_with(file, tmp_path, *SMALL)
    params = {"search.tau.schedule": "linear", "search.tau.start": 0.7, "model.slots": 3}
    chosen = chosen_experiment(sweep, params)
    assert chosen == with_settings(sweep.experiment, params)
    assert chosen.retrain == sweep.experiment.retrain
    assert chosen.sweep is None


def test_the_first_trial_has_the_file_s_own_values(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path)
    first = {"search.tau.schedule": "linear", "search.tau.start": 1.0, "model.slots": 4}
    assert points(sweep) == [first, {}, {}, {}]
    assert points(sweep_with(file, tmp_path, "sweep.baseline=false")) == [{}] * 4
    assert points(sweep_with(file, tmp_path, "model.slots=7")) == [{}] * 4


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ("sweep.trials=9", True),
        ("sweep.trial_minutes=3", True),
        ("sweep.keep=[all]", True),
        ("run.log_every=3", True),
        ("run.threads=2", True),
        ("compare.opponents=[par]", True),
        ("search.steps=31", False),
        ("model.dropout=0.2", False),
        ("run.validate_every=9", False),
        ("sweep.objectives=[onehot]", False),
        ("sweep.seeds=[1]", False),
        ("sweep.sampler={kind: random}", False),
        ("sweep.set={retrain.steps: 9}", False),
    ],
)
def test_a_study_takes_only_trials_that_can_be_compared(
    file: Path, tmp_path: Path, setting: str, same: bool
) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    inputs = set_up(sweep.experiment, sweep.paths.run).inputs()
    sweep.paths.own.mkdir(parents=True)
    assert len(entries(study.create_study(sweep, inputs, begun=False))) == 4
    changed = sweep_with(file, tmp_path / "run", setting)
    if same:
        assert len(entries(study.join_study(changed, inputs))) == 4
    else:
        with pytest.raises(ValueError, match="is that of another experiment"):
            study.join_study(changed, inputs)


def test_a_worker_with_another_text_is_refused(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    sweep.paths.own.mkdir(parents=True)
    study.create_study(sweep, set_up(sweep.experiment, sweep.paths.run).inputs(), begun=False)
    train = tmp_path / "train.txt"
    train.write_text(train.read_text() + "one more line\n")
    with pytest.raises(ValueError, match="is that of another experiment, space, text or tokenizer"):
        study.join_study(sweep, set_up(sweep.experiment, sweep.paths.run).inputs())


def test_a_worker_cannot_join_what_is_not_there(file: Path, tmp_path: Path) -> None:
    sweep = sweep_with(file, tmp_path / "run")
    inputs = set_up(sweep.experiment, sweep.paths.run).inputs()
    with pytest.raises(ValueError, match="no sweep there yet"):
        study.join_study(sweep, inputs)
    assert not sweep.paths.own.exists()
