"""One search or several of one experiment: in turn, each in its folder, and what they came to."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
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
from pipeline.context import Workbench, with_seed
from pipeline.derive import request_of
from pipeline.search import search_folder, search_identity, search_phase
from pipeline.summary import text_warnings
from training.console import announce
from training.run_dir import FolderLock, is_claimed
from training.trainer import Phase
from utils.pi import entropy_share, margins, softmax


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
    """Run the searches one after the other; those that are done already take no step.

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
        del phase


def _opened(bench: Workbench, seed: int) -> Phase:
    if bench.ranks.is_first:
        announce("building the SuperNet and forecasting its memory")
    phase = search_phase(with_seed(bench, seed))
    phase.open()
    return phase


def finish_searches(bench: Workbench, seeds: Sequence[int]) -> None:
    """What the searches came to, in words, tables, figures and the report, figures last.

    Raises:
        ValueError: a file of a search is damaged.
        OSError: a file could not be written, or a figure not drawn.
    """
    if not bench.ranks.is_first:
        return
    for seed in seeds:
        folder = search_folder(bench, seed)
        with _locked(folder):
            write_pi_csv(folder / "pi.npz", folder / "pi.csv")
        _say_pi(bench, seed, several=len(seeds) > 1)
    _say_all(bench, seeds)
    if bench.experiment.run.figures:
        _draw(bench, seeds)
    print(f"next: {_next(bench, seeds)}")


def _draw(bench: Workbench, seeds: Sequence[int]) -> None:
    """The figures of each search, and the report."""
    from report.page import write_report
    from report.search_figures import write_search_figures

    announce("drawing the figures")
    try:
        for seed in seeds:
            folder = search_folder(bench, seed)
            with _locked(folder):
                write_search_figures(folder)
        print(f"report: {write_report(bench.run_dir)}")
    except OSError as error:
        words = f"{error.strerror or error} (the searches are done, figures or report are not)"
        raise OSError(error.errno or errno.EIO, words, error.filename) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep others out of the folder of a search that is done; nobody trains there for long."""
    try:
        lock = FolderLock(folder)
    except ValueError:
        announce(f"waiting for another process that has {folder}")
        lock = FolderLock(folder, wait=True)
    try:
        yield
    finally:
        lock.release()


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
    with _locked(folder):
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
        folder = search_folder(bench, seed)
        # Another process may say the same of the same search now, or go on in its folder.
        with _locked(folder):
            log_once(folder / "train.log", lines)


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
        derive = cli.command("derive.py", bench.run_dir)
        return f"{derive}{method} --seeds {','.join(map(str, seeds))}"
    lowest = cli.is_lowest_seed(search_folder(bench, seeds[0]))
    others = [] if lowest else [f"run.seed={seeds[0]}"]
    return cli.command("derive.py", bench.run_dir, *others) + method
