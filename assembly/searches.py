"""One search or several of one experiment: in turn, each in its folder, and what they came to."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import cli
import command_line
from assembly.architectures import request_of
from assembly.caveats import (
    ONE_SEARCH,
    agreement_caveats,
    log_once,
    write_caveats,
    write_joint_caveats,
)
from assembly.guarding import guard_lines
from assembly.searching import search_folder, search_identity, search_phase
from assembly.summary import text_warnings
from assembly.workbench import Workbench, with_seed
from nas.derivation import NEED_PI
from nas.derivation.searched import read_searches
from nas.trajectory import entropy_share, load_pi, margins, softmax, write_pi_csv
from training.phase import Phase
from training.run_dir import is_claimed
from training.screen import announce


def open_first(bench: Workbench, seeds: Sequence[int]) -> list[Phase]:
    """Open the first search, and see to it that no folder of a later one is another's.

    Returns:
        The open phase, for `run_searches`, which takes it out: a SuperNet that is done must not
        take memory beside the next one's.

    Raises:
        ValueError: a folder holds another experiment, or the first search cannot begin.
        OSError: a folder cannot be written.
    """
    for seed in seeds:
        is_claimed(search_folder(bench, seed), search_identity(bench))
    return [_opened(bench, seeds[0])]


def run_searches(bench: Workbench, seeds: Sequence[int], opened: list[Phase]) -> None:
    """Run the searches one after the other, each to its figures.

    Those that are done already take no step. Figures are made while the folder is locked.

    Raises:
        ValueError: a folder cannot be used.
        Stopped, Diverged, Lost: as in a single search; the later ones have not begun.
        OSError: a file could not be written.
    """
    for number, seed in enumerate(seeds, start=1):
        if len(seeds) > 1 and bench.ranks.is_first:
            print(f"search of seed {seed}, {number} of {len(seeds)}", flush=True)
        phase = opened.pop() if opened else _opened(bench, seed)
        with closing(phase):
            phase.run(bench.experiment.run)
            if bench.ranks.is_first:
                _show_pi_in_files(bench, phase.folder)
        del phase


def _show_pi_in_files(bench: Workbench, folder: Path) -> None:
    """What others read of a search that is done: pi.csv and its figures."""
    from report.trajectory import write_search_figures

    write_pi_csv(folder / "pi.npz", folder / "pi.csv")
    if bench.experiment.run.figures:
        announce("drawing the figures")
        write_search_figures(folder)


def _opened(bench: Workbench, seed: int) -> Phase:
    if bench.ranks.is_first:
        announce("building the SuperNet and forecasting its memory")
    phase = search_phase(with_seed(bench, seed))
    phase.open()
    return phase


def finish_searches(bench: Workbench, seeds: Sequence[int]) -> None:
    """The report; says what pi came to, how far several searches agree, and caveats."""
    from report.page import write_report

    if not bench.ranks.is_first:
        return
    for seed in seeds:
        _say_pi(bench, seed, several=len(seeds) > 1)
    _say_all(bench, seeds)
    if bench.experiment.run.figures:
        print(f"report: {write_report(bench.run_dir)}")
    print(f"next: {_next(bench, seeds)}")


def _say_pi(bench: Workbench, seed: int, *, several: bool) -> None:
    pi_LC = softmax(load_pi(search_folder(bench, seed) / "pi.npz")["alpha"][-1])
    labels = [candidate.label for candidate in bench.experiment.model.candidates]
    header = "  ".join(f"{label:>10}" for label in labels)
    of = f", seed {seed}" if several else ""
    print(f"\npi after the last step{of}\n{'slot':>4}  {header}  margin")
    for slot, (pi_C, margin) in enumerate(zip(pi_LC, margins(pi_LC), strict=True)):
        row = "  ".join(f"{value:>10.3f}" for value in pi_C)
        print(f"{slot:>4}  {row}  {margin:.3f}")
    print(f"mean entropy of pi: {entropy_share(pi_LC):.3f} of uniform")
    folder = search_folder(bench, seed)
    alpha_learns = bench.experiment.search.alpha_learns
    lines = guard_lines(bench, folder / "pi.npz") if alpha_learns else []
    # Those about the text were said before step 0.
    write_caveats(folder, [*text_warnings(bench), *lines[1:]])
    _keep(bench, [seed], lines)


def _say_all(bench: Workbench, seeds: Sequence[int]) -> None:
    """What the searches of this command come to together."""
    lines, caveats = list[str](), [ONE_SEARCH]
    if len(seeds) > 1:
        lines, caveats = _agreement(bench, seeds)
        print()
    write_joint_caveats(search_folder(bench, seeds[0]).parent, seeds, caveats)
    _keep(bench, seeds, [*lines, *caveats])


def _keep(bench: Workbench, seeds: Sequence[int], lines: Sequence[str]) -> None:
    """Lines for the screen and for the train.log of each search that they are about."""
    for line in lines:
        print(line)
    for seed in seeds:
        log_once(search_folder(bench, seed) / "train.log", lines)


def _agreement(bench: Workbench, seeds: Sequence[int]) -> tuple[list[str], list[str]]:
    """How far the searches agree, slot by slot, and in all, as derive.py will say it."""
    request = request_of(bench, bench.experiment.derive, seeds)
    searched = read_searches(request, "agreement")
    found = searched.agreement()
    if found is None:
        return [], ["no agreement of these searches: alpha does not move, so pi chooses nothing"]
    slots = "  ".join(f"{slot}: {alike:.2f}" for slot, alike in enumerate(found.slots))
    pairs = f"by {searched.words}, pairs of searches that chose alike, by slot: {slots}"
    return [pairs], agreement_caveats(found)


def _next(bench: Workbench, seeds: Sequence[int]) -> str:
    experiment = bench.experiment
    by_pi = experiment.derive.method in NEED_PI and not experiment.search.alpha_learns
    method = " --method evolution" if by_pi else ""
    if len(seeds) > 1:
        derive = command_line.command("derive.py", bench.run_dir)
        return f"{derive}{method} --seeds {','.join(map(str, seeds))}"
    lowest = cli.is_lowest_seed(search_folder(bench, seeds[0]))
    others = [] if lowest else [f"run.seed={seeds[0]}"]
    return command_line.command("derive.py", bench.run_dir, *others) + method
