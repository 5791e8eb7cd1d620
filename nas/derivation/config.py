"""What an experiment says about the derivation: the method, its effort, and the budget."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from nas.costs.config import BudgetConfig
from nas.derivation import DERIVATIONS
from utils.validation import Section

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(DERIVATIONS)]

# Trainings of half length, and so many more for each kind beside attention and dense.
PROBES, PROBES_PER_KIND = 10, 3


class TrainingsConfig(Section):
    """How many layouts `predictor` and `trained` train."""

    # What `layoutbench replay` judges are these defaults.
    half: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] = Field(
        default="auto",
        description=f"predictor: most trainings of half length; auto: {PROBES}, and "
        f"{PROBES_PER_KIND} for every candidate except attention, dense and identity.",
    )
    best: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Best layouts that predictor trains in full, and trained with every seed; the "
        "best hand-written one comes on top.",
    )
    seeds: int = Field(
        default=2, ge=1, le=100, description="Full trainings of each of the best layouts."
    )

    @property
    def full_seeds(self) -> tuple[int, ...]:
        """Numbers of the seeds of full trainings."""
        return tuple(range(1, self.seeds + 1))


class ShrinkConfig(Section):
    """How the blocks of a trained model are chosen that stay (method shrink)."""

    tokens: int = Field(
        default=32_768, ge=64, description="Training tokens on which subsets are scored."
    )
    evaluations: int = Field(
        default=5000,
        ge=1,
        le=1_000_000,
        description="Most subsets that are scored; if there are more, a greedy walk chooses which.",
    )


class DeriveConfig(Section):
    """How a layout is chosen."""

    method: MethodName = Field(
        default="trained",
        description="How the layout is chosen. trained, predictor: by training several; argmax, "
        "top_k, sampled, beam, evolution: from a search; interleaved, par, sandwich, random: by a "
        "rule; layout: derive.layout; shrink: by dropping blocks of retrain.start.",
    )
    searches: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(
        default=None,
        min_length=1,
        description="Seeds of the searches whose alphas are averaged; null: run.seed alone.",
    )
    average: float = Field(
        default=0.2, gt=0, le=1, description="Last part of a search, over which alpha is averaged."
    )
    top: int = Field(
        default=8,
        ge=1,
        le=10_000,
        description="top_k, trained: how many of the most probable layouts.",
    )
    samples: int = Field(default=32, ge=1, le=10_000, description="sampled: layouts drawn from pi.")
    width: int = Field(
        default=4, ge=1, le=1000, description="beam: layouts whose neighbours are scored."
    )
    evaluations: int = Field(
        default=200, ge=1, le=100_000, description="beam: most layouts that are scored."
    )
    population: int = Field(
        default=16, ge=2, le=10_000, description="evolution: layouts per generation."
    )
    generations: int = Field(
        default=8, ge=1, le=10_000, description="evolution: generations after the first."
    )
    mutation: float = Field(
        default=0.1, gt=0, le=1, description="evolution: probability that a block changes."
    )
    score_tokens: int | None = Field(
        default=None,
        ge=64,
        description="Validation tokens on which layouts are scored with the SuperNet's weights; "
        "null: all.",
    )
    gap: bool = Field(
        default=True,
        description="After a search: measure the loss that choosing one layout adds, with the "
        "SuperNet's weights.",
    )
    draws: int = Field(default=8, ge=2, le=10_000, description="gap: layouts drawn from pi.")
    p: int = Field(default=5, ge=1, description="par: blocks per attention block.")
    k: int | None = Field(
        default=None,
        ge=0,
        description="sandwich: attention blocks at the start, and as many dense ones at the end; "
        "null: 2, or half of the blocks if fewer.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="random, sampled, evolution, gap: seed of the draws; predictor, trained: which "
        "training seeds they use.",
    )
    least_context: int = Field(
        default=1,
        ge=0,
        le=2**20,
        description="Fewest blocks that read earlier tokens; 0 allows layouts that see the current "
        "token alone. Method layout ignores it.",
    )
    trainings: TrainingsConfig = TrainingsConfig()
    shrink: ShrinkConfig = ShrinkConfig()
    budget: BudgetConfig = BudgetConfig()
    reference: str | None = Field(
        default=None,
        max_length=1000,
        description="budget: the layout that 1x refers to: a rule, or letters, e.g. 'a d a d'; "
        "null: interleaved; of method shrink the model itself.",
    )
    fill: Literal["d_ffn"] | None = Field(
        default=None,
        description="d_ffn: spend the rest of the budget on wider feed-forward blocks, all by one "
        "factor.",
    )
    layout: str | None = Field(default=None, description="layout: its letters, e.g. 'a d a d i d'.")

    @property
    def reference_name(self) -> str:
        """The layout of 1x, but for method shrink, which gives its model's."""
        return self.reference or "interleaved"

    @model_validator(mode="after")
    def _layout_is_given(self) -> "DeriveConfig":
        if self.method == "layout" and self.layout is None:
            raise ValueError("layout: method layout needs one, e.g. 'a d a d i d'")
        if self.fill is not None and not self.budget.amounts:
            raise ValueError(f"fill: {self.fill} fills a budget, and there is none; give one")
        if self.fill is not None and self.method == "shrink":
            raise ValueError("fill: shrink keeps the widths that the model has; leave it out")
        if self.searches is not None and len(set(self.searches)) < len(self.searches):
            raise ValueError(f"searches: must differ, found {self.searches}")
        return self
