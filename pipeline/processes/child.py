"""What the process does that is started: it runs the scripts one after another, guarded.

One process and not one per script, so that torch is imported once. It ends when the worker does
that watches it: the worker holds the other end of its standard input and sends a byte with every
sign of life.
"""

import argparse
import faulthandler
import importlib
import os
import select
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from hpo.heartbeat import now_s

# The exit code of a process that ended because its worker was gone or silent.
LEFT_ALONE = 75
_GRACE_S = 10.0
_POLL_S = 0.5
# After a sleep of the machine a worker has so long to give a sign.
_WAKE_S = 10.0
_OOM_SCORE = Path("/proc/self/oom_score_adj")
PROGRAM = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Run the scripts in turn; the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scripts", nargs="+", required=True)
    parser.add_argument("--alive-s", type=float, required=True)
    options, rest = parser.parse_known_args(arguments)
    faulthandler.enable()
    _go_first_where_memory_ends()
    alone = threading.Event()
    threading.Thread(target=_guard, args=(options.alive_s, alone), daemon=True).start()
    print(f"--- attempt: scripts {' '.join(options.scripts)}", flush=True)
    for script in options.scripts:
        # The scripts name themselves in what they print.
        sys.argv = [str(PROGRAM / f"{script}.py"), *rest]
        code: int = importlib.import_module(script).main(rest)
        sys.stdout.flush()
        if alone.is_set():
            return LEFT_ALONE
        if code:
            return code
    return 0


def _go_first_where_memory_ends() -> None:
    """Ask the kernel to end this process, and not the command that started it."""
    if _OOM_SCORE.exists():
        _OOM_SCORE.write_text("1000")


def _guard(alive_s: float, alone: threading.Event) -> None:
    """End this process when its worker is gone, or gave no sign for so long."""
    heard = looked = now_s()
    while True:
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], _POLL_S)
        now = now_s()
        if now - looked > _WAKE_S:
            heard = max(heard, now - alive_s + min(_WAKE_S, alive_s / 2))
        looked = now
        if ready:
            if not os.read(sys.stdin.fileno(), 4096):
                _end("the worker is gone", alone)
            heard = now
        elif now - heard > alive_s:
            _end(f"the worker gave no sign for {alive_s:g} s", alone)


def _end(why: str, alone: threading.Event) -> None:
    """Stop as after Ctrl-C, with a checkpoint; at once where that takes too long."""
    alone.set()
    print(f"stopping: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(_GRACE_S)
    os._exit(LEFT_ALONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
