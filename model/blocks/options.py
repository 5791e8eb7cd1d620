"""The options of every kind of block; torch is not imported, so that a file is checked at once."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_serializer

from utils.validation import Section

# The default of an option that may be left out; `BlockOptions.completed` puts a value there.
LEFT_OUT: Any = None
# Two characters at least: single letters are those of kinds.
Label = Annotated[str, Field(max_length=40, pattern=r"^[a-z][a-z0-9_]+$")]


class BlockOptions(Section):
    """One candidate: a kind, a label that is unique among the candidates, the kind's options.

    An option that is left out takes the model section's value, or where that has none of this name
    its own default (`completed`). Only what was given is ever written out, so a candidate that is
    saved and read again means the same.
    """

    # Options that no weight depends on: a trained model runs with other values too.
    adjustable: ClassVar[frozenset[str]] = frozenset()
    # Options that say how a block is computed and not what: no other network.
    same_result: ClassVar[frozenset[str]] = frozenset()

    # The option that says how many tokens a position sees, itself included; None: no option does.
    reach: ClassVar[str | None] = None

    kind: str
    label: Label

    @model_serializer
    def _given_options(self) -> dict[str, Any]:
        missing = self.missing
        return {
            name: getattr(self, name) for name in type(self).model_fields if name not in missing
        }

    @property
    def missing(self) -> list[str]:
        """The options that were left out."""
        given = {"kind", "label"} | self.model_fields_set
        return [name for name in type(self).model_fields if name not in given]

    def completed(self, d_model: int, defaults: Mapping[str, Any]) -> Self:
        """The same candidate, with `defaults` for what is missing; ValueError: sizes do not fit."""
        options = {name: getattr(self, name) for name in type(self).model_fields}
        values = options | {name: defaults.get(name, options[name]) for name in self.missing}
        try:
            return type(self).model_validate(self._derived(values, d_model))
        except ValidationError as error:
            lines = [f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()]
            raise ValueError("\n".join(lines)) from None

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        """The values with those filled in that follow from others."""
        return values


class HeadOptions(BlockOptions):
    """Options of a candidate that works in heads."""

    n_heads: int = Field(default=LEFT_OUT, ge=1, le=4096, description="Heads.")
    d_head: int = Field(
        default=LEFT_OUT, ge=1, le=2**16, description="Width of a head (default d_model / n_heads)."
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        if values["d_head"] is not None:
            return values
        n_heads = values["n_heads"]
        if d_model % n_heads:
            raise ValueError(
                f"n_heads: {n_heads} does not divide d_model {d_model}; "
                "give d_head or another n_heads"
            )
        return {**values, "d_head": d_model // n_heads}


class IdentityOptions(BlockOptions):
    """The identity has no options."""

    kind: Literal["identity"] = "identity"
    label: Label = "identity"


Positions = Literal["relative", "rope", "none"]


class PositionOptions(HeadOptions):
    """Options of a candidate whose queries meet keys in heads."""

    positions: Positions = Field(default=LEFT_OUT, description="How keys are placed.")
    qk_norm: bool = Field(default=LEFT_OUT, description="RMSNorm of queries and keys.")

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        values = HeadOptions._derived(values, d_model)
        if values["positions"] == "rope" and values["d_head"] % 2:
            raise ValueError(
                f"positions: rope needs an even d_head, not {values['d_head']}; change one of them"
            )
        return values


class ContextOptions(PositionOptions):
    """Options of a candidate that reads keys of a memory and the segment."""

    adjustable: ClassVar[frozenset[str]] = frozenset({"memory", "window", "clamp"})
    reach: ClassVar[str | None] = "window"

    n_kv_heads: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Heads of keys and values, a divisor of n_heads (GQA); null: n_heads.",
    )
    window: int | None = Field(
        default=LEFT_OUT,
        ge=1,
        le=2**30,
        description="Keys that a query sees, its own included; null: all.",
    )
    memory: int = Field(
        default=LEFT_OUT, ge=0, le=2**20, description="Earlier tokens; a window needs window - 1."
    )
    clamp: int | None = Field(
        default=LEFT_OUT, ge=0, le=2**30, description="Largest encoded distance; null: no limit."
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        n_heads, groups = values["n_heads"], values["n_kv_heads"]
        if groups is not None and n_heads % groups:
            raise ValueError(
                f"n_kv_heads: {groups} does not divide n_heads {n_heads}; give a divisor"
            )
        if values["positions"] == "none" and values["clamp"] is not None:
            clamp = values["clamp"]
            raise ValueError(f"clamp: {clamp} has no effect with positions none; give null")
        return PositionOptions._derived(values, d_model)


class AttentionOptions(ContextOptions):
    """Options of an attention candidate."""

    kind: Literal["attention"] = "attention"
    label: Label = "attention"


Activation = Literal["relu", "relu2", "gelu", "swiglu", "geglu"]


CHUNK = (
    "MLP chunking: the parts in which a feed-forward block computes its tokens, one after another. "
    "Lowers the peak memory of evaluation, and of training with run.recompute. Dropout draws other "
    "numbers."
)


class InnerLayerOptions(BlockOptions):
    """Options of a candidate that is made of dense blocks."""

    d_ffn: int = Field(default=LEFT_OUT, ge=1, le=2**20, description="Inner width.")
    activation: Activation = Field(default=LEFT_OUT, description="Of the inner layer.")


class DenseOptions(InnerLayerOptions):
    """Options of a dense candidate."""

    same_result: ClassVar[frozenset[str]] = frozenset({"chunk"})

    kind: Literal["dense"] = "dense"
    label: Label = "dense"
    chunk: int = Field(default=1, ge=1, le=2**20, description=CHUNK)


class ShortConvOptions(BlockOptions):
    """Options of a short convolution candidate."""

    reach: ClassVar[str | None] = "kernel"

    kind: Literal["short_conv"] = "short_conv"
    label: Label = "short_conv"
    kernel: int = Field(
        default=3, ge=1, le=256, description="Tokens that a position sees, itself included."
    )


class GatedDeltaOptions(HeadOptions):
    """Options of a gated delta candidate."""

    kind: Literal["gated_delta"] = "gated_delta"
    label: Label = "gated_delta"
    kernel: int = Field(
        default=4, ge=1, le=256, description="Tokens that the convolution of q, k and v sees."
    )


class LinearAttentionOptions(HeadOptions):
    """Options of a linear attention candidate."""

    kind: Literal["linear_attention"] = "linear_attention"
    label: Label = "linear_attention"


class AdaptiveSpanOptions(PositionOptions):
    """Options of an adaptive span candidate."""

    reach: ClassVar[str | None] = "span"

    kind: Literal["adaptive_span"] = "adaptive_span"
    label: Label = "adaptive_span"
    span: int = Field(default=256, ge=1, le=2**20, description="Most keys that a head can see.")
    ramp: int = Field(
        default=32, ge=1, le=2**20, description="Keys over which a head's attention fades to 0."
    )
    first_span: float = Field(
        default=1.0, ge=0, le=1, description="Initial span of the heads, as a fraction of `span`."
    )
    span_loss: float = Field(
        default=2e-6, ge=0, le=1, description="Penalty in nats per key of the mean span."
    )
    positions: Literal["relative", "learned", "rope", "none"] = Field(  # type: ignore[assignment]
        default=LEFT_OUT,
        description="As in the section model; or learned, as in the paper: a vector per distance, "
        "shared by all heads of a block.",
    )
    sees_itself: bool = Field(
        default=True,
        description="A query sees its own key. false, as in the paper's code: only the keys before "
        "it; at the start of a stream, rows of zeros take part in the softmax.",
    )


def with_vectors(values: Mapping[str, Any], d_model: int) -> dict[str, Any]:
    """Options with n_vectors, where it is null 4 d_model."""
    return {**values, "n_vectors": values["n_vectors"] or 4 * d_model}


class AllAttentionOptions(ContextOptions):
    """Options of an all-attention candidate."""

    kind: Literal["all_attention"] = "all_attention"
    label: Label = "all_attention"
    n_vectors: int | None = Field(
        default=None,
        ge=1,
        le=2**20,
        description="Persistent key-value pairs per head; null: 4 d_model, as many parameters as "
        "in a feed-forward block with d_ffn 4 d_model.",
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        return ContextOptions._derived(with_vectors(values, d_model), d_model)


class PersistentOptions(HeadOptions):
    """Options of a persistent candidate."""

    kind: Literal["persistent"] = "persistent"
    label: Label = "persistent"
    n_vectors: int | None = Field(
        default=None, ge=1, le=2**20, description="Key-value pairs per head; null: 4 d_model."
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        return HeadOptions._derived(with_vectors(values, d_model), d_model)


class RoutingOptions(PositionOptions):
    """Options of a routing candidate."""

    adjustable: ClassVar[frozenset[str]] = frozenset({"memory"})
    reach: ClassVar[str | None] = "keys"

    kind: Literal["routing"] = "routing"
    label: Label = "routing"
    n_local_heads: int | None = Field(
        default=None,
        ge=0,
        le=4096,
        description="Heads with a window instead of clusters; null: half of them.",
    )
    clusters: int = Field(
        default=8,
        ge=1,
        le=4096,
        description="Clusters per routing head, at most memory + data.segment.",
    )
    keys: int = Field(
        default=32,
        ge=1,
        le=2**20,
        description="Keys that a query reads: the latest of its cluster, in a local head the "
        "latest of all.",
    )
    memory: int = Field(default=LEFT_OUT, ge=0, le=2**20, description="Earlier tokens kept.")
    decay: float = Field(
        default=0.999, ge=0, le=1, description="Fraction of a cluster's centre that a step keeps."
    )
    commitment_loss: float = Field(
        default=1e-4,
        ge=0,
        le=10,
        description="Weight in nats of the mean squared distance of keys to their centres (over "
        "tokens and channels).",
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        local, heads = values["n_local_heads"], values["n_heads"]
        local = heads // 2 if local is None else local
        if local >= heads:
            raise ValueError(
                f"n_local_heads: {local} of n_heads {heads} leave no head to route; give less"
            )
        return PositionOptions._derived({**values, "n_local_heads": local}, d_model)


class MixtureOfExpertsOptions(InnerLayerOptions):
    """Options of a mixture of experts candidate."""

    kind: Literal["mixture_of_experts"] = "mixture_of_experts"
    label: Label = "mixture_of_experts"
    n_experts: int = Field(default=4, ge=2, le=1024, description="Number of feed-forward experts.")
    k: int = Field(default=2, ge=1, le=1024, description="Experts per token.")
    balance_loss: float = Field(
        default=1e-2,
        ge=0,
        le=10,
        description="Nats that an even use of the experts costs; an uneven one costs more, except "
        "where k is n_experts.",
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        if values["k"] > values["n_experts"]:
            raise ValueError(
                f"k: {values['k']} is more than n_experts {values['n_experts']}; give less"
            )
        return values


class ProductKeyMemoryOptions(BlockOptions):
    """Options of a product key memory candidate."""

    kind: Literal["product_key_memory"] = "product_key_memory"
    label: Label = "product_key_memory"
    heads: int = Field(default=4, ge=1, le=4096, description="Queries per token.")
    n_keys: int = Field(
        default=32, ge=2, le=4096, description="Keys of each half; the table has n_keys^2 values."
    )
    # The weight of one value alone would be 1, and the text would teach queries and keys nothing.
    k: int = Field(default=8, ge=2, le=4096, description="Values that a query reads.")
    d_key: int | None = Field(
        default=None, ge=1, le=2**16, description="Width of a half key; null: d_model / 4."
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        if values["k"] > values["n_keys"]:
            raise ValueError(f"k: {values['k']} is more than n_keys {values['n_keys']}; give less")
        return {**values, "d_key": values["d_key"] or max(1, d_model // 4)}
