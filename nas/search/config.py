"""What an experiment says about the search: tau, alpha, the estimators, the SuperNet's steps."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nas.costs.config import SearchCostConfig
from training.config import (
    EPOCHS,
    MOST_EPOCHS,
    Beta,
    OptimiserConfig,
    check_length,
    check_warmup,
)
from utils.validation import Section

AlphaEstimator = Literal["soft", "straight_through", "single_path", "two_path", "dirichlet"]
Estimator = Literal[AlphaEstimator, "spos"]

# Those whose forward pass takes one candidate, by how many they compute (None: all).
HARD: dict[str, int | None] = {
    "straight_through": None,
    "single_path": 1,
    "two_path": 2,
    "spos": 1,
}


class TauConfig(Section):
    """The temperature of the Gumbel softmax over the steps in which alpha moves."""

    schedule: Literal["constant", "linear", "cosine", "exponential", "step"] = Field(
        default="linear", description="How the temperature goes from start to end."
    )
    start: float = Field(default=1.0, gt=0, description="tau until alpha's first step.")
    end: float = Field(default=0.3, gt=0, description="tau at the last step.")
    stairs: int = Field(default=5, ge=2, description="Number of equal stairs (step only).")

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> "TauConfig":
        heeded = {"constant": (), "step": ("end", "stairs")}.get(self.schedule, ("end",))
        idle = [key for key in ("end", "stairs") if key not in heeded]
        self.refuse_idle(idle, f"schedule {self.schedule}")
        return self


class AlphaConfig(Section):
    """How the architecture parameters alpha are trained."""

    data: Literal["shared", "split", "next_batch"] = Field(
        default="next_batch",
        description="Text for alpha, the architecture parameters. shared: the weights' batch, in "
        "one step; split: its own part; next_batch: the next batch, then the weights on it.",
    )
    share: float = Field(
        default=0.2, gt=0, lt=1, description="Fraction of the text for alpha (split only)."
    )
    warmup_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5, description="Fraction of the steps before alpha's first step."
    )
    every: int = Field(default=1, ge=1, description="Steps of the weights per step of alpha.")
    estimator: AlphaEstimator | None = Field(
        default=None,
        description="Estimator of alpha's gradient; null: search.estimator, soft if that is auto. "
        "It may differ from that of the weights unless data is shared, e.g. two_path beside "
        "single_path.",
    )
    lr: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        default="auto",
        description="Peak learning rate; auto: alpha can move 10 in total, at most 0.05 per step.",
    )
    betas: tuple[Beta, Beta] = Field(default=(0.5, 0.999), description="Adam's decay rates.")
    eps: float = Field(
        default=2e-3,
        gt=0,
        description="Adam's eps in nats per token; what matters less moves alpha more slowly.",
    )
    weight_decay: float = Field(default=0.0, ge=0, description="On alpha.")
    schedule: Literal["cosine", "linear", "constant"] = Field(
        default="cosine", description="cosine and linear end at 0."
    )

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> "AlphaConfig":
        if self.data != "split":
            self.refuse_idle(["share"], f"data {self.data}")
        return self


class SearchConfig(Section):
    """How search.py trains the SuperNet."""

    steps: int | None = Field(
        default=None,
        ge=2,
        description="Training steps of the SuperNet; search.py needs these or epochs.",
    )
    epochs: float | None = Field(
        default=None,
        gt=0,
        le=MOST_EPOCHS,
        description=f"{EPOCHS} With alpha.data split: over the weights' part.",
    )
    estimator: Literal["auto", Estimator] = Field(
        default="auto",
        description="How candidates enter a step. soft, dirichlet: all, mixed by a sample. "
        "straight_through: one used, all computed for alpha. single_path: only the sampled one. "
        "two_path: the first used, two computed for alpha. spos: one drawn uniformly, alpha "
        "untrained unless alpha.estimator is given. auto: spos for the weights, soft for alpha "
        "(soft for both with alpha.data shared), the best measured (docs/layoutbench.md).",
    )
    resample_every: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto",
        description="Steps for which one sample is kept; auto: 1 for soft and dirichlet, max(4, "
        "ceil(memory / segment) + 1) for the others. The weights' estimator decides, with "
        "alpha.data split alpha's too, then times alpha.every.",
    )
    tau: TauConfig = TauConfig()
    alpha: AlphaConfig = AlphaConfig()
    cost: SearchCostConfig = SearchCostConfig()
    optimiser: OptimiserConfig = OptimiserConfig()

    @model_validator(mode="after")
    def _schedules_fit(self) -> "SearchConfig":
        if self.has_length:
            check_length(self.steps, self.epochs)
        if self.steps is not None:
            check_schedules(self, self.steps)
        if self.alpha.data == "shared" and self.alpha_estimator != self.weights_estimator:
            raise ValueError(
                f"alpha.estimator: {self.alpha_estimator} is not the weights' {self.estimator} "
                "(search.estimator), and with data shared both gradients come from one backward "
                "pass; use search.alpha.data: next_batch"
            )
        need_alpha = {
            "alpha.data": self.alpha.data == "split",
            "cost": self.cost.on,
        }
        for key, needs_it in need_alpha.items():
            if needs_it and not self.alpha_learns:
                raise ValueError(
                    f"{key}: needs an alpha that moves, and estimator spos never moves it; leave "
                    "it out, or say by search.alpha.estimator how alpha learns"
                )
        return self

    @property
    def has_length(self) -> bool:
        """Whether a search can be made; without one, neither steps nor epochs are needed."""
        return (self.steps, self.epochs) != (None, None)

    @property
    def weights_estimator(self) -> Estimator:
        """The estimator of the weights' step, once alpha moves."""
        if self.estimator != "auto":
            return self.estimator
        return self.alpha_estimator if self.alpha.data == "shared" else "spos"

    @property
    def alpha_estimator(self) -> Estimator:
        """The estimator of alpha's own step."""
        return self.alpha.estimator or ("soft" if self.estimator == "auto" else self.estimator)

    @property
    def alpha_learns(self) -> bool:
        """Whether alpha ever moves."""
        return self.alpha_estimator != "spos"


def alpha_steps(config: SearchConfig, steps: int) -> range:
    """The steps, of so many in all, in which an alpha that learns moves."""
    return range(math.ceil(config.alpha.warmup_fraction * steps), steps, config.alpha.every)


def check_schedules(config: SearchConfig, steps: int) -> None:
    """Raise ValueError where the warm-up does not end in time, or alpha moves less than twice."""
    check_warmup(config.optimiser, steps)
    moves = alpha_steps(config, steps)
    if not config.alpha_learns or len(moves) >= 2:
        return
    key = "warmup_fraction" if steps - moves.start < 2 else "every"
    raise ValueError(
        f"alpha.{key}: with {getattr(config.alpha, key)} alpha would move "
        f"{'once' if moves else 'in no step'} of {steps}, from step {moves.start} on, and twice is "
        "the least; use a smaller one or more steps"
    )
