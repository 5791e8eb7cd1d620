"""What an experiment says about the run, the optimiser and retraining."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from model.architecture import check_model_folder, model_digest
from utils.validation import Section

MOST_EPOCHS = 1e6
DEFAULT_EPS = {"adamw": 1e-8, "adam": 1e-8, "lamb": 1e-6, "adagrad": 1e-10}
Beta = Annotated[float, Field(ge=0, lt=1)]
EPOCHS = "Passes over the training text, in place of steps; fractions are allowed."


# Options of an optimiser, and the kinds that heed them.
_HEEDED_BY = {
    "betas": ("adamw", "adam", "lamb"),
    "momentum": ("sgd",),
    "eps": ("adamw", "adam", "lamb", "adagrad"),
}


class RunConfig(Section):
    """Where and how a command runs; of these only `precision` is part of a run's identity."""

    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of weights, draws and dropout.")
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
        description="cpu, cuda, cuda:N, or auto: a GPU if there is one.",
    )
    threads: int | None = Field(
        default=None, ge=1, description="CPU threads (default: all, shared by the processes)."
    )
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        default="float32",
        description="bfloat16: matrix products in bfloat16 (autocast); tf32: matrix products of "
        "float32 with a shorter mantissa, on a GPU.",
    )
    micro_batches: int = Field(
        default=1,
        ge=1,
        description="Parts into which a step's streams are split (gradient accumulation): less "
        "memory, the same gradient but for the balance loss of mixture_of_experts; dropout draws "
        "other numbers.",
    )
    recompute: bool = Field(
        default=False,
        description="Activation checkpointing: the backward pass computes blocks again instead of "
        "keeping their activations. Less memory, about a third more time, the same numbers.",
    )
    attention: Literal["auto", "with_bias", "fused"] = Field(
        default="auto",
        description="Attention kernel in training steps; auto: as measured for the device. Results "
        "differ by rounding alone; where fused cannot be used, with_bias is. run.compile needs "
        "auto and uses with_bias.",
    )
    compile: bool = Field(
        default=False,
        description="torch.compile of the blocks in training steps: minutes at the start; results "
        "differ by rounding, and dropout draws other numbers.",
    )
    log_every: int = Field(default=50, ge=1, description="Steps between two lines of the log.")
    validate_every: int = Field(default=500, ge=1, description="Steps between two validations.")
    checkpoint_every: int = Field(default=500, ge=1, description="Steps between two checkpoints.")
    figures: bool = Field(
        default=True,
        description="Draw figures and report at the end of search.py, derive.py and retrain.py; "
        "compare.py always does.",
    )
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = Field(
        default=(),
        description="Live dashboards, each an optional extra; wandb is offline unless WANDB_MODE "
        "says otherwise.",
    )

    @model_validator(mode="after")
    def _attention_has_an_effect(self) -> "RunConfig":
        if self.compile and self.attention != "auto":
            raise ValueError(
                f"attention: {self.attention} has no effect with compile true; give auto, or set "
                "compile to false"
            )
        return self


class OptimiserConfig(Section):
    """An optimiser of the weights and its learning-rate schedule."""

    kind: Literal["adamw", "adam", "lamb", "adagrad", "sgd"] = Field(
        default="adamw", description="adamw and lamb decouple the weight decay."
    )
    lr: float = Field(default=1e-3, gt=0, description="Peak learning rate.")
    betas: tuple[Beta, Beta] = Field(
        default=(0.9, 0.999), description="Decay rates of adamw, adam and lamb."
    )
    eps: float | None = Field(
        default=None, gt=0, description="All but sgd (default 1e-8; lamb 1e-6; adagrad 1e-10)."
    )
    momentum: float = Field(default=0.0, ge=0, lt=1, description="sgd only.")
    weight_decay: float = Field(default=0.01, ge=0, description="On matrices only.")
    clip_norm: float | None = Field(
        default=0.25, gt=0, description="Largest norm of the whole gradient; null: no limit."
    )
    clip_each_norm: float | None = Field(
        default=None, gt=0, description="Largest norm of each tensor's gradient; null: no limit."
    )
    clip_value: float | None = Field(
        default=None, gt=0, description="Largest absolute value in the gradient; null: no limit."
    )
    warmup_steps: int | None = Field(
        default=None,
        ge=0,
        description="Steps of linear warm-up from 0 (default: a tenth of all steps, at most 100).",
    )
    schedule: Literal["cosine", "linear", "constant"] = Field(
        default="cosine", description="Learning-rate schedule after the warm-up."
    )
    min_lr_ratio: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Learning rate at the last step, as a fraction of lr.",
    )

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> "OptimiserConfig":
        idle = [option for option, kinds in _HEEDED_BY.items() if self.kind not in kinds]
        self.refuse_idle(idle, f"kind {self.kind}")
        if self.schedule == "constant":
            self.refuse_idle(["min_lr_ratio"], "schedule constant")
        return self


class FineTuneConfig(Section):
    """A last stage at a lower learning rate; it keeps weights, moments and memories."""

    steps: int | None = Field(default=None, ge=1, description="Optimiser steps; or give epochs.")
    epochs: float | None = Field(default=None, gt=0, le=MOST_EPOCHS, description=EPOCHS)
    lr: float = Field(gt=0, description="Learning rate at its first step, below optimiser.lr.")
    schedule: Literal["cosine", "linear", "constant"] = Field(
        default="constant", description="Learning-rate schedule; cosine and linear end at 0."
    )

    @model_validator(mode="after")
    def _one_length(self) -> "FineTuneConfig":
        check_length(self.steps, self.epochs)
        return self


class DistillationConfig(Section):
    """What a teacher's predictions count in the loss of a retraining."""

    weight: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="The loss is (1 - weight) nats + weight temperature^2 KL(teacher || student), "
        "over the whole vocabulary; 0: no teacher.",
    )
    temperature: float = Field(
        default=1.0, gt=0, description="Divides the log-probabilities of both in the KL."
    )


class RetrainConfig(Section):
    """How retrain.py trains the chosen layout, from scratch unless `start` is given."""

    steps: int | None = Field(default=None, ge=1, description="Optimiser steps; or give epochs.")
    epochs: float | None = Field(default=None, gt=0, le=MOST_EPOCHS, description=EPOCHS)
    layer_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Probability that a block is skipped in a step (LayerDrop). The outputs of the "
        "others are divided by 1 - layer_dropout, so evaluation needs no change.",
    )
    optimiser: OptimiserConfig = OptimiserConfig()
    fine_tune: FineTuneConfig | None = Field(
        default=None, description="A last stage at a lower learning rate."
    )
    teacher: str | None = Field(
        default=None,
        description="Model folder (RUN/model), relative to the current folder, from whose "
        "predictions the layout learns. It needs the same tokenizer.",
    )
    distillation: DistillationConfig | None = Field(
        default=None, description="What the teacher counts."
    )
    start: str | None = Field(
        default=None,
        description="Model folder with whose weights the training begins, with a fresh optimiser "
        "and schedule. It needs the same tokenizer and blocks; identity may be in place of any.",
    )

    @property
    def taught(self) -> DistillationConfig | None:
        """What the teacher counts; None where there is none, or it counts nothing."""
        taught = self.distillation or DistillationConfig()
        return taught if self.teacher is not None and taught.weight else None

    def models(self) -> dict[str, Path]:
        """The model folders that are used, by their key."""
        folders = {"teacher": self.teacher if self.taught else None, "start": self.start}
        return {key: Path(path).expanduser() for key, path in folders.items() if path is not None}

    def missing_inputs(self, base: Path) -> list[tuple[tuple[str, ...], str]]:
        """The keys below `retrain` whose folder is not there, and why; no weight is read."""
        problems = list[tuple[tuple[str, ...], str]]()
        for key, folder in self.models().items():
            try:
                check_model_folder(base / folder)
            except ValueError as error:
                problems.append(((key,), str(error)))
        return problems

    def identity(self) -> dict[str, Any]:
        """What a retraining is claimed by; a model counts by its weights, not by where it is."""
        own = self.model_dump(mode="json", exclude={"teacher", "distillation", "start"})
        own |= {key: model_digest(folder) for key, folder in self.models().items()}
        return own | ({"distillation": self.taught.model_dump()} if self.taught else {})

    @model_validator(mode="after")
    def _distillation_has_an_effect(self) -> "RetrainConfig":
        if self.distillation is not None and self.teacher is None:
            raise ValueError(
                "distillation: has no effect without a teacher; give retrain.teacher, or leave it "
                "out"
            )
        return self

    @model_validator(mode="after")
    def _stages_fit(self) -> "RetrainConfig":
        check_length(self.steps, self.epochs)
        if self.steps is not None:
            check_warmup(self.optimiser, self.steps)
        if self.fine_tune is not None and self.fine_tune.lr >= self.optimiser.lr:
            raise ValueError(
                f"fine_tune.lr: {self.fine_tune.lr} must be below optimiser.lr {self.optimiser.lr}"
            )
        return self


def check_length(steps: int | None, epochs: float | None) -> None:
    """Raise ValueError unless exactly one of the two is given."""
    if (steps is None) == (epochs is None):
        both = ", not both; null takes one back" if steps is not None else "; there is neither"
        raise ValueError(f"steps: give either steps or epochs{both}")


def steps_in(steps: int | None, epochs: float | None, steps_per_epoch: int) -> int:
    """How many steps a stage takes, at least 1."""
    if steps is not None:
        return steps
    assert epochs is not None
    return max(1, round(epochs * steps_per_epoch))


def check_warmup(optimiser: OptimiserConfig, steps: int) -> None:
    """Raise ValueError where the warm-up would not end before the last step."""
    if optimiser.warmup_steps is not None and optimiser.warmup_steps >= steps:
        raise ValueError(
            f"optimiser.warmup_steps: {optimiser.warmup_steps} must be below steps {steps}"
        )
