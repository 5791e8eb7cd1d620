"""LayoutBench end to end at tiny size: the table, its check, searches and methods weighed on it."""

import csv
import json
import re
import statistics
from pathlib import Path

import pytest

import retrain
from benchmarks.keys import key_of
from benchmarks.layoutbench import __main__ as layoutbench
from benchmarks.layoutbench.making import flops_limit, layouts_of, layouts_within
from benchmarks.layoutbench.table import all_layouts, read_table
from model import parse_layout
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from tests.pipeline.conftest import PlanWith
from tests.refusal import refused
from tests.runs import Capture, run_jobs_here, settings

TWO = ["model.candidates=[attention, dense]", "retrain.steps=4", "search.steps=6"]
TWO += ["retrain.optimiser.warmup_steps=1", "search.optimiser.warmup_steps=1", "costs.repeats=3"]
SMALL = [*TWO, "model.n_blocks=2"]
FOUR = [*TWO, "model.n_blocks=4"]


@pytest.mark.slow
def test_a_table_is_made_checked_and_searched(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("benchmarks.layout_rows.run_all", run_jobs_here)
    monkeypatch.setattr("benchmarks.layoutbench.searches.run_all", run_jobs_here)
    base = [experiment_file, *settings(*SMALL), "--workers", "2", "--run"]
    path = tmp_path / "bench/layoutbench.csv"

    def act(*arguments: object) -> int:
        return layoutbench.main([str(argument) for argument in arguments])

    assert act("make", *base, path.parent) == 0
    made, table = path.read_bytes(), read_table(path)
    assert [(row.layout, row.seed) for row in table.rows] == [
        (layout, seed) for layout in ("aa", "ad", "da", "dd") for seed in (0, 1)
    ]
    alone = ["--run", tmp_path / "alone", "--layout", "a d", "--set", "run.seed=1"]
    assert retrain.main([*map(str, [experiment_file, *settings(*SMALL), *alone])]) == 0
    (result_file,) = (tmp_path / "alone").glob("retrain/*/seed-1/result.json")
    result = json.loads(result_file.read_text())
    (row,) = (row for row in table.rows if (row.layout, row.seed) == ("ad", 1))
    nats = [result[split]["nats_per_token"] for split in ("valid", "test")]
    assert [row.valid_nats, row.test_nats] == pytest.approx(nats, abs=1e-6)
    assert act("make", *base, path.parent) == 0
    assert path.read_bytes() == made, "nothing is trained twice"
    other = refused(
        layoutbench.main, capsys, "make", *base, path.parent, "--set", "model.dropout=0"
    )
    assert "model.dropout is 0.1, now 0.0" in other

    capsys.readouterr()
    code = act("again", *base, tmp_path / "again", "--rows", 2, "--table", path)
    said = capsys.readouterr().out
    pooled = statistics.fmean(statistics.variance(pair) for pair in table.nats("test").values())
    off_by = {
        row.layout: (row.test_nats - table.mean_nats("test")[row.layout]) / pooled**0.5
        for row in read_table(tmp_path / "again/layoutbench.csv").rows
    }
    assert len(off_by) == 2
    for layout, off in off_by.items():
        assert re.search(rf"^{layout}: .*{re.escape(f'{off:+.2f}')} standard", said, re.M)
    assert code == int(max(map(abs, off_by.values())) > 4)

    search = ["search", *base, tmp_path / "found", "--table", path, "--seeds", "5,6"]
    assert act(*search) == 0
    weighed = json.loads((tmp_path / "found/regret.json").read_text())
    means = table.mean_nats("test")
    expected = [means[layout] - min(means.values()) for layout in weighed["layouts"]]
    assert weighed["regrets"]["each"] == pytest.approx(expected)
    assert (weighed["trainings"], weighed["difference"]["n"]) == (4, 2)
    assert f"a search costs {weighed['cost']:.2f} trainings" in capsys.readouterr().out


def test_every_network_of_a_space_with_identity_once_and_those_within_a_share_of_flops(
    plan_with: PlanWith,
) -> None:
    plan = plan_with(*SMALL, "model.candidates=[attention, dense, identity]")
    layouts = layouts_of(plan.experiment.model)
    assert layouts == ["aa", "ad", "ai", "da", "dd", "di", "ii"]
    costs, rest = plan.costs.by_label, plan.costs.rest
    a, d = costs["attention"], costs["dense"]
    flops = {"aa": 2 * a, "ad": a + d, "ai": a, "da": a + d, "dd": 2 * d, "di": d}
    for share in (1.0, (a + rest) / (a + d + rest), 0.9, 3.0):
        most = share * (a + d + rest) * (1 + 1e-9)
        expected = [layout for layout in layouts[:-1] if flops[layout] + rest <= most]
        assert layouts_within(plan, layouts, f"{share!r}x") == expected
    assert layouts_within(plan, layouts, str(d + rest)) == ["di"]


def write_tables(experiment_file: Path, folder: Path) -> list[str]:
    """Made-up tables of all layouts of four slots, at full and at half length, as arguments."""
    arguments = list[str]()
    for name, steps, seeds in (("table", 4, (0, 1, 2)), ("half", 2, (7,))):
        experiment = load_experiment(experiment_file, [*FOUR, f"retrain.steps={steps}"])
        plan, path = set_up(experiment, folder / "run"), folder / f"{name}.csv"
        lines = [
            f"{layout},{seed},20.0,{nats},{nats + 0.001 * seed}"
            for layout in all_layouts("ad", 4)
            for seed in seeds
            for nats in [4.0 - 0.1 * layout.count("a") - 0.02 * layout.find("d")]
        ]
        head = "layout,seed,flops_per_token,valid_nats,test_nats"
        path.write_text("\n".join([head, *lines]) + "\n")
        path.with_suffix(".json").write_text(json.dumps(key_of(experiment, plan.inputs())))
        arguments += [f"--{name}", str(path)]
    return arguments


def test_a_table_is_weighed_and_methods_are_replayed_on_it(
    experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    tables, run = write_tables(experiment_file, tmp_path), tmp_path / "replay"
    regret = ["regret", *tables[:2], "--trainings", "16", "--layouts", "aaaa", "aaad"]
    assert layoutbench.main(regret) == 0
    said = capsys.readouterr().out
    assert "random search, 16 trainings: regret " in said
    assert "n = 2: aaaa 0.0000, aaad 0.0200" in said
    assert "layout 'aaa' is not among" in refused(layoutbench.main, capsys, *regret, "aaa")
    few = tmp_path / "few.csv"
    rows = [row for row in Path(tables[1]).read_text().splitlines() if row[:3] in ("lay", "aaa")]
    few.write_text("\n".join(rows) + "\n")
    assert layoutbench.main([*regret[:3], "--trainings", "1", "--among", str(few)]) == 0
    assert capsys.readouterr().out.startswith("2 layouts, ")

    path = tmp_path / "proposals.csv"
    path.write_text(
        "within,search,cost,layout,supernet_nats\n1x,10,50000,addd,4.0\n1x,10,50000,dddd,4.1\n"
        "1x,11,60000,daad,4.0\n0.9x,10,5,aaaa,4.0\n"
    )
    path.with_suffix(".json").write_text(Path(tables[1]).with_suffix(".json").read_text())
    base = ["replay", str(experiment_file), *settings(*FOUR), "--run", str(run), *tables]
    base += ["--replays", "4", "--proposals", str(path), "--within", "1x", "0.95x"]
    assert layoutbench.main(base) == 0
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
    assert methods["predictor + search"]["cost"] > methods["predictor"]["cost"]
    assert "search, finals" not in summary["budgets"]["0.95x"]["methods"]


@pytest.mark.slow
def test_searches_propose_layouts_within_each_budget_the_best_first(
    experiment_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "propose"
    base = ["propose", str(experiment_file), *settings(*FOUR), "--run", str(run), "--seeds", "10"]
    assert layoutbench.main([*base, "--within", "1x", "0.95x"]) == 0
    plan, nats = set_up(load_experiment(experiment_file, FOUR), run), dict[str, list[float]]()
    with (run / "proposals.csv").open() as file:
        for row in csv.DictReader(file):
            limit = flops_limit(plan, row["within"])
            assert limit.holds(tuple(parse_layout(row["layout"], plan.candidates)))
            assert float(row["cost"]) / plan.costs.rest > 1.0
            nats.setdefault(row["within"], []).append(float(row["supernet_nats"]))
    assert [sorted(of) for of in nats.values()] == [nats["1x"], nats["0.95x"]]
