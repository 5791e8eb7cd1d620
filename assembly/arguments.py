"""What a command line says of the experiment."""

from argparse import Namespace
from pathlib import Path

import cli
from experiment import Experiment, TextExperiment, load_experiment, load_text_experiment


def experiment_of(arguments: Namespace) -> tuple[Experiment, Path]:
    """The experiment and the run directory that a command line names.

    Raises:
        ValueError: the experiment is not valid or names a file that is not there, or a run
            directory holds none.
        OSError: the file cannot be read.
    """
    place = cli.locate(arguments)
    return load_experiment(place.file, arguments.set, Path.cwd()), place.run


def text_experiment_of(arguments: Namespace) -> tuple[TextExperiment, Path]:
    """As `experiment_of`, of a file that needs no other section than `data`."""
    place = cli.locate(arguments)
    return load_text_experiment(place.file, arguments.set, Path.cwd()), place.run


def carried(arguments: Namespace) -> tuple[str, ...]:
    """The settings of this command that the next one needs too."""
    own = ("derive.", "run.tensorboard")
    return tuple(setting for setting in arguments.set if not setting.startswith(own))
