"""Experiment files changed as texts: broken YAML, harmless changes, overrides, subprocesses."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.judge import THIRDS, Checked, complaint, failures, refuse
from tests.mutation import CONFIGS, FILE, RICH, ROOT, Mutant, pages
from tests.runs import settings

PAGES = pages()
# What RICH names.
TEXTS = ("a b.txt", "ä.txt", "c.txt")


def no_experiment() -> Iterator[Mutant]:
    """Files that are refused as a whole: one line with a place and no key."""
    yield refuse("a torn second document", f"{RICH}---\n[", (RICH.count("\n") + 1, None))
    yield refuse("a scalar of 10 MB", f"{RICH}derive: {{layout: {'x' * 10_000_000}}}\n", (1, None))
    yield refuse("Latin 1", RICH.encode("latin-1"), (5, None))
    yield refuse("an alias of itself", f"{RICH}derive: &d [*d]\n", (0, None))
    yield refuse("20001 values", f"{RICH}derive: [{'1, ' * 20_001}]\n", (0, None))
    deep = "".join(f"{' ' * level}a:\n" for level in range(1000))
    yield refuse("1000 levels in lines", f"{deep}{RICH}", (0, None))
    yield refuse("a directive with a long number", f"%YAML 1.{'9' * 5000}\n---\n{RICH}", (0, None))


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


@THIRDS
def test_what_is_no_yaml_is_one_line_with_its_place(check: Checked, third: int) -> None:
    mutants = [*no_experiment(), *(m for name in PAGES for m in broken_at(name))]
    assert len(mutants) > 150
    assert failures(mutants[third::3], check) == []


def test_a_file_without_content_is_no_experiment(check: Checked) -> None:
    texts = ["", "\n", "# a\n  # b\n", "---\n", "---\n...\n", "\ufeff", "~", "{}", "null\r\n"]
    mutants = [refuse(repr(text), text, (1, None)) for text in texts]
    assert failures(mutants, check) == []


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
    value = yaml.safe_load(text)
    for section in value.values():  # PyYAML reads 1e-3 as text
        for optimiser in [section.get("optimiser", {})]:
            optimiser.update({k: float(optimiser[k]) for k in ("lr", "eps") if k in optimiser})
    value.get("search", {}).get("tau", {}).pop("end", None)
    value.get("search", {}).get("alpha", {}).pop("eps", None)
    value.get("derive", {}).pop("flops", None)
    yield refuse("JSON", json.dumps(value))
    yield refuse("flow style", yaml.dump(value, default_flow_style=True, width=60))
    names = list(value)
    draw.shuffle(names)
    yield refuse("other order", yaml.dump({name: value[name] for name in names}, sort_keys=True))
    yield refuse("section left empty", text + ("" if "derive:" in text else "derive:\n"))


# Other values in range, and spellings that YAML 1.2 reads as numbers.
FINE = [
    {"run": "", "derive": "", "compare": ""},
    {"run.seed": "2147483647", "run.device": "cuda:3", "run.threads": "null"},
    {"run.log_every": "0x10", "run.validate_every": "010", "run.checkpoint_every": "0o10"},
    {"search.steps": "+300", "search.optimiser.lr": "1e-3", "search.optimiser.eps": ".5"},
    {"search.alpha.lr": "5.", "search.alpha.warmup_fraction": "0", "search.alpha.eps": "1E-3"},
    {"search.resample_every": "auto", "search.tau.end": "2e0", "model.dropout": "0"},
    {"model.candidates": "[dense]", "model.window": "1", "model.memory": "0"},
    {"model.candidates": "[{kind: attention, window: null}, identity]"},
    {"model.candidates": "\n  - dense\n  - {kind: dense, label: on, d_ffn: 1}"},
    {"model.softmax": "{cutoffs: auto, clusters: 3}", "compare.seeds": "[2147483647]"},
    {"model.softmax": "{}", "compare.opponents": "[]", "derive.layout": "'1e-3'"},
    {"data.files.train": "2026-01-01", "data.files.valid": "1:30", "data.files.test": "no"},
    {"data.files.train": "&a 'x'", "data.files.valid": "*a"},
    {"data.files.train": r'"\u2028\x85\0"', "data.files.valid": "|\n      a\n      b"},
    {"data.files": '{"train": a, "valid": b, "test": c}', "derive.flops": "1e308"},
]  # fmt: skip


@THIRDS
def test_a_harmless_change_stays_valid(check: Checked, third: int) -> None:
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
    assert failures(mutants[third::3], check) == []


OVERRIDES = [
    ("nonsense", None), ("=3", None), ("", None), (".=3", None), ("search..steps=3", None),
    ("search.steps=", "search.steps"), ("search.steps=[", "search.steps"),
    ("search.steps=!!int 3", "search.steps"), ("search.steps=3\n---\n4", "search.steps"),
    ("search.steps=*a", "search.steps"), ("search.steps=\0", "search.steps"),
    ("search.steps=\udcff", "search.steps"), ("search.stepz=3", "search.stepz"),
    ("search.tau.edn=1", "search.tau.edn"), ("search.tau={edn: 1}", "search.tau.edn"),
    ("search.tau={end: 1, end: 2}", "search.tau.end"), ("search.tau={3: 1}", "search.tau"),
    ("search.tau=linear", "search.tau"), ("model.slots.x=3", "model.slots.x"),
    ("model.candidates.0=dense", "model.candidates.0"), ("sea\udcffrch.steps=3", None),
    ("tau.end=3", "tau"), ("a.b.c.d=3", "a"), ("data=", "data"), ("run=[]", "run"),
    (f"{'a.' * 40}b=3", None), (f"{'a.' * 5000}b=3", None), (f"run.seed={'9' * 5000}", "run.seed"),
    (f"run.seed={'[' * 500}", "run.seed"), (f"{'x' * 5000}=3", None),
    (f"derive.method={'x' * 5000}", "derive.method"), ("run.seed=\u202e3", "run.seed"),
]  # fmt: skip


def test_a_wrong_override_is_named(check: Checked) -> None:
    answers = []
    for number, (text, key) in enumerate(OVERRIDES):
        code, err = check(refuse(text, RICH, sets=[text]), number)
        shown = "".join(c if c.isprintable() else "." for c in " ".join(text.split()))
        starts = re.escape(f"--set {shown}".rstrip()[:60]).replace(r"\.", ".+")
        key_there = re.escape(f": {key}: ") if key else ": "
        good = code == 2 and err.count("\n") == 1 and len(err) < 2000 and err[:-1].isprintable()
        if not (good and re.match(starts, err) and re.search(key_there, err)):
            answers.append((text[:60], code, err[:300]))
    assert answers == []


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
    for mutant in mutants:
        (tmp_path / FILE).write_bytes(mutant.text)
        done = subprocess.run(
            [sys.executable, str(ROOT / f"{script}.py"), FILE, "--check", *settings(*mutant.sets)],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stderr.removeprefix("loading torch\n")
        assert complaint(mutant, done.returncode, said) is None
    assert {path.name for path in tmp_path.iterdir()} == {FILE, *TEXTS}
