"""Conditions that a training's numbers depend on beside its experiment, and how they differ."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.run_dir import WORDS
from utils.files import read_object

# Where one of these is another, equality cannot be expected.
FACTS = ("commit", "torch", "numpy", "sentencepiece", "processor", "device", "threads", "ranks")
# Settings outside a phase's identity, which change last digits or what dropout drops.
SETTINGS = ("micro_batches", "attention", "compile")
# The facts of a start, then of each time that the training went on with others.
Conditions = dict[str, tuple[str, ...]]


def facts_in(environment: Mapping[str, Any], names: Iterable[str] = FACTS) -> dict[str, str]:
    """Facts of an environment.json, as text."""
    known = {**environment.get("packages", {}), **environment}
    return {name: str(known.get(name, "not recorded")) for name in names}


def resumed_on(
    environment: Mapping[str, Any], names: Iterable[str] = FACTS
) -> list[tuple[str, dict[str, str]]]:
    """The step and the facts of each time that a phase went on, in order."""
    return [
        (str(entry["step"]), facts_in({**environment, **entry}, names))
        for entry in environment.get("resumed", [])
    ]


def unlike_conditions(trainings: Mapping[str, Sequence[Path]]) -> str:
    """One line that says how the conditions of trainings differ, and whose are which; or nothing.

    `trainings` are the folders of each row, one for each seed.
    """
    conditions = {
        row: {folder.name: _conditions(folder) for folder in folders}
        for row, folders in trainings.items()
    }
    found = [
        words
        for fact in (*FACTS, *SETTINGS)
        if (words := _differing(fact, _by_label(fact, conditions)))
    ]
    return f"not trained under equal conditions: {'; '.join(found)}" if found else ""


def _conditions(folder: Path) -> Conditions:
    environment = read_object(folder / "environment.json", "train again")
    names = (*FACTS, *SETTINGS)
    times = [facts_in(environment, names), *(facts for _, facts in resumed_on(environment, names))]
    return {name: tuple(dict.fromkeys(facts[name] for facts in times)) for name in names}


def _by_label(
    fact: str, conditions: Mapping[str, Mapping[str, Conditions]]
) -> dict[str, tuple[str, ...]]:
    """The values of a fact by row, or by row and seed where the seeds of a row differ in it."""
    found = dict[str, tuple[str, ...]]()
    for row, of_seeds in conditions.items():
        values = {seed: one[fact] for seed, one in of_seeds.items()}
        alike = len(set(values.values())) == 1
        found |= {row if alike else f"{row} {seed}": value for seed, value in values.items()}
    return found


def _differing(fact: str, value_of: Mapping[str, tuple[str, ...]]) -> str:
    """The values of a fact with those that have them, the commonest last; empty where all agree."""
    labels = dict[tuple[str, ...], list[str]]()
    for label, value in value_of.items():
        labels.setdefault(value, []).append(label)
    if len(labels) < 2:
        return ""
    *_, most = ordered = sorted(labels, key=lambda value: len(labels[value]))
    who = {value: ", ".join(names) for value, names in labels.items()}
    if len(labels[most]) > 1:
        who[most] = "the others"
    shown = ", ".join(f"{' then '.join(map(_shown, value))} ({who[value]})" for value in ordered)
    return f"{WORDS.get(fact, fact)} {shown}"


def _shown(value: str) -> str:
    """A fact for a person: the beginning of a commit, with what follows its digits."""
    return "unknown" if value == "None" else re.sub(r"^([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", value)
