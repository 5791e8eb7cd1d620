"""Expected cost of pi over the steps of a search that heeds costs."""

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from report.panels import mark_start
from report.plotting import house_style, make_figure, margins, step_axis
from report.run_files import Trajectory, read_json, reading

COSTS, COST_PATH, COST_FIGURE = "costs.json", "cost.csv", "cost.png"
_LINES = {
    "expected": ("expected of pi", "#0072b2", "-"),
    "argmax": ("each slot's likeliest", "#d55e00", "--"),
    "within": ("likeliest layout within the target", "#009e73", "-."),
}


def has_costs(search_folder: Path) -> bool:
    """True where a search heeded costs and came to its end."""
    return (search_folder / COSTS).exists() and (search_folder / COST_PATH).exists()


def cost_figure(search_folder: Path, trajectory: Trajectory) -> Figure:
    """Costs as multiples of the reference's, with the target.

    Raises:
        ValueError: a file of the search is broken.
    """
    known = read_json(search_folder / COSTS)
    with reading(search_folder / COSTS):
        reference, most = float(known["reference_cost"]), float(known["most"])
        unit = f"{known['name'][:20]} / {known['reference'][:24]}"
    with reading(search_folder / COST_PATH):
        path = pd.read_csv(search_folder / COST_PATH)[["step", *_LINES]].astype(float)
    with house_style():
        figure = make_figure(7.6, 3.2)
        axes = figure.subplots()
        margins(figure, left=0.75, right=0.25, top=0.45, bottom=0.5)
        step_N = path["step"].to_numpy(float)
        # Until alpha moves every candidate is as likely, and no layout is named.
        named_N = step_N > trajectory.alpha_start
        for name, (label, colour, style) in _LINES.items():
            shown = path[name].where(named_N | (name == "expected")) / reference
            axes.plot(step_N, shown, style, color=colour, label=label)
        axes.axhline(most / reference, color="#666666", linewidth=1.0, ls=":", label="target")
        highest = path.loc[named_N, list(_LINES)].to_numpy().max(initial=path["expected"].max())
        axes.set_ylim(0, 1.1 * float(highest) / reference)
        axes.set_xlabel("step")
        axes.set_ylabel(unit)
        axes.grid(axis="y")
        mark_start(axes, trajectory)
        step_axis(axes, float(step_N[0]), float(step_N[-1]))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
    return figure
