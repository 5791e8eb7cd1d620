"""Scripts of an experiment run in a process, watched to its end; why it failed, if it did."""

import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from model import load_architecture
from pipeline.experiment import Experiment, dump_experiment
from pipeline.processes.child import LEFT_ALONE
from pipeline.processes.script_process import FolderBusy, ScriptProcess, Watcher
from pipeline.run_files import retrain_folder, search_folder
from utils.files import words_of, write_whole

METRICS = "metrics.jsonl"
CHOSEN = "architecture.json"
# Of a whole run, in their order.
SCRIPTS = ("search", "derive", "retrain")
_TAIL_BYTES = 20_000
_ATTEMPT = "--- attempt"  # begins the line that the process writes before anything else
_POLL_S = 0.2
# A process that ended with one of these was asked to, and can go on.
_FROM_OUTSIDE = {LEFT_ALONE, 130, 143, -signal.SIGINT, -signal.SIGTERM}
_MOST_STARTS = 10


class Failed(Exception):
    """The run failed for a reason of its own; `code` is its process's exit code, if it ended."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


@dataclass
class Limits:
    """When a run counts as hanging, in seconds by this process's own clock.

    Attributes:
        total_s: from the making of these limits on, whatever the run says; None: for ever.
        silent_s: without a change of its files.
        total_hint: what the reader of the message can do, such as the key that sets `total_s`.
        silent_hint: the same of `silent_s`.
        clock: the seconds.
    """

    total_s: float | None
    silent_s: float
    _: KW_ONLY
    total_hint: str = ""
    silent_hint: str = ""
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
        if self.total_s is not None and now - self._began_s > self.total_s:
            return _minutes("not done after", self.total_s, self.total_hint)
        if now - self._changed_s > self.silent_s:
            return _minutes("silent for", self.silent_s, self.silent_hint)
        return None


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
        Failed, Interrupted: how else it ended, beside what `watcher` raises; no process is left.
        OSError: the folder cannot be written, which is no fault of the run.
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / "experiment.yaml"
    write_whole(path, dump_experiment(experiment))
    given = [str(path), *(arguments or ("--run", str(run))), "--scripts", *scripts]
    for _ in range(_MOST_STARTS):
        try:
            process = ScriptProcess(run, given, watcher)
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


def _watch(process: ScriptProcess, run: Path, seed: int, limits: Limits, watcher: Watcher) -> int:
    """Poll a process to its end; its exit code."""
    metrics = search_folder(run, seed) / METRICS
    search_state, chosen_state = None, None
    folders = expected_folders(run, seed)
    while (code := process.poll()) is None:
        watcher.check(process)
        if search_state != (search_state := _size_and_time(metrics)):
            watcher.search_wrote(metrics)
        if chosen_state != (chosen_state := _size_and_time(run / CHOSEN)):
            folders = expected_folders(run, seed)
        if words := limits.broken([process.log, *(folder / METRICS for folder in folders)]):
            process.show_stacks()
            raise Failed(f"{words}; {process.log.name} ends with where it was")
        time.sleep(_POLL_S)
    return code


def expected_folders(run: Path, seed: int) -> list[Path]:
    """Where the phases of a run write; that of the retraining once its architecture is chosen."""
    folders = [search_folder(run, seed)]
    # Not chosen yet; or damaged, which is for the phases to say.
    with suppress(OSError, ValueError):
        name = load_architecture(run / CHOSEN).name
        folders.append(retrain_folder(run, name, seed))
    return folders


def reason_of(code: int, log: Path) -> str:
    """Why a process failed, in one line."""
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


def _minutes(what: str, seconds: float, hint: str) -> str:
    return f"{what} {seconds / 60:g} minutes" + (f" ({hint})" if hint else "")


def _size_and_time(path: Path) -> tuple[int, int] | None:
    """A file's size and time of change; None where it is not there, or not any more."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
