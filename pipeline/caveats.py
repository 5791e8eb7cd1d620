"""What a search says against itself: warnings at its end, kept in caveats.json for the report.

A message is composed once, at the end of a search or with a layout. The screen shows it, train.log
keeps what is of a search, and the report boxes it: caveats.json holds a search's, an architecture's
evidence those of its layout.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model import Agreement, Evidence
from nas.search.diagnostics import alpha_path, diagnose_search, warnings_of
from nas.search.plan import SearchPlan
from nas.search.trajectory import load_pi
from utils.files import append_line, read_object, write_whole

FILE = "caveats.json"
ONE_SEARCH = (
    "warning: one search says little about the next: compare it with other seeds (--seeds 0,1,2) "
    "and with a placebo (docs/evaluation.md)"
)
# One-hot over soft perplexity above which a layout read off pi is warned of, and the margin of pi
# below which a slot counts as open.
_MOST_RATIO, _OPEN = 1.03, 0.1
# Probability of so much agreement by chance above which nothing follows from it.
_MOST_CHANCE = 0.05


def agreement_line(agreement: Agreement) -> str:
    """Kappa with its interval, and whether chance does as well."""
    searches = f"agreement of {len(agreement.searches)} searches"
    if agreement.kappa is None:
        return f"{searches}: all chose one candidate in every slot; no kappa"
    interval = "no interval (too few slots, or too few that differ)"
    if agreement.interval is not None:
        low, high = agreement.interval
        interval = f"95% interval [{low:.3f}, {high:.3f}] over {len(agreement.slots)} slots"
    line, chance = f"{searches}: kappa {agreement.kappa:.3f}, {interval}", agreement.p_by_chance
    if chance is not None:
        line += f"; choices put into slots at random agree as much with p = {chance:.4f}"
    return line


def agreement_caveats(agreement: Agreement) -> list[str]:
    """The agreement of several searches, and a warning where chance may explain it."""
    lines, chance = [agreement_line(agreement)], agreement.p_by_chance
    if chance is not None and chance > _MOST_CHANCE:
        lines.append(
            f"warning: no agreement beyond chance is shown (p = {chance:.2f}, above "
            f"{_MOST_CHANCE}): another search may choose another layout. Search for more steps or "
            "with more seeds, and compare the layout with rules and random ones (compare.py)"
        )
    return lines


def gap_caveats(evidence: Evidence) -> list[str]:
    """A warning where a layout read off pi lies far from pi's mixture."""
    gap = evidence.gap
    # One that was chosen by its score is no reading of pi that could be wrong.
    if gap is None or evidence.inherited is not None or gap.ratio <= _MOST_RATIO:
        return []
    numbers = [str(slot) for slot, margin in enumerate(evidence.margins) if margin < _OPEN]
    where = f"; slots that pi leaves open (margin below {_OPEN}): {', '.join(numbers)}"
    return [
        f"warning: this layout costs {gap.ratio - 1:.1%} more perplexity than pi's mixture (more "
        f"than {_MOST_RATIO - 1:.0%}){where if numbers else ''}. Derive another by --method top_k, "
        "which scores the likeliest layouts, and retrain both"
    ]


def layout_caveats(evidence: Evidence, searches: Sequence[Path]) -> tuple[str, ...]:
    """What goes with a layout derived from searches, by their folders."""
    each = {folder.name: read_object(folder / FILE)["caveats"] for folder in searches}
    # What all say, as of the text, is said once.
    of_all = set.intersection(*map(set, each.values())) if each else set()
    lines = [line for line in next(iter(each.values()), ()) if line in of_all]
    lines += [f"{name}: {line}" for name, own in each.items() for line in own if line not in of_all]
    if evidence.agreement is not None:
        lines += agreement_caveats(evidence.agreement)
    if len(searches) == 1:
        lines.append(ONE_SEARCH)
    return (*lines, *gap_caveats(evidence))


def write_caveats(folder: Path, caveats: Sequence[str]) -> None:
    """Keep what the report shows of a search."""
    write_whole(folder / FILE, json.dumps({"caveats": list(caveats)}, indent=1) + "\n")


def write_joint_caveats(folder: Path, seeds: Sequence[int], caveats: Sequence[str]) -> None:
    """Keep what several searches come to together, or that one is alone, in the folder above them.

    There is one entry for each set of seeds, so that a later search of one seed does not take away
    what was said of several.
    """
    path, entry = folder / FILE, {"searches": sorted(seeds), "caveats": list(caveats)}
    kept = read_object(path)["together"] if path.exists() else []
    others = [other for other in kept if other["searches"] != entry["searches"]]
    entries = sorted([*others, entry], key=lambda one: one["searches"])
    write_whole(path, json.dumps({"together": entries}, indent=1) + "\n")


def log_once(log: Path, lines: Sequence[str]) -> None:
    """Add those lines to a train.log that it does not have: a command may be given again."""
    logged = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    missing = [line for line in lines if line not in logged.splitlines()]
    if missing:
        append_line(log, "\n".join(missing))


def guard_lines(
    trajectory: Path, schedules: SearchPlan, adds_nothing: Mapping[str, bool]
) -> list[str]:
    """What alpha's path in a search's pi.npz shows, and warnings.

    Whether a candidate adds nothing stands by label, in alpha's order.

    Raises:
        ValueError: the trajectory is damaged.
    """
    path_NLC, rate_M = alpha_path(load_pi(trajectory)["alpha"], schedules)
    shown = diagnose_search(path_NLC, rate_M, list(adds_nothing), list(adds_nothing.values()))
    line = f"mean margin {shown.mean_margin:.3f}, nothing added {shown.nothing_share:.0%} of pi"
    judged_L = shown.directed_L[~np.isnan(shown.directed_L)]
    if not len(judged_L):
        line += ", alpha settled after too few steps to judge its direction"
    else:
        line += f", alpha's path directed with t = {np.median(judged_L):.1f} in the median slot"
        slots = len(shown.directed_L)
        if few := slots - len(judged_L):
            line += f" ({few} of {slots} settled in too few steps to tell)"
    return [line, *warnings_of(shown, schedules)]
