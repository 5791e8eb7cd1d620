"""Hundreds of mutated experiment files: exit code 2 for the invalid ones, never a traceback."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.mutation import (
    CONFIGS,
    FILE,
    RICH,
    ROOT,
    SIXTHS,
    Checked,
    Key,
    Mutant,
    Page,
    complaint,
    dotted,
    failures,
    keys,
    line_of,
    pages,
    refuse,
    sample,
    wrong_items,
    wrong_values,
)
from tests.runs import settings
from utils.strict_yaml import read_yaml

PAGES = pages()


def wrong(page: Page, name: str, count: int) -> Iterator[tuple[Key, Key, str]]:
    """Wrong values of all keys that a page may have: the key, the key to be named, the value."""
    for key, node in keys(page):
        if key == ("model", "softmax", "cutoffs") and page.at(key) == "auto":
            continue  # another value makes another softmax of it, without clusters
        words = wrong_values(node)
        if len(key) == 1:  # a section may be left empty
            words = [word for word in words if word not in ("", "~", "null")]
        for word in sample(words, count, f"{name}{key}"):
            yield key, key, word
        for place, word in sample(wrong_items(node), 1, f"{name}{key}"):
            yield key, (*key, place), word


@SIXTHS
def test_a_wrong_value_is_named_with_its_line_and_key(check: Checked, sixth: int) -> None:
    mutants = []
    for name, page in PAGES.items():
        for key, there, word in wrong(page, name, 2 if name == "rich" else 1):
            changed = page.with_value(key, word)
            said = (line_of(changed, there), dotted(there))
            mutants.append(refuse(f"{name} {dotted(key)}={word}", changed.text, said))
    assert len(mutants) > 500
    assert failures(mutants[sixth::6], check) == []


@SIXTHS
def test_a_wrong_value_of_an_override_is_named_with_the_override(
    check: Checked, sixth: int
) -> None:
    mutants = []
    for name in ("rich", "auto"):
        for key, there, word in wrong(PAGES[name], name, 1):
            if len(word) > 1000 or any(isinstance(part, int) or "." in part for part in key):
                continue
            text = f"{dotted(key)}={word}"
            said = (text.strip(), dotted(there))
            mutants.append(refuse(f"{name} --set {text}", PAGES[name].text, said, sets=[text]))
    assert len(mutants) > 100
    assert failures(mutants[sixth::6], check) == []


def with_line(page: Page, number: int, line: str, key: str | None, name: str) -> Mutant:
    return refuse(f"{name} {line}", page.with_line(number, line), (number, key))


def misspelled(name: str, page: Page) -> Iterator[Mutant]:
    """Unknown keys, missing keys, keys and sections given twice, keys that are no text."""
    sections = [
        key for key in page.line_of if isinstance(page.at(key), dict) and isinstance(key[-1], str)
    ]
    for key in sections:
        draw = f"{name}{key}"
        first = min(n for k, n in page.line_of.items() if k[:-1] == key and k != key)
        pad = "  " * len(key)
        for word in sample(["stepz: 3", "<<: {steps: 3}", "'': 3", '"a\\tb\\e[1m": 3'], 2, draw):
            said = {"'": "''", "s": "stepz", "<": "<<", '"': r"a\tb\x1b[1m"}[word[0]]
            if key == ("sweep", "space") and said == "<<":
                said = "<<.steps"  # any name may stand there, with a mapping
            yield with_line(page, first, pad + word, f"{dotted(key)}.{said}", name)
        for word in sample(["3: x", "1.5: x", "true: x", "~: x", "? [a]", "? {a: b}"], 2, draw):
            yield with_line(page, first, pad + word, dotted(key), name)
    for key in sample(list(page.line_of), 12, name):
        last = page.line_of[key]
        value = page.at(key)
        if isinstance(value, str) and len(key) > 1 and isinstance(key[-1], str):
            line = "  " * (len(key) - 1) + f"{key[-1]}: {value}"
            yield with_line(page, last + 1, line, dotted(key), name)
    yield refuse(
        f"{name}: search twice", f"{page.text}search: {{steps: 9}}\n",
        (page.text.count("\n") + 1, "search"),
    )  # fmt: skip
    for path in ("data.corpus", "model.slots", "model.d_model", "model.d_ffn", "search.steps",
                 "retrain.steps", "model", "data"):  # fmt: skip
        if page.at(tuple(path.split("."))) is None:
            continue  # a length in epochs
        without = page.without(tuple(path.split(".")))
        said = (line_of(without, (path.split(".")[0],)) if "." in path else 1, path)
        yield refuse(f"{name} without {path}", without.text, said)


@SIXTHS
def test_misspelled_missing_and_repeated_keys(check: Checked, sixth: int) -> None:
    mutants = [m for name, page in PAGES.items() for m in misspelled(name, page)]
    assert len(mutants) > 300
    assert failures(mutants[sixth::6], check) == []


CONFLICTS = [
    # (the page, what is put there, the key to be named)
    ("rich", {"search.tau.schedule": "constant"}, "search.tau.end"),
    ("rich", {"search.tau.schedule": "linear"}, "search.tau.stairs"),
    ("rich", {"search.alpha.data": "shared"}, "search.alpha.share"),
    ("rich", {"search.alpha.betas": "[0.5, 1]"}, "search.alpha.betas"),
    ("rich", {"search.alpha.lr": "0"}, "search.alpha.lr"),
    ("rich", {"search.alpha.warmup_fraction": "0.999"}, "search.alpha.warmup_fraction"),
    ("rich", {"search.resample_every": "0"}, "search.resample_every"),
    ("rich", {"search.steps": "10"}, "search.optimiser.warmup_steps"),
    ("rich", {"search.optimiser.kind": "sgd"}, "search.optimiser.betas"),
    ("rich", {"search.optimiser.schedule": "constant"}, "search.optimiser.min_lr_ratio"),
    ("rich", {"retrain.optimiser.kind": "lamb"}, "retrain.optimiser.momentum"),
    ("rich", {"retrain.optimiser.warmup_steps": "300"}, "retrain.optimiser.warmup_steps"),
    ("rich", {"model.softmax.factor": "2"}, "model.softmax.sizes"),
    ("rich", {"model.softmax.cutoffs": "[500, 200]"}, "model.softmax.cutoffs"),
    ("rich", {"model.softmax.cutoffs": "[200]"}, "model.softmax.sizes"),
    ("rich", {"model.candidates": "[dense, dense]"}, "model.candidates"),
    ("rich", {"model.candidates": "[]"}, "model.candidates"),
    ("rich", {"model.candidates": "[dense, 3]"}, "model.candidates[1]"),
    ("rich", {"model.candidates": "[dense, denze]"}, "model.candidates[1]"),
    ("rich", {"model.candidates": "[[dense]]"}, "model.candidates[0]"),
    ("rich", {"model.candidates": "[{label: ab}]"}, "model.candidates[0].kind"),
    ("rich", {"model.candidates": "[{kind: dense, dense: 3}]"}, "model.candidates[0].dense"),
    ("rich", {"model.candidates": "[{kind: dense, window: 3}]"}, "model.candidates[0].window"),
    ("rich", {"model.candidates": "[{kind: dense, label: keys}]"}, "model.candidates[0].label"),
    ("rich", {"data.tokenizer.kind": "bytes"}, "data.tokenizer.vocabulary"),
    ("rich", {"data.corpus": "enwik8"}, "data.files"),
    ("rich", {"data.tree": "{folder: a, include: [b]}"}, "data.tree"),
    ("rich", {"data.addresses": "['http://a']"}, "data.addresses"),
    ("rich", {"derive.layout": "null"}, "derive.layout"),
    ("rich", {"compare.seeds": "[1, 1]"}, "compare.seeds"),
    ("rich", {"compare.opponents": "[par, pra]"}, "compare.opponents[1]"),
    ("auto", {"model.n_heads": "3"}, "model.n_heads"),
    ("auto", {"model.softmax.sizes": "[3]"}, "model.softmax.sizes"),
    ("auto", {"data.corpus": "files"}, "data.files"),
]  # fmt: skip


@pytest.mark.parametrize("way", ["file", "set"])
def test_settings_that_contradict_each_other(check: Checked, way: str) -> None:
    mutants = []
    for name, changes, key in CONFLICTS:
        page = PAGES[name]
        for path, word in changes.items():
            if way == "file":
                page = page.with_value(tuple(path.split(".")), word)
        parts = tuple(re.sub(r"\[(\d)\]", "", key).split("."))
        sets = [f"{path}={word}" for path, word in changes.items()] if way == "set" else []
        place: int | str = line_of(page, parts)
        if sets and key.startswith(next(iter(changes))):
            place = sets[0]
        mutants.append(refuse(f"{name} {changes}", page.text, (place, key), sets=sets))
    assert failures(mutants, check) == []


# What RICH names.
TEXTS = ("a b.txt", "ä.txt", "c.txt")


def broken_at(page_name: str) -> Iterator[Mutant]:
    """Lines that are no YAML, put at a known place of a page."""
    page = PAGES[page_name]
    places = [page.line_of[key] for key in page.line_of if len(key) == 2][1::6]
    for number in places:
        for line in (
            "\tsteps: 3", "  steps: !!python/object/apply:os.system [ls]", "  steps: !!int 3",
            "  ! steps: 3", "  steps: *nowhere", "  steps: 3\0", "  steps: \x1b[1m", "  @steps: 3",
            "  `steps: 3", "  %steps: 3", "  steps: 3 \u2028", "  # note \x85 more",
            "  # \u2029", '  steps: "\\q"', "  steps: a: b", ):  # fmt: skip
            text = page.with_line(number, line)
            yield refuse(f"{page_name} line {number} {line!r}", text, (number, None))
        for line in ("  steps: [1, 2", "  steps: {a: 1", '  steps: "abc', "  steps: 'abc", "  - x",
                     "  stepz"):  # fmt: skip
            text = page.with_line(number, line)
            yield refuse(f"{page_name} line {number} {line!r}", text, (0, None))
        text = page.text.split("\n")
        moved = "\n".join([*text[:number], " " + text[number], *text[number + 1 :]])
        before, own, after = (
            len(line) - len(line.lstrip()) for line in [*text, ""][number - 1 :][:3]
        )
        # The only key of a section may stand anywhere.
        if own and own in (before, after) and text[number - 1][2] != " ":
            yield refuse(f"{page_name} indented {number}", moved, (0, None))


@SIXTHS
def test_what_is_no_yaml_is_one_line_with_its_place(check: Checked, sixth: int) -> None:
    mutants = [mutant for name in PAGES for mutant in broken_at(name)]
    assert len(mutants) > 150
    assert failures(mutants[sixth::6], check) == []


def harmless(name: str, text: str) -> Iterator[Mutant]:
    """Changes that leave a file valid."""
    draw = random.Random(name)
    lines = text.rstrip("\n").split("\n")
    place = draw.randrange(len(lines))
    yield refuse("comment", "\n".join([*lines[:place], "# \ud55c [{\t", *lines[place:]]))
    yield refuse("blank lines", "\n\n".join(lines))
    yield refuse("CRLF", "\r\n".join(lines))
    yield refuse("CR", "\r".join(lines))
    yield refuse("BOM", "\ufeff" + text)
    yield refuse("one document", f"%YAML 1.2\n---\n{text}...\n")
    yield refuse("no last line end", text.rstrip("\n"))
    yield refuse("trailing spaces", "\n".join(f"{line}  " for line in lines))
    value: Any = read_yaml(text).value
    yield refuse("JSON", json.dumps(value))
    yield refuse("flow style", yaml.dump(value, default_flow_style=True, width=60))
    names = list(value)
    draw.shuffle(names)
    yield refuse("other order", yaml.dump({name: value[name] for name in names}, sort_keys=True))
    yield refuse("section left empty", text + ("" if "derive:" in text else "derive:\n"))


# A sweep's own layout must be one of its candidates.
TOP_K = {"derive.method": "top_k"}
# Other values in range, and spellings that YAML 1.2 reads as numbers.
FINE = [
    {"run": "", "derive": "", "compare": ""},
    {"run.seed": "2147483647", "run.device": "cuda:3", "run.threads": "null"},
    {"run.log_every": "0x10", "run.validate_every": "010", "run.checkpoint_every": "0o10"},
    {"search.steps": "+300", "search.optimiser.lr": "1e-3", "search.optimiser.eps": ".5"},
    {"search.alpha.lr": "5.", "search.alpha.warmup_fraction": "0", "search.alpha.eps": "1E-3"},
    {"search.resample_every": "auto", "search.tau.end": "2e0", "model.dropout": "0"},
    {"model.candidates": "[dense]", "model.window": "1", "model.memory": "0", **TOP_K},
    {"model.candidates": "[{kind: attention, window: null}, identity]", **TOP_K},
    {"model.candidates": "\n  - dense\n  - {kind: dense, label: on, d_ffn: 1}", **TOP_K},
    {"model.softmax": "{cutoffs: auto, clusters: 3}", "compare.seeds": "[2147483647]"},
    {"model.softmax": "{}", "compare.opponents": "[]", "derive.layout": "'1e-3'", **TOP_K},
    {"data.files.train": "2026-01-01", "data.files.valid": "1:30", "data.files.test": "no"},
    {"data.files.train": "&a 'x'", "data.files.valid": "*a"},
    {"data.files.train": r'"\u2028\x85\0"', "data.files.valid": "|\n      a\n      b"},
    {"data.files": '{"train": a, "valid": b, "test": c}', "derive.budget": "{flops: 1e308}"},
]  # fmt: skip


@SIXTHS
def test_a_harmless_change_stays_valid(check: Checked, sixth: int) -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in CONFIGS} | {"rich": RICH}
    mutants = [m for name, text in texts.items() for m in harmless(name, text)]
    for changes in FINE:
        page = PAGES["rich"]
        for path, word in changes.items():
            page = page.with_value(tuple(path.split(".")), word)
        mutants.append(refuse(str(changes), page.text))
        sets = [
            f"{path}={word}"
            for path, word in changes.items()
            if word[:1] not in ("&", "*", "|", "\n", "")
        ]
        mutants.append(refuse(f"--set {sets}", RICH, sets=sets))
    assert len(mutants) >= 100
    assert failures(mutants[sixth::6], check) == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["search", "derive", "retrain", "compare"])
def test_some_of_them_as_programs(tmp_path: Path, script: str) -> None:
    mutants = [
        refuse("valid", RICH), refuse("valid --set", RICH, sets=["search.tau.end=0.1"]),
        refuse("torn", "a: [", (0, None)), refuse("bytes", b"a: 1\n\xff", (2, None)),
        refuse("--set", RICH, ("run.sed=1", "run.sed"), sets=["run.sed=1"]),
    ]  # fmt: skip
    for name in TEXTS:
        (tmp_path / name).touch()
    # One of each exit code does where the others go the same way.
    for mutant in mutants if script == "search" else mutants[::4]:
        (tmp_path / FILE).write_bytes(mutant.text)
        done = subprocess.run(
            [sys.executable, str(ROOT / f"{script}.py"), FILE, "--check", *settings(*mutant.sets)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stderr.removeprefix("loading torch\n")
        assert complaint(mutant, done.returncode, said) is None
    assert {path.name for path in tmp_path.iterdir()} == {FILE, *TEXTS}
