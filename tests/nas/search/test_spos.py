"""Uniform single paths: weights train, alpha stands still, and what cannot be asked is refused."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import derive
import search
from model import load_architecture
from nas.search.plan import SearchPlan
from nas.search.trajectory import load_pi
from tests import tiny
from tests.nas.search.test_step import make
from tests.test_pipeline import rows

START_LC = torch.tensor([[0.3, -0.1, 0.7]] * 3)


def test_alpha_may_learn_by_another_estimator_while_the_weights_see_uniform_draws() -> None:
    step, state = make(estimator="spos", data="prequential")
    learning, _ = make(estimator="spos", alpha_estimator="two_path", data="prequential")
    drawn = [[k for ((k, _),) in each.mix(state)] for each in (step, learning)]
    assert drawn[0] == drawn[1]
    state.parameters["alpha"].data = START_LC.clone()
    state.step = learning.plan.alpha_start
    learning(state, tiny.batch(first=True))
    assert not torch.equal(state.parameters["alpha"], START_LC)


@pytest.mark.parametrize("estimator", ["soft", "straight_through", "two_path"])
def test_frozen_trains_uniform_single_paths_until_alphas_first_step(estimator: str) -> None:
    step, state = make(40, estimator=estimator, data="prequential")
    frozen = step.plan.config.model_copy(update={"warmup_estimator": "spos"})
    plan = SearchPlan(frozen, 40, 5, 4)
    kinds = []
    for state.step in range(40):
        terms = type(step)(plan, step.weight_step, 0).mix(state)
        kinds.append(all(len(each) == 1 and each[0][1] is None for each in terms))
    assert kinds == [True] * 10 + [False] * 30
    draws = [plan.draw(step) for step in range(40)]
    assert draws[:10] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert draws[10:] == [step // plan.resample_every for step in range(10, 40)]


def test_a_search_ends_with_pi_uniform_and_argmax_says_why_it_cannot_choose(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("report.searches.write_search_figures", lambda folder: [])
    arguments = [str(experiment_file), "--run", str(tmp_path / "run")]
    settings = ["--set", "search.estimator=spos", "--seeds", "0,1"]
    assert search.main([*arguments, *settings]) == 0
    folder = tmp_path / "run/search/seed-0"
    assert not load_pi(folder / "pi.npz")["alpha"].any()
    assert np.allclose(load_pi(folder / "pi.npz")["pi"], 1 / 3)
    assert not load_file(folder / "last.safetensors")["parameter.alpha"].any()
    valid = [row for row in rows(folder / "metrics.jsonl") if row["kind"] == "valid"]
    assert {row["net"] for row in valid} == {"drawn"}
    assert valid[-1]["nats_per_token"] < valid[0]["nats_per_token"]
    out = capsys.readouterr().out
    assert "alpha: does not move, pi stays uniform" in out
    assert "no agreement of these searches: alpha does not move" in out
    assert "kappa" not in out
    (after,) = re.findall(r"next: .*derive\.py (.*)", out)
    assert after.endswith("--method evolution --seeds 0,1")
    few = ["--set", "derive.population=4", "--set", "derive.generations=1"]
    assert derive.main([*shlex.split(after), *few]) == 0
    assert "agreement" not in capsys.readouterr().out
    evidence = load_architecture(tmp_path / "run/architecture.json").evidence
    assert evidence.agreement is None
    with pytest.raises(SystemExit) as stop:
        derive.main([str(tmp_path / "run")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "argmax: with search.estimator spos alpha does not move" in error
    assert "search.alpha.estimator: straight_through" in error
