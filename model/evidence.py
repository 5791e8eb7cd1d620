"""What speaks for a layout: the part of an architecture JSON that builds nothing."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measured(_Part):
    """Nats per token of validation text, by the SuperNet's weights."""

    nats_per_token: float = Field(ge=0)
    standard_error: float = Field(ge=0, description="From the spread over parts of the text.")


class Gap(_Part):
    """What it costs to make the choice discrete, without any training."""

    tokens: int = Field(ge=1, description="Scored tokens, the same for all three.")
    soft: Measured = Field(description="All candidates, weighed by pi, without noise.")
    sampled: Measured = Field(description="Mean over layouts drawn from pi.")
    one_hot: Measured = Field(description="The layout.")
    draws: int = Field(ge=2, description="How many layouts were drawn.")
    ratio: float = Field(ge=0, description="Perplexity of the layout over that of soft.")
    ratio_error: float = Field(ge=0, description="Its standard error, paired over the text.")


class Agreement(_Part):
    """How far several searches chose alike; chance alone gives a kappa of 0."""

    searches: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        min_length=2, max_length=4096, description="Their seeds."
    )
    slots: tuple[Share, ...] = Field(description="Per slot the part of their pairs that agree.")
    kappa: float | None = Field(
        ge=-1, le=1, description="Fleiss' kappa; null: all chose one candidate everywhere."
    )
    interval: tuple[float, float] | None = Field(
        description="95%, by a bootstrap over the slots; null: too few slots."
    )


class Evidence(_Part):
    """Why these candidates were chosen."""

    method: str = Field(max_length=200, description="Name of the derivation.")
    pi: tuple[dict[str, Share], ...] = Field(
        default=(), description="Final probability of each label, per slot; none: not searched."
    )
    margins: tuple[Share, ...] = Field(
        default=(), description="Per slot, pi of the likeliest less that of the second."
    )
    # Left out of the file where there is none, so that older files stay the same, byte for byte.
    inherited: Measured | None = Field(
        default=None, description="The layout by the SuperNet's weights, where it was scored."
    )
    gap: Gap | None = Field(default=None, description="What discretising costs.")
    agreement: Agreement | None = Field(default=None, description="Of several searches.")

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in written(self).items() if value is not None}

    def problems(self, slots: int) -> list[str]:
        """What does not fit a layout of so many slots."""
        counts = {"pi": len(self.pi), "margins": len(self.margins)}
        problems = [
            f"evidence.{name}: {found} entries for {slots} slots"
            for name, found in counts.items()
            if found not in (0, slots)
        ]
        if self.agreement is not None and len(self.agreement.slots) != slots:
            found = len(self.agreement.slots)
            problems.append(f"evidence.agreement.slots: {found} entries for {slots} slots")
        return problems
