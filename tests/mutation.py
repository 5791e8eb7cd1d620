"""Experiment files with a known mistake in a known place, and the answers of --check to them.

A page is a tree of mappings, lists and YAML spellings; written out, every key has its line. What is
wrong with a value is told from the committed JSON schema, not from the code that reads the file.
"""

import copy
import importlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from model import BLOCKS

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "configs" / "experiment.schema.json").read_text(encoding="utf-8"))
FILE = "x.yaml"

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
  slots: 4
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
  tau: {schedule: step, start: 1, end: 3e-1, stairs: 3}
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
compare: {opponents: [interleaved, par], random_layouts: 2, seeds: [0, 1, 2]}
costs: {batch: 2, repeats: 5, patience_s: 1}
sweep:
  space:
    model.memory: {low: 16, high: 64, step: 16}
    search.alpha.lr: {low: 0.001, high: 1, log: true, when: {model.memory: [16, 32]}}
    model.dropout: {choices: [0, 0.1]}
  trials: 7
  objectives: [retrained]
  seeds: [3, 4, 5, 6, 7]
  sampler: {kind: tpe, seed: 3, startup: 4}
  pruner: {kind: wilcoxon, p: 0.1}
  set: {retrain.steps: 100, run.log_every: 7}
  baseline: false
  trial_minutes: 3
  retries: 1
  keep: [best, 3]
  storage: postgresql://u@localhost:5432/d
  grace_s: 20
"""
AUTO = """\
data:
  corpus: tree
  tree: {folder: notes, include: ["**/*.md"], exclude: [x]}
model: {slots: 2, d_model: 8, n_heads: 2, d_ffn: 16, softmax: {cutoffs: auto, clusters: 3}}
search: {steps: 10}
retrain: {steps: 10}
"""

Key = tuple[str | int, ...]
# A line of stderr: the line of the file (0: any) or the text of a --set, and the key if it has one.
Said = tuple[int | str, str | None]


@dataclass(frozen=True)
class Mutant:
    """A changed file and what must be said about it; nothing: it is valid."""

    name: str
    text: bytes
    said: tuple[Said, ...] = ()
    sets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A tree of scalars as they are spelled, the file that it is, and the line of each key."""

    tree: dict[str, Any]
    text: str
    line_of: dict[Key, int]

    def at(self, key: Key) -> Any:
        """What stands at a key; None where nothing does."""
        here: Any = self.tree
        for part in key:
            here = here.get(part) if isinstance(here, dict) else here[part]
            if here is None:
                return None
        return here

    def with_value(self, key: Key, spelled: Any) -> "Page":
        """The page with another value at a key."""
        tree = copy.deepcopy(self.tree)
        here: Any = tree
        for part in key[:-1]:
            here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
        here[key[-1]] = spelled
        return write_out(tree)


def write_out(tree: dict[str, Any]) -> Page:
    """A tree in block style, a key a line."""
    lines: list[str] = []
    line_of: dict[Key, int] = {}

    def mapping(value: dict[str, Any], key: Key, indent: str) -> None:
        for name, inner in value.items():
            here = (*key, name)
            line_of[here] = len(lines) + 1
            if isinstance(inner, dict) and inner:
                lines.append(f"{indent}{name}:")
                mapping(inner, here, indent + "  ")
            elif isinstance(inner, list) and any(isinstance(item, dict) for item in inner):
                lines.append(f"{indent}{name}:")
                for place, item in enumerate(inner):
                    lines.append(f"{indent}  - {_flow(item)}")
                    line_of[(*here, place)] = len(lines)
            else:
                lines.append(f"{indent}{name}: {_flow(inner)}".rstrip(" "))

    mapping(tree, (), "")
    return Page(tree, "\n".join(lines) + "\n", line_of)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return f'"{value}"' if "*" in value else value


def dotted(key: Key) -> str:
    """`search.tau.end`, `model.candidates[1].d_ffn`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


def line_of(page: Page, key: Key) -> int:
    """The line of a key, or of the nearest one around it."""
    while key not in page.line_of:
        key = key[:-1]
    return page.line_of[key]


def keys(page: Page, node: Any = SCHEMA, key: Key = ()) -> Iterator[tuple[Key, dict[str, Any]]]:
    """Every key that may stand in this page, with the schema of its value."""
    for name, inner in node.get("properties", {}).items():
        here = (*key, name)
        yield here, (resolved := _resolved(inner, page.at(here)))
        yield from keys(page, resolved, here)
        named_freely = resolved.get("additionalProperties")
        if isinstance(named_freely, dict):
            for freely in page.at(here) or {}:
                value = _resolved(named_freely, None)
                yield (*here, freely), value
                yield from keys(page, value, (*here, freely))
    if node is SCHEMA:
        kinds = {name: kind.options.__name__ for name, kind in BLOCKS.items()}
        for place, candidate in enumerate(page.at(("model", "candidates")) or []):
            if isinstance(candidate, dict):
                options = SCHEMA["$defs"][kinds[candidate["kind"]]]
                for name, inner in options["properties"].items():
                    if name != "kind":
                        yield ("model", "candidates", place, name), inner


def _resolved(node: dict[str, Any], found: Any) -> dict[str, Any]:
    """A node without references; of a union the member that fits what is there."""
    members = [m for m in node.get("anyOf", node.get("oneOf", [])) if "$ref" in m]
    if "$ref" not in node and members and isinstance(found, dict):
        node = members[-1 if found.get("cutoffs") == "auto" else 0]
    if "$ref" in node:
        return SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    return node


# A spelling of each type of JSON.
_SPELLED = {
    "integer": "3",
    "number": "3.5",
    "string": "word",
    "boolean": "true",
    "array": "[[]]",
    "object": "{a: 3}",
}


def wrong_values(node: dict[str, Any]) -> list[str]:
    """Spellings of the types that no value of this schema has."""
    members = [_resolved(member, None) for member in node.get("anyOf", node.get("oneOf", [node]))]
    types = {member["type"] for member in members}
    types |= {"integer"} if "number" in types else set()
    return [word for kind, word in _SPELLED.items() if kind not in types]


# BaseLoader resolves nothing: every scalar stays as it is spelled.
PAGES = {
    name: write_out(yaml.load(text, yaml.BaseLoader))
    for name, text in {"rich": RICH, "auto": AUTO}.items()
}
MAINS = [importlib.import_module(n).main for n in ("search", "derive", "retrain", "compare")]
Checked = Callable[[Mutant, int], tuple[object, str]]


def answer(mutant: Mutant, number: int) -> object:
    """The exit code of one of the four scripts, told to check a mutant in the current folder."""
    Path(FILE).write_bytes(mutant.text)
    sets = [part for text in mutant.sets for part in ("--set", text)]
    try:
        return MAINS[number % len(MAINS)]([FILE, "--check", *sets])
    except SystemExit as stop:
        return stop.code


def complaint(mutant: Mutant, code: object, err: str) -> str | None:
    """What is wrong with the answer to a mutant; None if nothing is."""
    lines = err.splitlines()
    if code != (2 if mutant.said else 0) or len(lines) != len(mutant.said):
        return f"exit code {code}, {lines[:3]}"
    for line, (place, key) in zip(lines, mutant.said, strict=True):
        if isinstance(place, str):
            origin = re.escape(f"--set {place}")
        else:
            origin = rf"{FILE}:{place or '[0-9]+'}" + ("" if key else "(:[0-9]+)?")
        if not re.match(origin + ": " + (re.escape(f"{key}: ") if key else "") + r"\S", line):
            return f"expected {place} {key}, found {line!r}"
        if len(line) > 2000 or not line.isprintable():
            return f"unprintable or endless: {line[:100]!r}"
    return None


def failures(mutants: list[Mutant], check: Checked) -> list[str]:
    """What is wrong with the answers to many mutants."""
    answers = [(mutant, *check(mutant, number)) for number, mutant in enumerate(mutants)]
    return [f"{m.name}: {words}" for m, *answer in answers if (words := complaint(m, *answer))]


def refuse(name: str, text: str | bytes, *said: Said, sets: Sequence[str] = ()) -> Mutant:
    """A mutant about which something must be said; without words it is valid."""
    return Mutant(name, text.encode() if isinstance(text, str) else text, said, tuple(sets))
