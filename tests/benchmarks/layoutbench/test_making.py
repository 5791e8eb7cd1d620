"""LayoutBench end to end at tiny size: the table, its check, searches weighed on it."""

import itertools
import json
import re
import statistics
from pathlib import Path

import pytest

import retrain
from benchmarks.keys import key_of
from benchmarks.layoutbench import __main__ as layoutbench
from benchmarks.layoutbench.making import (
    flops_limit,
    layouts_of,
    layouts_within,
    make_table,
)
from benchmarks.layoutbench.table import LayoutTable, Row, all_layouts, as_csv, read_table
from model import parse_layout
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from tests.refusal import refused
from training.signals import StopRequest

SMALL = [
    part
    for setting in (
        "model.candidates=[attention, dense]", "model.slots=2", "retrain.steps=4",
        "retrain.optimiser.warmup_steps=1", "search.steps=6", "search.optimiser.warmup_steps=1",
        "costs.repeats=3",
    )
    for part in ("--set", setting)
]  # fmt: skip


@pytest.mark.slow
def test_a_table_is_made_timed_checked_and_searched(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "bench"
    base = [str(experiment_file), *SMALL]
    make = ["make", *base, "--run", str(run), "--workers", "2"]
    assert layoutbench.main(make) == 0
    table = read_table(run / "layoutbench.csv")
    assert [(row.layout, row.seed) for row in table.rows] == [
        (layout, seed) for layout in ("aa", "ad", "da", "dd") for seed in (0, 1)
    ]
    alone = ["--run", str(tmp_path / "alone"), "--layout", "a d", "--set", "run.seed=1"]
    assert retrain.main([*base, *alone]) == 0
    (path,) = (tmp_path / "alone").glob("retrain/*/seed-1/result.json")
    result = json.loads(path.read_text())
    row = next(row for row in table.rows if (row.layout, row.seed) == ("ad", 1))
    assert row.valid_nats == result["valid"]["nats_per_token"]
    assert row.test_nats == result["test"]["nats_per_token"]
    assert row.parameters == result["parameters"]

    with monkeypatch.context() as patched:
        patched.setattr("benchmarks.layoutbench.making.run_all", lambda jobs, **rest: _none(jobs))
        assert layoutbench.main(make) == 0
        assert list(read_table(run / "layoutbench.csv").rows) == list(table.rows)
    other = ["make", *base, "--run", str(run), "--set", "model.dropout=0.3"]
    assert "model.dropout is 0.1, now 0.3" in refused(layoutbench.main, capsys, *other)

    capsys.readouterr()
    again = ["again", *base, "--run", str(tmp_path / "again"), "--rows", "2", "--workers", "2"]
    code = layoutbench.main([*again, "--table", str(run / "layoutbench.csv")])
    lines = capsys.readouterr().out.splitlines()
    made = read_table(tmp_path / "again/layoutbench.csv")
    pooled = statistics.fmean(statistics.variance(pair) for pair in table.nats("test").values())
    worst = 0.0
    for row in made.rows:
        off = (row.test_nats - statistics.fmean(table.nats("test")[row.layout])) / pooled**0.5
        worst = max(worst, abs(off))
        assert any(line.startswith(row.layout) and f"{off:+.2f} standard" in line for line in lines)
    assert [row.seed for row in made.rows] == [100, 100]
    assert code == int(worst > 4)

    found = tmp_path / "found"
    arguments = ["search", *base, "--run", str(found), "--table", str(run / "layoutbench.csv")]
    assert layoutbench.main([*arguments, "--seeds", "5,6", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    weighed = json.loads((found / "regret.json").read_text())
    means = {layout: statistics.fmean(nats) for layout, nats in table.nats("test").items()}
    expected = [means[layout] - min(means.values()) for layout in weighed["layouts"]]
    assert weighed["regrets"]["each"] == pytest.approx(expected)
    assert weighed["trainings"] == 4
    assert weighed["difference"]["n"] == 2
    for seed in (5, 6):
        saved = load_experiment(found / f"seed-{seed}" / "experiment.yaml", [])
        assert (saved.run.seed, saved.derive.seed) == (seed, seed)
    assert f"a search costs {weighed['cost']:.2f} trainings" in said


def _none(jobs: list[object]) -> None:
    assert jobs == []


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layouts that would have been trained."""
    asked: list[str] = []
    monkeypatch.setattr(
        "benchmarks.layoutbench.making.run_all",
        lambda jobs, **rest: asked.extend(job.folder.parent.name for job in jobs),
    )
    return asked


ADI = "model.candidates=[attention, dense, identity]"


def test_every_network_of_a_space_with_identity_is_trained_once(
    experiment_file: Path, tmp_path: Path, jobs: list[str]
) -> None:
    settings = [*SMALL[1::2], ADI]
    bench = set_up(load_experiment(experiment_file, settings), tmp_path / "run")
    assert layouts_of(bench.experiment.model) == ["aa", "ad", "ai", "da", "dd", "di", "ii"]
    tied = set_up(
        load_experiment(experiment_file, [*settings, "model.tie_slots=1"]), tmp_path / "tied"
    )
    assert layouts_of(tied.experiment.model) == ["aa", "ad", "ai", "da", "dd", "di", "ii"]
    make_table(bench, layouts_of(bench.experiment.model), [0], workers=1, stop=StopRequest())
    assert jobs == layouts_of(bench.experiment.model)


def test_the_networks_within_a_share_of_the_references_flops(
    experiment_file: Path, tmp_path: Path
) -> None:
    bench = set_up(load_experiment(experiment_file, [*SMALL[1::2], ADI]), tmp_path / "run")
    layouts = layouts_of(bench.experiment.model)
    a, d, rest = (
        bench.costs.by_label["attention"],
        bench.costs.by_label["dense"],
        bench.costs.rest,
    )
    flops = {"aa": 2 * a, "ad": a + d, "ai": a, "da": a + d, "dd": 2 * d, "di": d}
    for share in (1.0, (a + rest) / (a + d + rest), 0.9, 3.0):
        expected = [
            layout
            for layout in layouts
            if layout != "ii" and flops[layout] + rest <= share * (a + d + rest) * (1 + 1e-9)
        ]
        assert layouts_within(bench, layouts, f"{share!r}x") == expected
    assert layouts_within(bench, layouts, str(d + rest)) == ["di"]


def test_a_table_is_weighed_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        Row(layout, seed, 1, 1.0, worth, worth)
        for seed in (0, 1)
        for layout, worth in (("aa", 1.0), ("ad", 2.0), ("da", 3.0), ("dd", 4.0))
    ]
    path = tmp_path / "table.csv"
    path.write_text(as_csv(LayoutTable(tuple(rows)).rows))
    command = ["regret", "--table", str(path), "--trainings", "4", "--layouts", "aa", "ad"]
    assert layoutbench.main(command) == 0
    said = capsys.readouterr().out
    assert "Kendall's tau between two seeds 1.000" in said
    assert "random search, 4 trainings: regret 0.0000" in said
    assert "n = 2: aa 0.0000, ad 1.0000" in said
    assert "the chosen layouts and random search at equal cost: no difference shown (" in said
    unknown = refused(layoutbench.main, capsys, *command[:-1], "aaa")
    assert "layout 'aaa' is not among the table's" in unknown


FOUR = [*SMALL, "--set", "model.slots=4"]


def write_tables(experiment_file: Path, folder: Path) -> list[str]:
    """Made-up tables of all layouts of four slots, at full and at half length, as arguments."""
    arguments = list[str]()
    for name, steps, seeds in (("table", 4, (0, 1, 2)), ("half", 2, (7,))):
        settings = [*FOUR[1::2], f"retrain.steps={steps}"]
        bench = set_up(load_experiment(experiment_file, settings), folder / "run")
        rows = [
            Row(layout, seed, 10, 20.0, nats, nats + 0.001 * seed)
            for layout in all_layouts("ad", 4)
            for seed in seeds
            for nats in [4.0 - 0.1 * layout.count("a") - 0.02 * layout.find("d")]
        ]
        path = folder / f"{name}.csv"
        path.write_text(as_csv(rows))
        path.with_suffix(".json").write_text(json.dumps(key_of(bench.experiment, bench.inputs())))
        arguments += [f"--{name}", str(path)]
    return arguments


def test_methods_are_replayed_on_tables_of_full_and_half_length(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, run = write_tables(experiment_file, tmp_path), tmp_path / "replay"
    base = ["replay", str(experiment_file), *FOUR, "--run", str(run), *tables, "--replays", "4"]
    assert layoutbench.main(base) == 0
    assert "all layouts: 16 networks, " in capsys.readouterr().out
    assert layoutbench.main([*base, "--within", "1x", "0.95x"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^within 1x: 11 networks, \d of them by rules$", said, re.M)
    assert re.search(r"^within 0.95x: 5 networks, \d of them by rules$", said, re.M)
    assert re.search(r"^random search +0\.\d{4} +± 0\.\d{4} +\d+\.\d  [-+]0\.\d{4} \[", said, re.M)
    assert "the predictor's 80% intervals hold " in said
    summary = json.loads((run / "replay.json").read_text())
    assert (summary["replays"], [*summary["budgets"]]) == (4, ["1x", "0.95x"])
    methods = summary["budgets"]["1x"]["methods"]
    assert methods["predictor"]["regret_nats"] == pytest.approx(0.0, abs=1e-9)
    assert methods["random search"]["predictor_less"][0] <= 0


def write_proposals(path: Path, *rows: str) -> list[str]:
    path.write_text("\n".join(["within,search,cost,layout,supernet_nats", *rows]) + "\n")
    return ["--proposals", str(path)]


def test_what_searches_propose_is_replayed_too(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, run = write_tables(experiment_file, tmp_path), tmp_path / "replay"
    base = ["replay", str(experiment_file), *FOUR, "--run", str(run), *tables, "--replays", "4"]
    base += ["--within", "1x"]
    path = tmp_path / "proposals.csv"
    rows = ["1x,10,50000,addd,4.0", "1x,10,50000,dddd,4.1", "1x,11,60000,daad,4.0"]
    assert layoutbench.main([*base, *write_proposals(path, *rows, "0.9x,10,5,aaaa,4.0")]) == 0
    assert re.search(r"^search, finals +0\.\d{4}", capsys.readouterr().out, re.M)
    methods = json.loads((run / "replay.json").read_text())["budgets"]["1x"]["methods"]
    assert methods["predictor + search"]["cost"] > methods["predictor"]["cost"]


@pytest.mark.slow
def test_searches_propose_layouts_within_each_budget(experiment_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "propose"
    base = ["propose", str(experiment_file), *FOUR, "--run", str(run), "--seeds", "10,11"]
    assert layoutbench.main([*base, "--within", "1x", "0.95x"]) == 0
    rows = [row.split(",") for row in (run / "proposals.csv").read_text().splitlines()[1:]]
    plan = set_up(load_experiment(experiment_file, FOUR[1::2]), run)
    for within, search, cost, layout, nats in rows:
        limit = flops_limit(plan, within)
        assert limit.holds(tuple(parse_layout(layout, plan.candidates)))
        assert search in ("10", "11")
        assert float(cost) / plan.costs.rest > 1.0
        assert float(nats) > 0
    for within, search in itertools.product(("1x", "0.95x"), ("10", "11")):
        nats = [float(row[4]) for row in rows if row[:2] == [within, search]]
        assert nats == sorted(nats), "the best first"
        assert nats
    before = (run / "proposals.csv").read_text()
    assert layoutbench.main([*base, "--within", "1x", "0.95x"]) == 0
    assert (run / "proposals.csv").read_text() == before
