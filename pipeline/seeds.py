"""Seeds of whole runs: what each of them draws anew, and which took part in a choice."""

from pipeline.experiment import Experiment, with_settings


def seeded(experiment: Experiment, seed: int) -> Experiment:
    """The experiment of one of several runs, without a sweep: each searches and derives anew.

    Derivations draw and train by `derive.seed`, so it goes with the run's: the experiment's own is
    added to it, so that what a file or a sweep sets apart stays apart.
    """
    own = experiment.derive.seed
    return with_settings(experiment, {"run.seed": seed, "derive.seed": own + seed})
