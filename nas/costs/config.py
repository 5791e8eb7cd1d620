"""What an experiment says about costs: how they are measured, and what layouts may cost."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from nas.costs.budget import MEASURED, UNITS, Amount, parse_amount
from utils.validation import Section

_Given = Annotated[str, Field(max_length=40)] | float | None


class CostsConfig(Section):
    """How latencies are measured."""

    batch: int = Field(
        default=1,
        ge=1,
        le=65536,
        description="Batch size for latency and decode; throughput and train_step use data.batch.",
    )
    repeats: int = Field(
        default=30,
        ge=3,
        le=100_000,
        description="Timed passes of each model, in turn; up to 16 times as many if all of them "
        "take less than 3 s.",
    )
    take_unsure: bool = Field(
        default=False,
        description="Accept times that vary too much, as on a busy machine, with a warning and in "
        "a table of their own; false: the command stops.",
    )
    table: Path | None = Field(
        default=None,
        description="File of the table of times, created if missing; null: in the cache. One of "
        "another machine, shape or version is refused.",
    )


class BudgetConfig(Section):
    """The most that a layout may cost; every limit that is given holds.

    A limit is a number with a unit, or `0.65x` for 0.65 times the cost of derive.reference.
    """

    latency: _Given = Field(
        default=None,
        description="Time to read one segment with full memory (prefill), e.g. 0.65x or 4.5ms.",
    )
    decode: _Given = Field(
        default=None,
        description="Time to read one more token with full memory, e.g. 0.65x or 0.8ms.",
    )
    train_step: _Given = Field(
        default=None, description="Time of a training step, e.g. 0.65x or 90ms."
    )
    throughput: _Given = Field(
        default=None,
        description="Least tokens per second when data.batch streams are read, e.g. 1.5x or 40k.",
    )
    parameters: _Given = Field(
        default=None, description="Number of trained parameters, e.g. 0.9x or 2M."
    )
    flops: _Given = Field(default=None, description="FLOPs per token (forward), e.g. 0.8x or 1.5M.")
    cache: _Given = Field(
        default=None, description="Bytes of state per stream (KV cache), e.g. 0.5x or 64KiB."
    )

    @field_validator("*")
    @classmethod
    def _amount_can_be_read(cls, given: Any, info: Any) -> Any:
        if given is not None:
            parse_amount(info.field_name, given)
        return given

    @property
    def amounts(self) -> dict[str, Amount]:
        """The limits that are given, by cost."""
        given = {name: getattr(self, name) for name in UNITS}
        return {
            name: parse_amount(name, value) for name, value in given.items() if value is not None
        }

    @property
    def measured(self) -> list[str]:
        """The costs with a limit that are times, not counts."""
        return [cost for cost in MEASURED if cost in self.amounts]


class SearchCostConfig(Section):
    """Limits of the cost that pi is expected to have during a search; off without a target."""

    target: _Given = Field(
        default=None,
        description="Limit that the expected cost of pi is pushed below, e.g. 0.65x or 4.5ms; "
        "null: costs are ignored.",
    )
    name: Literal["latency", "decode", "train_step", "parameters", "flops", "cache"] = Field(
        default="latency", description="The cost that is limited."
    )
    reference: str = Field(
        default="interleaved", max_length=1000, description="The layout that 1x refers to."
    )
    most_nothing: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Largest mean share of pi for candidates that add nothing (identity), which "
        "every cost favours; null: no limit.",
    )
    rate: float = Field(
        default=0.05,
        gt=0,
        description="Growth of the penalty, in nats per token and step of alpha, at an excess of "
        "100%.",
    )

    @model_validator(mode="after")
    def _target_can_be_read(self) -> "SearchCostConfig":
        if self.target is not None:
            try:
                parse_amount(self.name, self.target, "search.cost.reference")
            except ValueError as error:
                raise ValueError(f"target: {error}") from None
        return self

    @property
    def measured(self) -> list[str]:
        """The key of the limit where it is a time, not a count."""
        is_time = self.target is not None and self.name in MEASURED
        return ["search.cost.target"] if is_time else []

    @property
    def on(self) -> bool:
        """Whether it bounds anything."""
        return self.target is not None or self.most_nothing is not None
