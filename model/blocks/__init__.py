"""The registry of block kinds. A new kind is one file here, its options, and one line in BLOCKS.

Blocks are imported when one is made: torch takes seconds, and what reads files needs none of it.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from model.blocks.options import (
    AdaptiveSpanOptions,
    AllAttentionOptions,
    AttentionOptions,
    BlockOptions,
    DenseOptions,
    GatedDeltaOptions,
    IdentityOptions,
    LinearAttentionOptions,
    MixtureOfExpertsOptions,
    PersistentOptions,
    ProductKeyMemoryOptions,
    RoutingOptions,
    ShortConvOptions,
)


@dataclass(frozen=True)
class BlockKind:
    """A line of the registry; the letter stands for this kind's default candidate in a layout."""

    letter: str
    options: type[BlockOptions]
    # The class in the module here that is called like the kind.
    class_name: str
    # Whether what it adds to a position follows from earlier ones too.
    mixes_tokens: bool = True

    @property
    def block(self) -> Any:
        """Makes the block from (options, d_model, dropout)."""
        module = import_module(f"model.blocks.{self.options.model_fields['kind'].default}")
        return getattr(module, self.class_name)

    @property
    def adds_nothing(self) -> bool:
        """Whether its blocks add nothing: a layout is then the same network without them."""
        return bool(self.block.adds_nothing)


BLOCKS: dict[str, BlockKind] = {
    "attention": BlockKind("a", AttentionOptions, "AttentionBlock"),
    "dense": BlockKind("d", DenseOptions, "DenseBlock", mixes_tokens=False),
    "identity": BlockKind("i", IdentityOptions, "IdentityBlock", mixes_tokens=False),
    "short_conv": BlockKind("c", ShortConvOptions, "ShortConvBlock"),
    "gated_delta": BlockKind("g", GatedDeltaOptions, "GatedDeltaBlock"),
    "linear_attention": BlockKind("l", LinearAttentionOptions, "LinearAttentionBlock"),
    "adaptive_span": BlockKind("s", AdaptiveSpanOptions, "AdaptiveSpanBlock"),
    "all_attention": BlockKind("m", AllAttentionOptions, "AllAttentionBlock"),
    "persistent": BlockKind("p", PersistentOptions, "PersistentBlock", mixes_tokens=False),
    "routing": BlockKind("r", RoutingOptions, "RoutingBlock"),
    "mixture_of_experts": BlockKind(
        "e", MixtureOfExpertsOptions, "MixtureOfExpertsBlock", mixes_tokens=False
    ),
    "product_key_memory": BlockKind(
        "k", ProductKeyMemoryOptions, "ProductKeyMemoryBlock", mixes_tokens=False
    ),
}

if TYPE_CHECKING:
    Candidate = BlockOptions
else:
    Candidate = Annotated[
        Union[tuple(kind.options for kind in BLOCKS.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]

__all__ = ["BLOCKS", "BlockKind", "BlockOptions", "Candidate"]
