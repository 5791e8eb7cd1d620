"""A worker that claims waiting trials until there are none: `python -m tests.hpo.claiming`.

Arguments: the storage and the journal. It prints `ready`, waits for a line, and then prints the
number of each trial that it claimed.
"""

import sys
from pathlib import Path

import optuna
from optuna.trial import TrialState

from hpo.storage import open_storage


def main() -> None:
    """Claim and finish trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(sys.argv[1], Path(sys.argv[2]), create=False)
    study = optuna.load_study(study_name="sweep", storage=storage)
    print("ready", flush=True)
    sys.stdin.readline()
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        trial = study.ask()
        if trial.user_attrs:  # else another one took the last that waited
            print(trial.number, flush=True)
            study.tell(trial, trial.suggest_float("x", 0, 100))


if __name__ == "__main__":
    main()
