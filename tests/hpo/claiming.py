"""Two threads that claim waiting trials until there are none: `python -m tests.hpo.claiming`.

Arguments: the storage and the journal. They share a study, as in a pool. It prints `ready`, waits
for a line, and then prints the number of each trial that they claimed.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
from optuna.trial import TrialState

from hpo.heartbeat import own_lease
from hpo.queue import Queue
from hpo.storage import open_storage
from utils.screen import announce


def main() -> None:
    """Claim and finish trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(sys.argv[1], Path(sys.argv[2]), create=False)
    queue = Queue(optuna.load_study(study_name="sweep", storage=storage), storage, retries=0)
    print("ready", flush=True)
    sys.stdin.readline()

    def work(_: int) -> None:
        while True:
            with queue.lock:
                trial = queue.claim(own_lease())
                value = 0.0 if trial is None else trial.suggest_float("x", 0, 100)
            if trial is None:
                return
            announce(str(trial.number))
            queue.beat(trial.number, own_lease())
            queue.note(trial.number, {"host": "h"})
            queue.is_pruned_at(trial, value, 1)
            queue.finish(trial.number, TrialState.COMPLETE, [value])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


if __name__ == "__main__":
    main()
