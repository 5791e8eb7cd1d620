"""Experiment files with one mistake each: exit code 2, its line and its key, never a traceback."""

import re

import pytest

from tests.mutation import PAGES, Checked, dotted, failures, keys, line_of, refuse, wrong_values


@pytest.mark.parametrize("way", ["file", "set"])
def test_every_key_of_the_schema_refuses_a_wrong_type_by_its_name(check: Checked, way: str) -> None:
    mutants = []
    for name, page in PAGES.items():
        for number, (key, node) in enumerate(keys(page)):
            if key == ("model", "softmax", "cutoffs") and name == "auto":
                continue  # another value makes another softmax of it, without clusters
            words = wrong_values(node)
            word = words[number % len(words)]
            if way == "file":
                changed = page.with_value(key, word)
                said = (line_of(changed, key), dotted(key))
                mutants.append(refuse(f"{name} {said}={word}", changed.text, said))
            elif not any(isinstance(part, int) or "." in part for part in key):
                text = f"{dotted(key)}={word}"
                said = (text, dotted(key))
                mutants.append(refuse(f"{name} --set {text}", page.text, said, sets=[text]))
    assert len(mutants) > 200
    assert failures(mutants, check) == []


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
