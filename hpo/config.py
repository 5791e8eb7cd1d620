"""The section `sweep` of an experiment."""

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from utils.validation import Section


def _check_differ(name: str, values: Sequence[Any]) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{name}: must differ, found {value} twice")


def as_param(value: Any) -> Any:
    """A choice as Optuna stores it: lists and mappings as JSON text."""
    return json.dumps(value, sort_keys=True) if isinstance(value, list | dict) else value


class ParameterConfig(Section):
    """The values that one key of the experiment may take: a range or choices."""

    choices: tuple[Any, ...] | None = Field(
        default=None, min_length=1, description="The values, all different; lists are allowed."
    )
    low: int | float | None = Field(default=None, description="Smallest value of a range.")
    high: int | float | None = Field(default=None, description="Largest value of the range.")
    step: Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Step of the range (default: any number, or every integer)."
    )
    log: bool = Field(default=False, description="Sample on a logarithmic scale (a range above 0).")
    when: dict[str, Any] = Field(
        default={},
        description="Vary the key only if these keys, earlier in the space, have these values "
        "(each a value or a list); otherwise it has its default.",
    )

    @model_validator(mode="after")
    def _a_range_or_choices(self) -> "ParameterConfig":
        if self.choices is not None:
            self.refuse_idle(["low", "high", "step", "log"], "choices")
            _check_differ("choices", [as_param(choice) for choice in self.choices])
        else:
            self._check_range()
        return self

    def _check_range(self) -> None:
        low, high, step = self.low, self.high, self.step
        if low is None or high is None:
            missing = "low" if low is None else "high"
            raise ValueError(f"{missing}: missing; give low and high, or choices")
        if low >= high:
            raise ValueError(f"low: must be below high {high}, found {low}")
        if self.log and low <= 0:
            raise ValueError(f"low: must be above 0 with log, found {low}")
        if step is None:
            return
        if self.log:
            raise ValueError(f"step: has no effect with log, found {step}; leave one out")
        count = round((high - low) / step)
        if count < 1 or not math.isclose(low + count * step, high, abs_tol=1e-9 * step):
            raise ValueError(f"step: steps of {step} from {low} do not meet high {high}")


class SamplerConfig(Section):
    """Sampler that suggests the next trial."""

    kind: Literal["tpe", "random", "grid", "nsga2"] = Field(
        default="tpe",
        description="tpe: tree-structured Parzen estimator; grid: every combination; nsga2: "
        "genetic, for several objectives.",
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="Seed of the suggestions.")
    startup: int | None = Field(
        default=None, ge=1, description="Random trials at the start (tpe; default 10)."
    )
    population: int | None = Field(
        default=None, ge=2, description="Trials per generation (nsga2; default 10)."
    )

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> "SamplerConfig":
        heeded = {"startup": "tpe", "population": "nsga2"}
        idle = [option for option, kind in heeded.items() if kind != self.kind]
        self.refuse_idle(idle, f"kind {self.kind}")
        return self


class PrunerConfig(Section):
    """Pruner that stops a bad trial early, by the validations of its retraining."""

    kind: Literal["none", "median", "successive_halving"] = Field(
        default="none",
        description="median stops a training worse than the median of earlier trials; "
        "successive_halving continues one in three.",
    )
    min_steps: int | None = Field(
        default=None,
        ge=1,
        description="Training steps that every trial gets (default: until the first validation).",
    )

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> "PrunerConfig":
        if self.kind not in ("median", "successive_halving"):
            self.refuse_idle(["min_steps"], f"kind {self.kind}")
        return self


class SweepConfig(Section):
    """Many trials of one experiment, each with other settings."""

    space: dict[str, ParameterConfig] = Field(
        min_length=1, description="Keys of the experiment that vary, e.g. search.tau.end."
    )
    trials: int | None = Field(
        default=None, ge=1, description="Number of trials (not with sampler grid, which runs all)."
    )
    objectives: tuple[Literal["retrained", "flops", "parameters"], ...] = Field(
        default=("retrained",),
        description="What is minimised. retrained: validation bits per byte of the retrained "
        "model; flops, parameters: of the derived model. Several give a Pareto front.",
    )
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        default=(0,),
        min_length=1,
        description="run.seed of each trial's runs, added to derive.seed too; their mean counts.",
    )
    sampler: SamplerConfig = SamplerConfig()
    pruner: PrunerConfig = PrunerConfig()
    set: dict[str, Any] = Field(
        default={}, description="Settings of the trials only, not of the best experiment."
    )
    retries: int = Field(
        default=2, ge=0, description="How often a trial is restarted after its worker died."
    )
    storage: str | None = Field(
        default=None,
        description="Optuna's database: a URL, e.g. postgresql://user@host/database (default: "
        "SQLite in RUN/sweep).",
    )
    grace_s: int = Field(
        default=90,
        ge=10,
        description="Seconds without a heartbeat after which a worker counts as dead.",
    )

    @field_validator("storage")
    @classmethod
    def _storage_is_an_address(cls, where: str | None) -> str | None:
        if where is not None and "://" not in where:
            # Not shown: it may hold a password all the same.
            raise ValueError(
                "expected a URL such as postgresql://user@host/database; leave it out for a file "
                "in the run folder"
            )
        return where

    @model_validator(mode="after")
    def _options_fit(self) -> "SweepConfig":
        _check_differ("objectives", self.objectives)
        _check_differ("seeds", self.seeds)
        if "retrained" not in self.objectives:
            found = ", ".join(self.objectives) or "none"
            raise ValueError(f"objectives: {found}: no training is judged; add retrained")
        kind = self.sampler.kind
        if self.trials is None and kind != "grid":
            raise ValueError(f"trials: missing; sampler {kind} never ends")
        if self.trials is not None and kind == "grid":
            raise ValueError(
                f"trials: sampler grid runs all its points, found {self.trials}; leave it out or "
                "give null"
            )
        if self.pruner.kind != "none" and len(self.objectives) * len(self.seeds) > 1:
            raise ValueError(
                f"pruner.kind: {self.pruner.kind} follows one run with one objective, found "
                f"{len(self.seeds)} seeds and {len(self.objectives)} objectives; use none"
            )
        return self
