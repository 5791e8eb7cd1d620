"""Scores by a SuperNet's weights are those of the derived model with the same weights."""

import csv
import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import derive
import search
from model import Architecture, build_model, load_architecture, parse_layout
from pipeline.cli import find_experiment
from pipeline.context import RunPlan, set_up
from pipeline.experiment import load_experiment
from pipeline.supernet_scores import Inherited, load_supernet
from tests.refusal import refused
from tests.test_pipeline import run
from utils.pi import softmax

LAYOUTS = ("a d i a", "d d d d", "i a a d")


def plan_of(folder: Path, *settings: str) -> RunPlan:
    return set_up(load_experiment(find_experiment(folder), settings), folder)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search whose slots share weights two apart."""
    from tests.conftest import without_figures, write_experiment

    folder = tmp_path_factory.mktemp("tied")
    with without_figures(folder):
        settings = ["--set", "model.tie_slots=2", "--set", "search.steps=12"]
        run(search, write_experiment(folder), "--run", folder / "run", *settings)
    return folder / "run"


@pytest.fixture(params=["undisturbed", "tied"])
def searched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of one of two finished searches; what they prepared is found again."""
    return copy_of(request.getfixturevalue(request.param), tmp_path / "run", monkeypatch)


def derived_model(plan: RunPlan, letters: str) -> Any:
    """The derived model, with its weights copied from the SuperNet by hand."""
    config, net = plan.experiment.model, load_supernet(plan, 0)
    layout = parse_layout(letters, config.completed_candidates())
    made = Architecture.model_validate(
        {
            "name": "x", "d_model": config.d_model, "slots": layout, "softmax": plan.softmax,
            "tie_slots": config.tie_slots, "tokenizer": {"digest": ""},
            "vocabulary_size": plan.prepared.tokenizer.vocabulary_size,
        }
    )  # fmt: skip
    model, weights = build_model(made), net.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


@pytest.mark.parametrize("letters", LAYOUTS)
def test_a_score_is_the_derived_models_with_copied_weights(searched: Path, letters: str) -> None:
    plan = plan_of(searched)
    layout = parse_layout(letters, plan.experiment.model.completed_candidates())
    score = Inherited(plan, [0]).score(layout)
    model = derived_model(plan, letters)
    evaluation = plan.evaluate(model, plan.streams("valid"))
    assert score.tokens == evaluation.tokens
    assert score.nats_per_token == pytest.approx(evaluation.nats_per_token, abs=1e-6)


def test_the_soft_net_is_the_searchs_last_validation(searched: Path) -> None:
    plan = plan_of(searched)
    pi_LC = np.load(searched / "search/seed-0/pi.npz")["pi"][-1].astype(np.float64)
    text = (searched / "search/seed-0/metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    last = [row["nats_per_token"] for row in rows if row.get("net") == "soft"][-1]
    assert Inherited(plan, [0]).soft(pi_LC[None]).nats_per_token == pytest.approx(last, abs=1e-6)


def test_a_layout_is_scored_once_and_on_as_many_tokens_as_asked(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(copy_of(undisturbed, tmp_path / "run", monkeypatch))
    candidates = plan.experiment.model.completed_candidates()
    inherited = Inherited(plan, [0], tokens=100)
    first = inherited.score(parse_layout("a d i a", candidates))
    assert first.tokens == 99
    assert inherited.score(parse_layout("a d i a", candidates)) is first
    other = inherited.score(parse_layout("a d d a", candidates))
    assert np.array_equal(first.tokens_P, other.tokens_P)
    assert other.nats_per_token != first.nats_per_token


def test_a_networks_score_is_the_mean_over_its_layouts_that_were_scored(
    searched: Path,
) -> None:
    plan = plan_of(searched)
    candidates = plan.experiment.model.completed_candidates()
    one, two = (parse_layout(letters, candidates) for letters in ("a d i i", "a i d i"))
    inherited = Inherited(plan, [0], tokens=100)
    first, second = inherited.score_of_layout(one), inherited.score_of_layout(two)
    assert first.nats_per_token != second.nats_per_token
    mean = (first.nats_per_token + second.nats_per_token) / 2
    for layout in (one, two):
        assert inherited.score(layout).nats_per_token == pytest.approx(mean, abs=1e-12)
    assert Inherited(plan, [0], tokens=100).score(two).nats_per_token == second.nats_per_token


def copy_of(undisturbed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed / "search", folder / "search")
    return folder


def test_top_k_leaves_a_table_and_its_evidence(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = copy_of(undisturbed, tmp_path / "run", monkeypatch)
    monkeypatch.setattr("pipeline.caveats._MOST_RATIO", 0.5)
    run(derive, folder, "--method", "top_k", "--set", "derive.top=5")
    shown = capsys.readouterr()
    assert "warning: this layout costs" not in shown.out
    architecture = load_architecture(folder / "architecture.json")
    assert architecture.name == "top_k-0"
    with (folder / "architectures/top_k-0.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["layout"] for row in rows}) == 5
    nats = [float(row["nats_per_token"]) for row in rows]
    assert rows[int(np.argmin(nats))]["layout"] == architecture.letters()
    evidence = architecture.evidence
    assert evidence is not None
    assert evidence.inherited is not None
    assert evidence.inherited.nats_per_token == min(nats)
    assert evidence.gap is not None
    assert evidence.gap.one_hot == evidence.inherited
    ratio = math.exp(evidence.gap.one_hot.nats_per_token - evidence.gap.soft.nats_per_token)
    assert evidence.gap.ratio == pytest.approx(ratio, abs=1e-5)
    assert "top_k: at most 5 layouts are scored" in shown.err
    assert f"perplexity of one-hot over soft: {evidence.gap.ratio:.4f}" in shown.out
    before = (folder / "architecture.json").read_bytes()
    run(derive, folder, "--method", "top_k", "--set", "derive.top=5")
    assert (folder / "architecture.json").read_bytes() == before


def test_argmax_warns_of_its_gap_and_says_how_many_layouts_are_scored(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = copy_of(undisturbed, tmp_path / "run", monkeypatch)
    monkeypatch.setattr("pipeline.caveats._MOST_RATIO", 0.5)
    monkeypatch.setattr("pipeline.supernet_scores._EVERY_S", -1.0)
    run(derive, folder)
    shown = capsys.readouterr()
    assert "more perplexity than pi's mixture (more than -50%)" in shown.out
    assert "\n2 layouts scored with the SuperNet's weights\n" in shown.err


def spoilt(path: Path) -> None:
    """Flip one bit in the last tensor."""
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Path.unlink, r"last\.safetensors: not found; the SuperNet's weights are needed"),
        (spoilt, r"last\.safetensors: damaged checkpoint .* start search\.py again"),
    ],
)
def test_weights_that_are_gone_or_damaged_are_named(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], damage: Any, words: str,
) -> None:  # fmt: skip
    folder = copy_of(undisturbed, tmp_path / "run", monkeypatch)
    damage(folder / "search/seed-0/last.safetensors")
    said = refused(derive.main, capsys, folder, "--method", "top_k")
    assert re.search(words, said)
    assert not (folder / "architecture.json").exists()
    # What needs no weights goes on, and says what is missing.
    run(derive, folder)
    said = capsys.readouterr().out
    assert re.search(f"discretisation gap: not measured: .*{words}", said)
    evidence = load_architecture(folder / "architecture.json").evidence
    assert evidence is not None
    assert evidence.gap is None
    assert re.match(f"discretisation gap: not measured: .*{words}", evidence.caveats[0])


def test_several_searches_score_by_the_mean_of_their_supernets(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(undisturbed, tmp_path / "run", monkeypatch)
    run(search, folder, "--set", "run.seed=3")
    plan = plan_of(folder)
    layout = parse_layout("a d i a", plan.experiment.model.completed_candidates())

    def nats(seeds: Sequence[int]) -> float:
        return Inherited(plan, seeds).score(layout).nats_per_token

    assert nats([0]) != nats([3])
    assert nats([0, 3]) == pytest.approx((nats([0]) + nats([3])) / 2, abs=1e-9)
    own = [np.load(folder / f"search/seed-{seed}/pi.npz")["alpha"][-6:] for seed in (0, 3)]
    pi_RLC = softmax(np.stack([alpha_NLC.astype(np.float64).mean(0) for alpha_NLC in own]))
    softs = [
        Inherited(plan, [seed]).soft(pi_LC[None]).nats_per_token
        for seed, pi_LC in zip((0, 3), pi_RLC, strict=True)
    ]
    crossed = Inherited(plan, [0, 3]).soft(pi_RLC[::-1]).nats_per_token
    run(derive, folder, "--seeds", "0,3")
    architecture = load_architecture(folder / "architecture.json")
    assert architecture.name == "argmax-0-3"
    assert architecture.provenance["search_seed"] == "0, 3"
    evidence = architecture.evidence
    assert evidence is not None
    assert evidence.agreement is not None
    assert evidence.agreement.searches == (0, 3)
    assert evidence.gap is not None
    assert evidence.gap.soft.nats_per_token == pytest.approx(np.mean(softs), abs=1e-6)
    assert abs(crossed - np.mean(softs)) > 1e-5, "else each SuperNet might have the other's pi"
