"""A trial's process watched to its end, and what its files came to."""

import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model import load_architecture
from pipeline.experiment import Experiment, dump_experiment
from pipeline.run_files import read_result, retrain_folder, search_folder
from pipeline.sweep.child import LEFT_ALONE
from pipeline.sweep.process import FolderBusy, TrialProcess, Watcher
from training.metrics import read_rows
from utils.files import read_object, words_of, write_whole

METRICS = "metrics.jsonl"
CHOSEN = "architecture.json"
NO_BITS = (
    "sweep.objectives: no bits per byte, because the tokenizer may lose text; use a lossless one "
    "(kind bpe, unigram or bytes, without lower_case)"
)
_TAIL_BYTES = 20_000
_ATTEMPT = "--- attempt"  # begins the line that a trial's process writes before anything else
SCRIPTS = ("search", "derive", "retrain")
_POLL_S = 0.2
# A process that ended with one of these was asked to, and can go on.
_FROM_OUTSIDE = {LEFT_ALONE, 130, 143, -signal.SIGINT, -signal.SIGTERM}
_MOST_STARTS = 10


@dataclass(frozen=True)
class SeedOutcome:
    """What one run of a trial came to.

    Attributes:
        objectives: by name.
        facts: layout, sizes and where it went on, for the table.
        architecture: the JSON text of the derived model.
    """

    objectives: dict[str, float]
    facts: dict[str, Any]
    architecture: str


def expected_folders(run: Path, seed: int) -> list[Path]:
    """Where the phases of a run write; that of the retraining once its architecture is chosen."""
    folders = [search_folder(run, seed)]
    # Not chosen yet; or damaged, which is for the phases to say.
    with suppress(OSError, ValueError):
        name = load_architecture(run / CHOSEN).name
        folders.append(retrain_folder(run, name, seed))
    return folders


def read_outcome(run: Path, seed: int, objectives: Sequence[str]) -> SeedOutcome:
    """Read what search, derivation and retraining of one seed wrote.

    Raises:
        ValueError: a file is damaged, or there are no bits per byte.
        OSError: a file is missing.
    """
    chosen = run / CHOSEN
    architecture = load_architecture(chosen)
    if architecture.costs is None:
        raise ValueError(f"{chosen}: costs: missing; derive.py writes them, run the trial again")
    values = {
        "flops": architecture.costs.flops_per_token,
        "parameters": float(architecture.costs.parameters),
    }
    onehot = search_curve(run, seed, "onehot")
    if onehot or "onehot" in objectives:  # a search whose alpha stands still has no such net
        values["onehot"] = _last(onehot, run)
    if "retrained" in objectives:
        path = retrain_folder(run, architecture.name, seed) / "result.json"
        values["retrained"] = _bits(read_result(path)["valid"], path)
    return SeedOutcome(
        objectives=values,
        facts={
            "layout": architecture.letters(),
            "parameters": architecture.costs.parameters,
            "flops_per_token": architecture.costs.flops_per_token,
            "went_on_from": _resumes(run, seed),
        },
        architecture=architecture.to_json(),
    )


def search_curve(run: Path, seed: int, net: str) -> dict[int, float]:
    """Bits per byte of validation by step of the search, as far as it is.

    Raises:
        ValueError: a row is damaged, or there are no bits per byte.
        OSError: the file is there and cannot be read.
    """
    path = search_folder(run, seed) / METRICS
    return {
        row["step"]: _bits(row, path)
        for row in read_rows(path)
        if row.get("kind") == "valid" and row.get("net") == net
    }


def reason_of(code: int, log: Path) -> str:
    """Why a trial's process failed, in one line."""
    last = last_words(log)
    if code == -signal.SIGKILL:
        return "killed from outside (SIGKILL), as the system does where memory runs out"
    if code < 0:
        # Not every number has a name.
        known = -code in set(signal.Signals)
        return f"ended by {signal.Signals(-code).name if known else f'signal {-code}'}: {last}"
    if re.search(r"\bMemoryError\b|out of memory|can't allocate memory|alloc_cpu", last):
        return f"out of memory: {last}"
    return f"exit code {code}: {last}"


def _resumes(run: Path, seed: int) -> list[str]:
    """From which steps the phases of a run went on."""
    resumes = []
    for folder in expected_folders(run, seed):
        path = folder / "environment.json"
        if not path.exists():  # nothing was searched, or retrained
            continue
        phase = path.relative_to(run).parts[0]
        entries: Any = read_object(path, "remove it").get("resumed", [])
        try:
            resumes += [f"{phase} step {int(entry['step'])}" for entry in entries]
        except (TypeError, KeyError, ValueError, OverflowError):
            raise ValueError(f"{path}: resumed: damaged; remove it") from None
    return resumes


def _last(curve: Mapping[int, float], run: Path) -> float:
    if not curve:
        raise ValueError(f"{run}: the search wrote no validation of the one-hot net")
    return curve[max(curve)]


def _bits(scores: Mapping[str, Any], path: Path) -> float:
    bits = scores.get("bits_per_byte", math.nan)
    if bits is None:
        raise ValueError(NO_BITS)
    # Not isfinite: an integer of JSON may be too large for it.
    if not isinstance(bits, int | float) or not 0 <= bits <= sys.float_info.max:
        raise ValueError(f"{path}: bits_per_byte: damaged; run the trial again")
    return float(bits)


def last_words(log: Path) -> str:
    """The last line of the last attempt that says something; of a long error, its first one."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return words_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begins = [place for place, line in enumerate(lines) if line.startswith(_ATTEMPT)]
    lines = lines[begins[-1] + 1 :] if begins else lines
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    words = errors[-1] if errors else (lines[-1] if lines else "no word in its log")
    return words[:300]


class Failed(Exception):
    """The trial failed for a reason of its own; `code` is its process's exit code, if it ended."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


class Pruned(Exception):
    """The trial was not promising."""


@dataclass
class Limits:
    """When a trial counts as hanging, in seconds by this process's own clock.

    Attributes:
        trial_s: from the making of these limits on, whatever the trial says; None: for ever.
        silent_s: without a change of its files.
        clock: the seconds.
    """

    trial_s: float | None
    silent_s: float
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    _changed_s: float = field(init=False)
    _seen: object = None

    def __post_init__(self) -> None:
        self._began_s = self._changed_s = self.clock()

    def broken(self, files: Sequence[Path]) -> str | None:
        """Which limit is broken, in words; the first call begins the time of silence.

        Args:
            files: what a run that goes on writes to. By name: whoever looks for them below a run's
                folder meets folders that the run renames or removes at that moment.
        """
        now = self.clock()
        # Changes are seen, and no clock of a file server is believed.
        seen = [_size_and_time(path) for path in files]
        if seen != self._seen:
            self._seen, self._changed_s = seen, now
        if self.trial_s is not None and now - self._began_s > self.trial_s:
            return f"not done after {self.trial_s / 60:g} minutes (sweep.trial_minutes)"
        if now - self._changed_s > self.silent_s:
            return f"silent for {self.silent_s / 60:g} minutes (sweep.silent_minutes)"
        return None


def run_seed(
    experiment: Experiment, objectives: Sequence[str], run: Path, limits: Limits, watcher: Watcher
) -> SeedOutcome:
    """Run the phases of one seed as `run_scripts` does, and read what they came to.

    Without the objective `retrained` nothing is retrained.
    """
    scripts = SCRIPTS if "retrained" in objectives else SCRIPTS[:2]
    run_scripts(experiment, scripts, run, limits, watcher)
    with _files_of_the_trial():
        return read_outcome(run, experiment.run.seed, objectives)


def run_scripts(
    experiment: Experiment,
    scripts: Sequence[str],
    run: Path,
    limits: Limits,
    watcher: Watcher,
    arguments: Sequence[str] = (),
) -> None:
    """Run scripts that take an experiment and `--run`, one after another in a process of their own.

    Where `arguments` are given they stand in the place of `--run`.

    Raises:
        Failed, Pruned, Interrupted: how else it ended; no process of it is left.
        OSError: the folder cannot be written, which is no fault of the trial.
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / "experiment.yaml"
    write_whole(path, dump_experiment(experiment))
    given = [str(path), *(arguments or ("--run", str(run))), "--scripts", *scripts]
    for _ in range(_MOST_STARTS):
        try:
            process = TrialProcess(run, given, watcher)
        except FolderBusy:
            raise Failed(f"{run}: another process still trains here") from None
        try:
            code = _watch(process, run, experiment.run.seed, limits, watcher)
        except BaseException:
            process.kill()
            raise
        if code not in _FROM_OUTSIDE:
            break
        # Where this process was stopped too, this raises Interrupted.
        watcher.check(None)
        watcher.confirm()
    if code:
        raise Failed(reason_of(code, process.log), code)


def _watch(process: TrialProcess, run: Path, seed: int, limits: Limits, watcher: Watcher) -> int:
    """Poll a process to its end; its exit code."""
    metrics = search_folder(run, seed) / METRICS
    curve_state, chosen_state = None, None
    folders = expected_folders(run, seed)
    while (code := process.poll()) is None:
        watcher.check(process)
        if watcher.prunes and curve_state != (curve_state := _size_and_time(metrics)):
            with _files_of_the_trial():
                curve = search_curve(run, seed, "soft")
            watcher.report(curve)
        if chosen_state != (chosen_state := _size_and_time(run / CHOSEN)):
            folders = expected_folders(run, seed)
        if words := limits.broken([process.log, *(folder / METRICS for folder in folders)]):
            process.show_stacks()
            raise Failed(f"{words}; trial.log ends with where it was")
        time.sleep(_POLL_S)
    return code


@contextmanager
def _files_of_the_trial() -> Iterator[None]:
    """Let what is wrong with the files that a trial wrote fail this trial, and not its worker."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Failed(words_of(error)) from None


def _size_and_time(path: Path) -> tuple[int, int] | None:
    """A file's size and time of change; None where it is not there, or not any more."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
