"""What an experiment says about costs: how they are measured, and what layouts may cost."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from nas.costs.budget import UNITS, Amount, parse_amount
from utils.validation import Section

_Given = Annotated[str, Field(max_length=40)] | float | None


class CostsConfig(Section):
    """How latencies are measured."""

    batch: int = Field(
        default=1,
        ge=1,
        le=65536,
        description="Streams of latency and decode; throughput and train_step take data.batch.",
    )
    repeats: int = Field(
        default=30,
        ge=3,
        le=100_000,
        description="Timed passes of each model, in turn; up to 16 times as many where all of them "
        "take less than 3 s.",
    )
    take_unsure: bool = Field(
        default=False,
        description="Times that vary too much, as on a busy machine, are taken with a warning and "
        "marked, in a table of their own; false: the command ends.",
    )
    table: Path | None = Field(
        default=None,
        description="Where the table of times lies, which is made where it is not there; null: in "
        "the cache. Of another machine, shape or version it is refused.",
    )


class BudgetConfig(Section):
    """What a layout may cost at most; every limit that is given holds.

    An amount is a number with a unit, or `0.65x`: so many times what derive.reference costs.
    """

    latency: _Given = Field(
        default=None, description="Of one segment read with full memory (prefill): 0.65x, 4.5ms."
    )
    decode: _Given = Field(
        default=None, description="Of one token behind a full memory: 0.65x, 0.8ms."
    )
    train_step: _Given = Field(default=None, description="Of a step of retrain.py: 0.65x, 90ms.")
    throughput: _Given = Field(
        default=None,
        description="Tokens per second of reading data.batch streams, at least: 1.5x, 40k.",
    )
    parameters: _Given = Field(default=None, description="Trained numbers: 0.9x, 2M.")
    flops: _Given = Field(default=None, description="FLOPs per token, forward: 0.8x, 1.5M.")
    cache: _Given = Field(
        default=None, description="Bytes of state that one stream keeps: 0.5x, 64KiB."
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


class SearchCostConfig(Section):
    """What pi is expected to cost at most while it is searched; off without a target."""

    target: _Given = Field(
        default=None,
        description="The expected cost of pi is pushed below it while it is above: 0.65x, 4.5ms; "
        "null: costs play no part.",
    )
    name: Literal["latency", "decode", "train_step", "parameters", "flops", "cache"] = Field(
        default="latency", description="Which cost."
    )
    reference: str = Field(
        default="interleaved", max_length=1000, description="The layout whose cost 1x is."
    )
    most_nothing: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Largest share of pi, in the mean of all slots, for candidates that add "
        "nothing (identity), which every cost favours; null: any.",
    )
    rate: float = Field(
        default=0.05,
        gt=0,
        description="Nats per token that the weight of a bound rises at each of alpha's steps for "
        "an excess of 100%.",
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
    def on(self) -> bool:
        """Whether it bounds anything."""
        return self.target is not None or self.most_nothing is not None
