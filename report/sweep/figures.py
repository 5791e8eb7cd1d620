"""The figures of a sweep."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from matplotlib.figure import Figure

from report.plotting import png
from report.sweep.importance import Importance, bars, importances
from report.sweep.pareto import pareto
from report.sweep.plots import Setting, contours, history, setting, slices
from report.sweep.trials import (
    Objective,
    Row,
    done,
    keys_of,
    parse_objectives,
    parse_rows,
    short_keys,
)
from utils.files import write_whole

_KINDS = ("history", "importances", "slice", "contour", "pareto")
_FEWEST_SLICED = 3


def draw_sweep(
    study: optuna.Study,
    trials: Sequence[Mapping[str, Any]],
    folder: Path,
    objectives: Sequence[Mapping[str, Any]] = (),
) -> list[Path]:
    """Draw what there is to see of a sweep and return the files; with no trial at all none.

    Args:
        study: says which values each setting may take.
        trials: the logical trials, as `sweep.json` has them.
        folder: gets the PNG files; figures of an earlier call that no longer hold are removed.
        objectives: names and units, as `sweep.json` has them; all are minimised.
    """
    rows, goals = parse_rows(trials), parse_objectives(list(objectives) or _unnamed(study))
    figures = _figures(study, rows, goals) if rows else {}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.png"):
        if path.name.removesuffix(".png").split("-")[0] in _KINDS and path.name not in figures:
            path.unlink()
    return [write_whole(folder / name, png(figure)) for name, figure in figures.items()]


def _unnamed(study: optuna.Study) -> list[dict[str, str]]:
    names = study.metric_names or [f"objective {i}" for i in range(len(study.directions))]
    return [{"name": name, "unit": "value"} for name in names]


def _figures(
    study: optuna.Study, rows: Sequence[Row], goals: Sequence[Objective]
) -> dict[str, Figure]:
    figures = {"history.png": history(rows, goals)}
    if not done(rows):
        return figures
    if len(goals) > 1:
        figures["pareto.png"] = pareto(rows, goals)
    found = [(goal, importances(rows, index)) for index, goal in enumerate(goals)]
    short = short_keys(keys_of(rows), least=2)
    if any(ones for _, ones in found):
        figures["importances.png"] = bars(found, short)
    known = _settings(study, rows, short)
    for index, (goal, ones) in enumerate(found):
        end = f"-{index + 1}.png" if len(goals) > 1 else ".png"
        ordered = _ordered(known, ones)
        if len(done(rows)) >= _FEWEST_SLICED:
            figures[f"slice{end}"] = slices(rows, ordered, index, goal)
        telling = {one.key for one in ones if one.share is not None}
        pairs = contours(rows, [one for one in ordered if one.key in telling], index, goal)
        if pairs is not None:
            figures[f"contour{end}"] = pairs
    return figures


def _settings(
    study: optuna.Study, rows: Sequence[Row], short: Mapping[str, str]
) -> dict[str, Setting]:
    """The axes of all settings that a finished trial has."""
    finished = done(rows)
    known = {
        key: distribution
        for trial in study.get_trials(deepcopy=False)
        for key, distribution in trial.distributions.items()
    }
    return {key: setting(key, short[key], finished, known) for key in keys_of(finished)}


def _ordered(known: Mapping[str, Setting], ones: Sequence[Importance]) -> list[Setting]:
    """By importance, where it was computed."""
    first = [one.key for one in ones]
    return [known[key] for key in [*first, *(key for key in known if key not in first)]]
