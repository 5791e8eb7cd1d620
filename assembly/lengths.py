"""How long the phases are: which text they read, and epochs in steps."""

from dataclasses import dataclass

from assembly.workbench import Workbench
from data import ContextBatches, TokenArray
from nas.config import DEFAULT_SHARE, check_schedules
from training.config import steps_in
from training.optim import Stages, stages_of


@dataclass(frozen=True)
class SearchText:
    """The training text of a search: the weights' batches, and alpha's own where it has some."""

    weights: ContextBatches
    alpha: ContextBatches | None


def search_text(bench: Workbench) -> SearchText:
    """The batches of a search; with `split` alpha has the end of the text for itself.

    Raises:
        ValueError: the text is too short for the streams.
    """
    tokens = bench.prepared.tokens["train"]
    if bench.experiment.search.alpha.data != "split":
        return SearchText(bench.training_batches(tokens), None)
    cut = _alphas_first_token(bench, tokens)
    return SearchText(bench.training_batches(tokens[:cut]), bench.training_batches(tokens[cut:]))


def _alphas_first_token(bench: Workbench, tokens: TokenArray) -> int:
    share = bench.experiment.search.alpha.share or DEFAULT_SHARE
    cut = round(len(tokens) * (1 - share))
    least = bench.experiment.data.batch + 1
    if min(cut, len(tokens) - cut) < least:
        raise ValueError(
            f"search.alpha.share: {share} of {len(tokens)} training tokens leaves {cut} to "
            f"the weights and {len(tokens) - cut} to alpha; {least} are needed on each side"
        )
    return cut


def search_steps(bench: Workbench) -> int:
    """Steps of the weights.

    Raises:
        ValueError: the schedules do not fit into so few steps.
    """
    config = bench.experiment.search
    steps = steps_in(config.steps, config.epochs, search_text(bench).weights.per_epoch)
    try:
        check_schedules(config, steps)
    except ValueError as error:
        raise ValueError(f"search.{error}") from None
    return steps


def retrain_stages(bench: Workbench) -> Stages:
    """The stages of a retraining.

    Raises:
        ValueError: the warm-up does not fit into so few steps.
    """
    try:
        return stages_of(bench.experiment.retrain, bench.training_batches().per_epoch)
    except ValueError as error:
        raise ValueError(f"retrain.{error}") from None
