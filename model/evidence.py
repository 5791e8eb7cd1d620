"""What speaks for a layout: the part of an architecture JSON that builds nothing."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from utils.validation import Section

Share = Annotated[float, Field(ge=0, le=1)]
# How far the probabilities of a slot may be from 1 in all; files hold them rounded.
_ROUNDED = 1e-3


class Measured(Section):
    """Nats per token of validation text, by the SuperNet's weights."""

    nats_per_token: float = Field(ge=0)
    standard_error: float = Field(
        ge=0,
        description="From the spread over parts of the text (sampled: and over the draws); how far "
        "another search would move the figure it does not say.",
    )


class Gap(Section):
    """What it costs to make the choice discrete, without any training."""

    tokens: int = Field(ge=1, description="Scored tokens, the same for all three.")
    soft: Measured = Field(
        description="All candidates, weighed by pi, without noise; of several searches the mean "
        "over their SuperNets, each with its own pi."
    )
    sampled: Measured = Field(description="Mean over layouts drawn from pi.")
    one_hot: Measured = Field(description="The layout.")
    draws: int = Field(ge=2, description="How many layouts were drawn.")
    ratio: float = Field(ge=0, description="Perplexity of the layout over that of soft.")
    ratio_error: float = Field(ge=0, description="Its standard error, paired over the text.")


class Agreement(Section):
    """How far several searches chose alike."""

    searches: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        min_length=2, max_length=4096, description="Their seeds."
    )
    slots: tuple[Share, ...] = Field(description="Per slot the part of their pairs that agree.")
    kappa: float | None = Field(
        ge=-1, le=1, description="Fleiss' kappa; null: all chose one candidate everywhere."
    )
    interval: tuple[float, float] | None = Field(
        description="95%, of kappa over slots; null: too few slots, or too few that differ."
    )
    p_by_chance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Probability of so much agreement if each search's choices stood in slots at "
        "random.",
    )

    @model_validator(mode="after")
    def _fits_itself(self) -> "Agreement":
        problems = []
        if len(set(self.searches)) < len(self.searches):
            problems.append(f"searches: must differ, found {list(self.searches)!s:.60}")
        low, high = self.interval or (0.0, 0.0)
        if not -1 <= low <= high <= 1:
            problems.append(f"interval: must rise and lie in [-1, 1], found [{low}, {high}]")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Left out where it is not known, so that older files stay the same, byte for byte.
        content: dict[str, Any] = written(self)
        return {
            name: value
            for name, value in content.items()
            if name != "p_by_chance" or value is not None
        }


class Evidence(Section):
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
    caveats: tuple[Annotated[str, Field(max_length=4096)], ...] = Field(
        default=(),
        max_length=4096,
        description="What the search lacked, and what does not follow from pi, in words.",
    )

    @model_serializer(mode="wrap")
    def _as_written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {
            name: value
            for name, value in written(self).items()
            if value is not None and (name != "caveats" or value)
        }

    def problems(self, slots: int) -> list[str]:
        """What does not fit a layout of so many slots."""
        counts = {"pi": len(self.pi), "margins": len(self.margins)}
        problems = [
            f"evidence.{name}: {found} entries for {slots} slots"
            for name, found in counts.items()
            if found not in (0, slots)
        ]
        if bool(self.pi) != bool(self.margins):
            problems.append(
                f"evidence.margins: {len(self.margins)} entries beside {len(self.pi)} of pi"
            )
        problems += [*self._rows()][:1]
        if self.agreement is not None and len(self.agreement.slots) != slots:
            found = len(self.agreement.slots)
            problems.append(f"evidence.agreement.slots: {found} entries for {slots} slots")
        return problems

    def _rows(self) -> Iterator[str]:
        """What is wrong with rows of pi."""
        for slot, row in enumerate(self.pi):
            if row.keys() != self.pi[0].keys():
                yield f"evidence.pi[{slot}]: has other labels than evidence.pi[0]"
            elif abs(sum(row.values()) - 1) > _ROUNDED:
                yield f"evidence.pi[{slot}]: must sum to 1, found {sum(row.values()):.6g}"
