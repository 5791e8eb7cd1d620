"""Scores by a SuperNet's weights: what they are of, which are kept, and what is said of them."""

import csv
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import derive
import search
from model import Architecture, Layout, build_model, load_architecture, parse_layout
from nas.statistics.paired_scores import Score
from pipeline import layout_scores
from pipeline.layout_scores import SupernetScores, load_supernet
from pipeline.plan import RunPlan
from tests.conftest import copy_of_run, without_figures, write_experiment
from tests.pipeline.conftest import plan_of_run
from tests.refusal import refused
from tests.runs import code_of, settings
from tests.test_pipeline import run
from utils.pi import softmax

SCORES = "search/seed-0/scores.jsonl"


def layout_of(plan: RunPlan, letters: str) -> Layout:
    return parse_layout(letters, plan.candidates)


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search whose slots share weights two apart."""
    folder = tmp_path_factory.mktemp("tied")
    with without_figures(folder):
        options = settings("model.tie_blocks=2", "search.steps=12")
        run(search, write_experiment(folder), "--run", folder / "run", *options)
    return folder / "run"


@pytest.fixture(params=["undisturbed", "tied"])
def free_or_tied(request: pytest.FixtureRequest, experiment_file: Path, tmp_path: Path) -> Path:
    """A copy of one of two finished searches; what they prepared is found again."""
    return copy_of_run(request.getfixturevalue(request.param), tmp_path, "search")


def derived_model(plan: RunPlan, letters: str) -> Any:
    """The derived model, with its weights copied from the SuperNet by hand."""
    net = load_supernet(plan)
    model = build_model(
        Architecture.model_validate(
            {"name": "x", "blocks": layout_of(plan, letters), "tokenizer": {"digest": ""}}
            | plan.sizes
        )
    )
    weights = net.state_dict()
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


@pytest.mark.parametrize("letters", ["a d i a", "d d d d", "i a a d"])
def test_a_score_is_the_derived_models_with_copied_weights(
    free_or_tied: Path, letters: str
) -> None:
    plan = plan_of_run(free_or_tied)
    score = SupernetScores(plan, [0]).score(layout_of(plan, letters))
    evaluation = plan.evaluate(derived_model(plan, letters), plan.streams("valid"))
    assert score.tokens == evaluation.tokens
    assert score.nats_per_token == pytest.approx(evaluation.nats_per_token, abs=1e-6)


def test_the_soft_net_is_the_searchs_last_validation(free_or_tied: Path) -> None:
    pi_LC = np.load(free_or_tied / "search/seed-0/pi.npz")["pi"][-1].astype(np.float64)
    text = (free_or_tied / "search/seed-0/metrics.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    last = [row["nats_per_token"] for row in rows if row.get("net") == "soft"][-1]
    soft = SupernetScores(plan_of_run(free_or_tied), [0]).soft(pi_LC[None])
    assert soft.nats_per_token == pytest.approx(last, abs=1e-6)


def test_several_searches_score_by_the_mean_of_their_supernets(searched: Path) -> None:
    run(search, searched, "--set", "run.seed=3")
    plan = plan_of_run(searched)

    def nats(seeds: Sequence[int]) -> float:
        return SupernetScores(plan, seeds).score(layout_of(plan, "a d i a")).nats_per_token

    assert nats([0]) != nats([3])
    assert nats([0, 3]) == pytest.approx((nats([0]) + nats([3])) / 2, abs=1e-9)
    own = [np.load(searched / f"search/seed-{seed}/pi.npz")["alpha"][-6:] for seed in (0, 3)]
    pi_RLC = softmax(np.stack([alpha_NLC.astype(np.float64).mean(0) for alpha_NLC in own]))
    softs = [
        SupernetScores(plan, [seed]).soft(pi_LC[None]).nats_per_token
        for seed, pi_LC in zip((0, 3), pi_RLC, strict=True)
    ]
    crossed = SupernetScores(plan, [0, 3]).soft(pi_RLC[::-1]).nats_per_token
    run(derive, searched, "--seeds", "0,3")
    architecture = load_architecture(searched / "architecture.json")
    assert architecture.name == "argmax-0-3"
    assert architecture.provenance["search_seed"] == "0, 3"
    evidence = architecture.evidence
    assert evidence is not None
    assert evidence.agreement is not None
    assert evidence.agreement.searches == (0, 3)
    assert evidence.gap is not None
    assert evidence.gap.soft.nats_per_token == pytest.approx(np.mean(softs), abs=1e-6)
    assert abs(crossed - np.mean(softs)) > 1e-5, "else each SuperNet might have the other's pi"


def test_top_k_leaves_a_table_and_its_evidence(
    searched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.summary._MOST_RATIO", 0.5)
    run(derive, searched, "--method", "top_k", "--set", "derive.top=5")
    shown = capsys.readouterr()
    assert "warning: this layout costs" not in shown.out
    architecture = load_architecture(searched / "architecture.json")
    assert architecture.name == "top_k-0"
    with (searched / "architectures/top_k-0.csv").open(newline="") as file:
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
    assert "top_k: scores at most 5 layouts" in shown.err
    assert f"discretisation gap: {evidence.gap.ratio - 1:+.1%} perplexity" in shown.out
    before = (searched / "architecture.json").read_bytes()
    run(derive, searched, "--method", "top_k", "--set", "derive.top=5")
    assert (searched / "architecture.json").read_bytes() == before


def test_weights_that_are_gone_are_named(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = r"last\.safetensors: not found, or not of the last step; the SuperNet's weights"
    (searched / "search/seed-0/last.safetensors").unlink()
    assert re.search(message, refused(derive.main, capsys, searched, "--method", "top_k"))
    assert not (searched / "architecture.json").exists()
    # What needs no weights goes on, and says what is missing.
    run(derive, searched)
    missing = f"discretisation gap: not measured: .*{message}"
    assert re.search(missing, capsys.readouterr().out)
    evidence = load_architecture(searched / "architecture.json").evidence
    assert evidence is not None
    assert evidence.gap is None
    assert re.match(missing, evidence.caveats[0])


class Passes:
    """Counts passes over the text; at one of them Ctrl-C is pressed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int | None = None) -> None:
        self.count, self.last, self.evaluate = 0, last, layout_scores.evaluate_cells
        monkeypatch.setattr("pipeline.layout_scores.evaluate_cells", self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.count == self.last:
            raise KeyboardInterrupt
        self.count += 1
        return self.evaluate(*arguments, **options)


def interrupted(main: Callable[[list[str]], int], arguments: list[str], after: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        Passes(patched, after)
        assert code_of(main, *arguments) == 130


def passes_of(arguments: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patched:
        passes = Passes(patched)
        assert derive.main(arguments) == 0
    return passes.count


@pytest.mark.parametrize(
    ("method", "options"),
    {
        "top_k": ["derive.top=6"],
        "beam": ["derive.evaluations=9"],
        "evolution": ["derive.population=4", "derive.generations=2"],
    }.items(),
)
def test_an_interrupted_derivation_scores_nothing_again_and_ends_the_same(
    searched: Path, method: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(searched), "--method", method, *settings(*options)]
    whole = searched.parent / "whole"
    shutil.copytree(searched, whole)
    undisturbed = passes_of([str(whole), *arguments[1:]])
    interrupted(derive.main, arguments, 4)
    assert "interrupted; what was written is kept. Resume with" in capsys.readouterr().err
    with (searched / SCORES).open("ab") as file:
        file.write(b'{"key": "torn')
    assert passes_of(arguments) == undisturbed - 4
    for name in ("architecture.json", f"architectures/{method}-0.csv"):
        assert (searched / name).read_bytes() == (whole / name).read_bytes()


def scored(folder: Path, *options: str, tokens: int | None = None) -> Score:
    plan = plan_of_run(folder, *options)
    return SupernetScores(plan, [0], tokens).score(layout_of(plan, "a d i a"))


def test_a_kept_score_serves_the_same_text_weights_machine_and_sources_alone(
    searched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = scored(searched), scored(searched, tokens=100)
    assert part.tokens == 99
    passes = Passes(monkeypatch)
    assert scored(searched).nats_P.tobytes() == whole.nats_P.tobytes()
    assert scored(searched, tokens=100).nats_P.tobytes() == part.nats_P.tobytes()
    assert scored(searched, "retrain.steps=7").nats_per_token == whole.nats_per_token
    assert passes.count == 0
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.layout_scores.machine", lambda device: {"threads": 7})
        scored(searched)
    assert passes.count == 1
    with monkeypatch.context() as patched:
        # Two changed trees have one commit; a tree without git has none.
        patched.setattr("pipeline.layout_scores.source_digest", lambda parts: "other")
        scored(searched)
    assert passes.count == 2

    def of_another_search(plan: RunPlan) -> Any:
        net = load_supernet(plan)
        with torch.no_grad():
            next(net.parameters()).add_(0.1)
        return net

    monkeypatch.setattr("pipeline.layout_scores.load_supernet", of_another_search)
    assert scored(searched).nats_per_token != whole.nats_per_token
    assert passes.count == 3
