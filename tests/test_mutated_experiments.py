"""Experiments with one mistake each: one line with its key, never a traceback.

What is wrong with a value is told from the committed JSON schema, not from the code that reads it.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from model import BLOCKS
from pipeline.experiment import ExperimentError, load_experiment
from tests.runs import ROOT

SCHEMA = json.loads((ROOT / "configs" / "experiment.schema.json").read_text(encoding="utf-8"))

RICH = """\
run: {seed: 3, device: cpu, threads: 2, precision: float32, log_every: 10, validate_every: 100,
  checkpoint_every: 50, trackers: []}
data:
  corpus: files
  files: {train: a b.txt, valid: ä.txt, test: c.txt}
  tokenizer: {kind: bpe, vocabulary: 1024}
  batch: 8
  segment: 32
  evaluation_streams: 4
  evaluation_segment: 64
  context_tokens: 16
  validation_tokens: 1000
  test_tokens: 1000
model:
  n_blocks: 4
  d_model: 64
  n_heads: 4
  d_head: 16
  window: 32
  memory: 64
  d_ffn: 128
  activation: gelu
  dropout: 0.1
  candidates: [attention, {kind: dense, label: wide, d_ffn: 256, activation: geglu}, identity,
    {kind: attention, label: near, n_heads: 2, d_head: 8, window: 4, memory: 8}]
  softmax: {cutoffs: [200, 500], sizes: [32, 16], tied: true}
search:
  steps: 300
  estimator: single_path
  resample_every: 4
  tau: {schedule: step, start: 1, end: 2e-1, stairs: 3}
  alpha: {data: split, share: 0.3, warmup_fraction: 0.2, every: 2, lr: auto,
    betas: [0.5, 0.99], eps: 1e-3, weight_decay: 0, schedule: linear}
  optimiser: {kind: adamw, lr: 1e-3, betas: [0.9, 0.99], eps: 1e-8, weight_decay: 0.01,
    clip_norm: 0.25, clip_each_norm: 1, clip_value: 1, warmup_steps: 10, schedule: linear,
    min_lr_ratio: 0.1}
derive: {method: layout, average: 0.5, p: 3, k: 1, seed: 7, budget: {flops: 1e6},
  layout: a wide i near}
retrain:
  steps: 300
  optimiser: {kind: sgd, lr: 0.1, momentum: 0.9, warmup_steps: 0, schedule: constant}
compare: {baselines: [interleaved, par], random_layouts: 2, seeds: [0, 1, 2]}
costs: {batch: 2, repeats: 5}
sweep:
  space:
    model.memory: {low: 16, high: 64, step: 16}
    retrain.optimiser.lr: {low: 0.001, high: 1, log: true, when: {model.memory: [16, 32]}}
    model.dropout: {choices: [0, 0.1]}
  trials: 7
  objectives: [retrained]
  seeds: [3]
  sampler: {kind: tpe, seed: 3, startup: 4}
  pruner: {kind: median, min_steps: 20}
  set: {retrain.steps: 100, run.log_every: 7}
  retries: 1
  storage: postgresql://u@localhost:5432/d
  grace_s: 20
"""
TREE = """\
data:
  corpus: tree
  tree: {folder: notes, include: ["**/*.md"], exclude: [x]}
model: {n_blocks: 2, d_model: 8, n_heads: 2, d_ffn: 16}
search: {steps: 10}
retrain: {steps: 10}
"""

PAGES = {"rich": RICH, "tree": TREE}
# A spelling of each type of JSON.
SPELLED = {
    "integer": "3",
    "number": "3.5",
    "string": "word",
    "boolean": "true",
    "array": "[[]]",
    "object": "{a: 3}",
}


def keys(node: Any, found: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key that may stand in a page, with the schema of its value."""
    for name, inner in node.get("properties", {}).items():
        here = (found or {}).get(name)
        resolved = resolve(inner, here)
        yield f"{key}{name}", resolved
        yield from keys(resolved, here, f"{key}{name}.")


def resolve(node: dict[str, Any], found: Any) -> dict[str, Any]:
    """A node without references; of a union the member that fits what is there."""
    members = [m for m in node.get("anyOf", node.get("oneOf", [])) if "$ref" in m]
    if "$ref" not in node and members and isinstance(found, dict):
        node = members[0]
    return SCHEMA["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def wrong_values(node: dict[str, Any]) -> list[str]:
    """Spellings of the types that no value of this schema has."""
    members = [resolve(member, None) for member in node.get("anyOf", node.get("oneOf", [node]))]
    types = {member["type"] for member in members}
    types |= {"integer"} if "number" in types else set()
    return [word for kind, word in SPELLED.items() if kind not in types]


def said(path: Path, overrides: Sequence[str]) -> list[str]:
    """What is wrong with a page under some settings."""
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path, overrides)
    return caught.value.problems


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.yaml"
    path.write_text(PAGES[request.param], encoding="utf-8")
    return path


def test_every_key_of_the_schema_refuses_a_wrong_type_by_its_name(page: Path) -> None:
    load_experiment(page)
    found = [*keys(SCHEMA, yaml.safe_load(page.read_text(encoding="utf-8")))]
    assert len(found) > 150
    for number, (key, node) in enumerate(found):
        words = wrong_values(node)
        text = f"{key}={words[number % len(words)]}"
        (line,) = said(page, [text])
        assert line.startswith(f"--set {text}: {key}"), line


def test_every_option_of_a_candidate_refuses_a_wrong_type_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(RICH, encoding="utf-8")
    for name, kind in BLOCKS.items():
        options = SCHEMA["$defs"][kind.options.__name__]["properties"]
        for number, option in enumerate(name for name in options if name != "kind"):
            words = wrong_values(options[option])
            value = f"{{kind: {name}, {option}: {words[number % len(words)]}}}"
            (line,) = said(path, [f"model.candidates=[{value}, dense]"])
            assert f": model.candidates[0].{option}: " in line


CONFLICTS = [
    # (the page, what is put there, the key to be named)
    ("rich", {"search.tau.schedule": "linear"}, "search.tau.stairs"),
    ("rich", {"search.alpha.data": "shared"}, "search.alpha.share"),
    ("rich", {"search.alpha.betas": "[0.5, 1]"}, "search.alpha.betas[1]"),
    ("rich", {"search.alpha.lr": "0"}, "search.alpha.lr"),
    ("rich", {"search.resample_every": "0"}, "search.resample_every"),
    ("rich", {"search.steps": "10"}, "search.optimiser.warmup_steps"),
    ("rich", {"search.optimiser.kind": "sgd"}, "search.optimiser.betas"),
    ("rich", {"search.optimiser.schedule": "constant"}, "search.optimiser.min_lr_ratio"),
    ("rich", {"retrain.optimiser.kind": "lamb"}, "retrain.optimiser.momentum"),
    ("rich", {"model.softmax.cutoffs": "[200]"}, "model.softmax.sizes"),
    ("rich", {"model.candidates": "[dense, dense]"}, "model.candidates"),
    ("rich", {"model.candidates": "[]"}, "model.candidates"),
    ("rich", {"model.candidates": "[dense, 3]"}, "model.candidates[1]"),
    ("rich", {"model.candidates": "[[dense]]"}, "model.candidates[0]"),
    ("rich", {"model.candidates": "[{label: ab}]"}, "model.candidates[0].kind"),
    ("rich", {"model.candidates": "[{kind: dense, label: Keys}]"}, "model.candidates[0].label"),
    *(("rich", {"model.candidates": f"[{{kind: dense, label: {label}}}]"},
       "model.candidates[0].label") for label in ("w", "a.b", "x" * 41)),
    ("rich", {"model.candidates": "[{kind: dense, d_ffn: null}]"}, "model.candidates[0].d_ffn"),
    ("rich", {"compare.baselines": "[interlaved]"}, "compare.baselines[0]"),
    ("rich", {"retrain.optimiser": "{kind: sgd, eps: 1e-8}"}, "retrain.optimiser.eps"),
    ("rich", {"data.tokenizer.kind": "bytes"}, "data.tokenizer.vocabulary"),
    ("rich", {"data.tokenizer.model": "x"}, "data.tokenizer.model"),
    ("rich", {"data.tokenizer": "{kind: given}"}, "data.tokenizer.model"),
    ("rich", {"data.tokenizer": "{kind: bytes, lower_case: true}"}, "data.tokenizer.lower_case"),
    ("rich", {"data.tokenizer.kind": "unigrm"}, "data.tokenizer.kind"),
    ("rich", {"data.corpus": "tree", "data.files": "null"}, "data.tree"),
    ("rich", {"data.corpus": "enwik8"}, "data.files"),
    ("rich", {"data.tree": "{folder: a, include: [b]}"}, "data.tree"),
    ("rich", {"derive.layout": "null"}, "derive.layout"),
    ("rich", {"compare.seeds": "[1, 1]"}, "compare.seeds"),
    ("tree", {"data.tree.include": "[]"}, "data.tree.include"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "key"), CONFLICTS, ids=lambda part: str(part)[:50])
def test_settings_that_contradict_each_other(
    tmp_path: Path, name: str, changes: dict[str, str], key: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(PAGES[name], encoding="utf-8")
    (line,) = said(path, [f"{setting}={word}" for setting, word in changes.items()])
    assert f": {key}: " in line
