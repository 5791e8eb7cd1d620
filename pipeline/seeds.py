"""Seeds of whole runs: what each of them draws anew, and which took part in a choice."""

from collections.abc import Sequence

from model import load_architecture
from nas.derivation import TRAINED
from pipeline.context import RunPlan
from pipeline.experiment import Experiment, with_settings
from pipeline.trainings import seeds_trained


def seeded(experiment: Experiment, seed: int) -> Experiment:
    """The experiment of one of several runs, without a sweep: each searches and derives anew.

    Derivations draw and train by `derive.seed`, so it goes with the run's: the experiment's own is
    added to it, so that what a file or a sweep sets apart stays apart.
    """
    own = experiment.derive.seed
    return with_settings(experiment, {"run.seed": seed, "derive.seed": own + seed})


def check_fresh(
    seeds: Sequence[int],
    option: str,
    used: Sequence[int],
    whose: str,
    why: str = "which took part in the choice; give seeds that did not",
) -> None:
    """Refuse seeds, which `option` gives, where they are among those `used`, which are `whose`.

    Raises:
        ValueError: one of them is; the message ends with `why` it must not.
    """
    if both := [seed for seed in seeds if seed in used]:
        given, others = (", ".join(map(str, some)) for some in (seeds, used))
        raise ValueError(f"{option} {given}: {both[0]} is one of {whose} ({others}), {why}")


def check_comparison(plan: RunPlan) -> None:
    """Refuse to compare a layout by seeds with which it was trained to be chosen.

    Raises:
        ValueError: one of compare.seeds is such a seed, or the chosen architecture is damaged.
    """
    path = plan.run_dir / "architecture.json"
    evidence = load_architecture(path).evidence if path.exists() else None
    # What another method chose owes nothing to trainings that lie there too.
    if evidence is not None and evidence.method.partition(":")[0] in TRAINED:
        whose = f"the seeds with which layouts were trained in {plan.run_dir}"
        seeds = plan.experiment.compare.seeds
        check_fresh(seeds, "compare.seeds", seeds_trained(plan.run_dir), whose)
