"""What a search came to: pi in words, tables and figures, warnings, and the next command."""

from collections.abc import Sequence
from pathlib import Path

from nas.derivation import NEED_PI
from nas.derivation.searched import read_searches
from nas.search.trajectory import load_pi, write_pi_csv
from pipeline import cli
from pipeline.caveats import (
    ONE_SEARCH,
    agreement_caveats,
    guard_lines,
    log_once,
    write_caveats,
    write_joint_caveats,
)
from pipeline.context import RunPlan
from pipeline.derive import request_of
from pipeline.reports import drawn, show_report
from pipeline.search_cost import finish_costs
from pipeline.summary import text_warnings
from training.run_dir import FolderLock
from utils.pi import entropy_share, margins, softmax
from utils.screen import announce


def finish_searches(plan: RunPlan, seeds: Sequence[int]) -> None:
    """Show what pi became, warn, and draw: tables, words, figures and the report, figures last.

    Raises:
        ValueError: a file of a search is damaged.
        OSError: a file could not be written.
    """
    if not plan.ranks.is_first:
        return
    folders = [plan.search_folder(seed) for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        with _locked(folder):
            write_pi_csv(folder / "pi.npz", folder / "pi.csv")
            _show_pi(plan, folder, f", seed {seed}" if len(seeds) > 1 else "")
    _show_together(plan, seeds, folders)
    if plan.experiment.run.figures:
        announce("drawing the figures")
        for folder in folders:
            with _locked(folder):
                drawn("report.search_figures:write_search_figures", folder)
    show_report(plan)
    print(f"next: {_next(plan, seeds)}")


def _locked(folder: Path) -> FolderLock:
    """Keep others out of the folder of a search that is done; nobody trains there for long."""
    try:
        return FolderLock(folder)
    except ValueError:
        announce(f"waiting for another process that has {folder}")
        return FolderLock(folder, wait=True)


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
    lines = [*finish_costs(plan, folder), *lines]
    # The warnings of the text were printed before step 0.
    warnings = [line for line in lines if line.startswith("warning: ")]
    of_text = text_warnings(plan.prepared, plan.training_batches())
    of_text += plan.experiment.warnings()
    write_caveats(folder, [*of_text, *warnings])
    for line in lines:
        print(line)
    log_once(folder / "train.log", lines)


def _show_together(plan: RunPlan, seeds: Sequence[int], folders: Sequence[Path]) -> None:
    """How far the searches of this command agree, or that one alone says little."""
    lines, caveats = list[str](), [ONE_SEARCH]
    if len(seeds) > 1:
        lines, caveats = _agreement(plan, seeds)
        print()
    write_joint_caveats(folders[0].parent, seeds, caveats)
    for line in [*lines, *caveats]:
        print(line)
    for folder in folders:
        # Another process may say the same of the same search now, or go on in its folder.
        with _locked(folder):
            log_once(folder / "train.log", [*lines, *caveats])


def _agreement(plan: RunPlan, seeds: Sequence[int]) -> tuple[list[str], list[str]]:
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
