"""Scripts of one experiment run in turn in a process of their own; why it failed, if it did.

One process and not one per script, so that torch is imported once. It ends, with a checkpoint, when
the process that started it does, whose end of its standard input is then closed.
"""

import argparse
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.experiment import Experiment, dump_experiment
from training.endings import Stopped
from training.signals import StopRequest
from utils.files import write_whole

# Of a whole run, in their order.
SCRIPTS = ("search", "derive", "retrain")
_PROGRAM = Path(__file__).resolve().parents[1]
_CHILD = (sys.executable, "-P", "-m", "pipeline.script_process")
_START = "--- scripts"  # begins the line that a process writes before anything else
_TAIL_BYTES = 20_000
_POLL_S, _GRACE_S = 0.2, 15.0


class Failed(Exception):
    """The run failed for a reason of its own; `code` is its process's exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


def run_scripts(
    experiment: Experiment,
    scripts: Sequence[str],
    run: Path,
    stop: StopRequest,
    environment: Mapping[str, str],
    arguments: Sequence[str] = (),
) -> None:
    """Run scripts that take an experiment and `--run`, one after another in a process.

    Where `arguments` are given they stand in the place of `--run`.

    Raises:
        Failed: a script ended with an error.
        Stopped: this process was asked to end; the run has saved its state.
        OSError: the folder cannot be written.
    """
    run.mkdir(parents=True, exist_ok=True)
    file, log = run / "experiment.yaml", run / "trial.log"
    write_whole(file, dump_experiment(experiment))
    given = [str(file), *(arguments or ("--run", str(run))), "--scripts", *scripts]
    process = _started(given, log, environment)
    try:
        while (code := process.poll()) is None:
            if stop.number is not None:
                _end(process)
                raise Stopped(stop.number)
            time.sleep(_POLL_S)
    finally:
        _kill(process)
    if code:
        raise Failed(reason_of(code, log), code)


def _started(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(_PROGRAM), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        return subprocess.Popen(
            [*_CHILD, *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, **own},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask for a checkpoint and an end."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End it at once, with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reason_of(code: int, log: Path) -> str:
    """Reason of a failure, in one line."""
    last = last_words(log)
    if code == -signal.SIGKILL:
        return "killed from outside (SIGKILL), as the system does where memory runs out"
    if code < 0:
        return f"ended by signal {-code}: {last}"
    return f"exit code {code}: {last}"


def last_words(log: Path) -> str:
    """The last line of the last process that says something; of a long error, its first one."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace").rpartition(_START)[2].partition("\n")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    return ["no word in its log", *lines[-1:], *errors[-1:]][-1][:300]


def main(arguments: Sequence[str]) -> int:
    """Run the scripts in turn; the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="+", required=True)
    options, rest = parser.parse_known_args(arguments)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    print(_START, *options.scripts, flush=True)
    for script in options.scripts:
        # The scripts name themselves in what they print.
        sys.argv = [str(_PROGRAM / f"{script}.py"), *rest]
        code: int = importlib.import_module(script).main(rest)
        sys.stdout.flush()
        if code:
            return code
    return 0


def _end_with_starter() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
