"""What an experiment says about costs: how they are measured, and what layouts may cost."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

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
        default=30, ge=3, le=100_000, description="Timed passes of each model, in turn."
    )
    patience_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="How long a measurement waits for a quiet machine before it is given up.",
    )
    table: Path | None = Field(
        default=None,
        description="A table that tools.latency wrote, of this machine, these shapes and versions. "
        "null: the one in the cache, which is made where it is not there.",
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
