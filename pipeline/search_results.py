"""What searches found: pi shown, and what a search says against itself.

A warning is composed once, at the end of a search or with a layout. The screen shows it, train.log
keeps what is of a search, and the report boxes it: caveats.json holds a search's, an architecture's
evidence those of its layout.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model import Agreement, Evidence
from nas.derivation import NEED_PI
from nas.search.diagnostics import alpha_path, diagnose_search, warnings_of
from nas.search.plan import SearchPlan
from nas.search.trajectory import load_pi, write_pi_csv
from pipeline import cli
from pipeline.plan import RunPlan
from pipeline.summary import drawn, show_report, text_warnings
from utils.files import append_line, read_object, write_whole
from utils.pi import entropy_share, margins, softmax
from utils.screen import announce

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


def say_once(lines: Sequence[str], folders: Sequence[Path]) -> None:
    """Print lines, and add them to each train.log without them: a command may be given again."""
    for line in lines:
        print(line)
    for log in (folder / "train.log" for folder in folders):
        logged = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        if missing := [line for line in lines if line not in logged]:
            append_line(log, "\n".join(missing))


def guard_lines(
    trajectory: Path, schedules: SearchPlan, adds_nothing: Mapping[str, bool]
) -> list[str]:
    """What alpha's path in a search's pi.npz shows, and warnings."""
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


def finish_searches(plan: RunPlan, seeds: Sequence[int]) -> None:
    """Show what pi became, warn, and draw: tables, words, figures and the report, figures last."""
    if not plan.ranks.is_first:
        return
    folders = [plan.search_folder(seed) for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        write_pi_csv(folder / "pi.npz", folder / "pi.csv")
        _show_pi(plan, folder, f", seed {seed}" if len(seeds) > 1 else "")
    _show_together(plan, seeds, folders)
    if plan.experiment.run.figures:
        announce("drawing the figures")
        for folder in folders:
            drawn("report.searches:write_search_figures", folder)
    show_report(plan)
    print(f"next: {_next(plan, seeds)}")


def _show_pi(plan: RunPlan, folder: Path, which: str) -> None:
    pi_LC = softmax(load_pi(folder / "pi.npz")["alpha"][-1])
    header = "  ".join(f"{candidate.label:>10}" for candidate in plan.candidates)
    print(f"\npi after the last step{which}\n{'slot':>4}  {header}  margin")
    for slot, (pi_C, margin) in enumerate(zip(pi_LC, margins(pi_LC), strict=True)):
        row = "  ".join(f"{value:>10.3f}" for value in pi_C)
        print(f"{slot:>4}  {row}  {margin:.3f}")
    print(f"mean entropy of pi: {entropy_share(pi_LC):.3f} of uniform")
    lines = list[str]()
    if plan.experiment.search.alpha_learns:
        # Alpha's steps do not depend on how long draws are held, so no memory is needed.
        lines = guard_lines(folder / "pi.npz", plan.schedules(), plan.adds_nothing)
    if plan.experiment.search.cost.target is not None:
        from pipeline.costs import finish_costs

        lines = [*finish_costs(plan, folder), *lines]
    # The warnings of the text were printed before step 0.
    warnings = [line for line in lines if line.startswith("warning: ")]
    of_text = text_warnings(plan.prepared, plan.training_batches())
    of_text += plan.experiment.warnings()
    caveats = {"caveats": [*of_text, *warnings]}
    write_whole(folder / FILE, json.dumps(caveats, indent=1) + "\n")
    say_once(lines, [folder])


def _show_together(plan: RunPlan, seeds: Sequence[int], folders: Sequence[Path]) -> None:
    """How far the searches of this command agree, or that one alone says little."""
    lines, caveats = list[str](), [ONE_SEARCH]
    if len(seeds) > 1:
        lines, caveats = _agreement(plan, seeds)
        print()
    write_joint_caveats(folders[0].parent, seeds, caveats)
    say_once([*lines, *caveats], folders)


def _agreement(plan: RunPlan, seeds: Sequence[int]) -> tuple[list[str], list[str]]:
    from nas.derivation.from_search import read_searches
    from pipeline.derive import request_of

    searched = read_searches(request_of(plan, plan.experiment.derive, seeds), "agreement")
    agreement = searched.agreement()
    if agreement is None:
        return [], ["no agreement of these searches: alpha does not move, so pi chooses nothing"]
    slots = "  ".join(f"{slot}: {alike:.2f}" for slot, alike in enumerate(agreement.slots))
    pairs = f"by {searched.averaged}, pairs of searches that chose alike, by slot: {slots}"
    return [pairs], agreement_caveats(agreement)


def _next(plan: RunPlan, seeds: Sequence[int]) -> str:
    experiment = plan.experiment
    by_pi = experiment.derive.method in NEED_PI and not experiment.search.alpha_learns
    method = " --method evolution" if by_pi else ""
    if len(seeds) > 1:
        derive = cli.command("derive.py", plan.run_dir)
        return f"{derive}{method} --seeds {','.join(map(str, seeds))}"
    lowest = cli.is_lowest_seed(plan.search_folder(seeds[0]))
    others = [] if lowest else [f"run.seed={seeds[0]}"]
    return cli.command("derive.py", plan.run_dir, *others) + method
