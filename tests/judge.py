"""Scripts run with --check on mutated experiment files, and their answers judged."""

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.mutation import FILE, Mutant, Said

# Most of the time of a mutant is that of its parse; every third stands for all in the quick tests.
THIRDS = pytest.mark.parametrize(
    "third", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))]
)

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
    found = [f"{m.name}: {said}" for m, *answer in answers if (said := complaint(m, *answer))]
    return found


def refuse(name: str, text: str | bytes, *said: Said, sets: Sequence[str] = ()) -> Mutant:
    """A mutant about which something must be said; without words it is valid."""
    return Mutant(name, text.encode() if isinstance(text, str) else text, said, tuple(sets))
