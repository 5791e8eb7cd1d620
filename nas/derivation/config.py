"""What an experiment says about the derivation: the method, its effort, and the budget."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from nas.costs.config import BudgetConfig
from utils.validation import Section

# Trainings of half length, and so many more for each kind beside attention and dense.
PROBES, PROBES_PER_KIND = 10, 3


class TrainingsConfig(Section):
    """How many layouts `predictor` and `trained` train."""

    # What `layoutbench replay` judges are these defaults.
    half: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = Field(
        default="auto",
        description="Trainings of half length at most, the first design included; auto: "
        f"{PROBES}, and {PROBES_PER_KIND} for every candidate beside attention, dense and what "
        "adds nothing.",
    )
    best: int = Field(
        default=3,
        ge=1,
        le=100,
        description="How many of the best layouts predictor trains in full, and trained with every "
        "seed; the best hand-written one is trained besides.",
    )
    seeds: int = Field(
        default=2,
        ge=1,
        le=100,
        description="Trainings of each of the best, with the same seeds.",
    )

    @property
    def full_seeds(self) -> tuple[int, ...]:
        """Numbers of the seeds of full trainings."""
        return tuple(range(1, self.seeds + 1))


class DeriveConfig(Section):
    """How the choice is made discrete."""

    method: str = Field(default="trained", description="Name of a registered derivation.")
    searches: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(
        default=None,
        min_length=1,
        description="Seeds of the searches whose alphas are averaged; null: run.seed's alone.",
    )
    average: float = Field(
        default=0.2, gt=0, le=1, description="Part of a search's steps whose alpha is averaged."
    )
    top: int = Field(
        default=8,
        ge=1,
        le=10_000,
        description="top_k, trained: how many of the likeliest networks.",
    )
    samples: int = Field(default=32, ge=1, le=10_000, description="sampled: draws from pi.")
    width: int = Field(
        default=4, ge=1, le=1000, description="beam: networks whose neighbours are scored."
    )
    evaluations: int = Field(
        default=200, ge=1, le=100_000, description="beam: most networks that are scored."
    )
    population: int = Field(
        default=16, ge=2, le=10_000, description="evolution: networks of a generation."
    )
    generations: int = Field(
        default=8, ge=1, le=10_000, description="evolution: generations after the first."
    )
    mutation: float = Field(
        default=0.1, gt=0, le=1, description="evolution: probability that a slot changes."
    )
    score_tokens: int | None = Field(
        default=None,
        ge=64,
        description="Validation tokens that layouts are scored on with the SuperNet's weights, "
        "the same for all; null: all of them.",
    )
    gap: bool = Field(
        default=True,
        description="From a search: measure what discretising costs, with the SuperNet's weights.",
    )
    draws: int = Field(default=8, ge=2, le=10_000, description="gap: layouts drawn from pi.")
    p: int = Field(default=5, ge=1, description="par: slots per attention slot.")
    k: int | None = Field(
        default=None,
        ge=0,
        description="sandwich: slots at each end; null: 2, or half of the slots if less.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="random, sampled, evolution, gap: seed of the draws; predictor, trained: which "
        "seeds they train with.",
    )
    least_context: int = Field(
        default=1,
        ge=0,
        le=2**20,
        description="Blocks that read earlier tokens, which a layout must have; 0 allows one that "
        "predicts from the current token alone. Method layout takes any.",
    )
    trainings: TrainingsConfig = TrainingsConfig()
    budget: BudgetConfig = BudgetConfig()
    reference: str = Field(
        default="interleaved",
        max_length=1000,
        description="budget: the layout whose costs 1x are: a rule, or letters, e.g. 'a d a d'.",
    )
    fill: Literal["d_ffn"] | None = Field(
        default=None,
        description="d_ffn: dense blocks are widened, all by one factor, until the budget is used.",
    )
    layout: str | None = Field(default=None, description="layout: letters, e.g. 'a d a d i d'.")

    @model_validator(mode="after")
    def _layout_is_given(self) -> "DeriveConfig":
        if self.method == "layout" and self.layout is None:
            raise ValueError("layout: method layout needs one, e.g. 'a d a d i d'")
        if self.fill is not None and not self.budget.amounts:
            raise ValueError(f"fill: {self.fill} fills a budget, and there is none; give one")
        if self.searches is not None and len(set(self.searches)) < len(self.searches):
            raise ValueError(f"searches: must differ, found {self.searches}")
        return self
