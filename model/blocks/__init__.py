"""The registry of block kinds. A new kind is one file here and one line in BLOCKS."""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from model.blocks.adaptive_span import AdaptiveSpanBlock, AdaptiveSpanOptions
from model.blocks.all_attention import AllAttentionBlock, AllAttentionOptions
from model.blocks.attention import AttentionBlock, AttentionOptions
from model.blocks.base import AddUp, Block, BlockKind, BlockOptions
from model.blocks.dense import DenseBlock, DenseOptions
from model.blocks.gated_delta import GatedDeltaBlock, GatedDeltaOptions
from model.blocks.identity import IdentityBlock, IdentityOptions
from model.blocks.linear_attention import LinearAttentionBlock, LinearAttentionOptions
from model.blocks.mixture_of_experts import MixtureOfExpertsBlock, MixtureOfExpertsOptions
from model.blocks.persistent import PersistentBlock, PersistentOptions
from model.blocks.product_key_memory import ProductKeyMemoryBlock, ProductKeyMemoryOptions
from model.blocks.routing import RoutingBlock, RoutingOptions
from model.blocks.short_conv import ShortConvBlock, ShortConvOptions

BLOCKS: dict[str, BlockKind] = {
    "attention": BlockKind("a", AttentionOptions, AttentionBlock),
    "dense": BlockKind("d", DenseOptions, DenseBlock, mixes_tokens=False),
    "identity": BlockKind("i", IdentityOptions, IdentityBlock, mixes_tokens=False),
    "short_conv": BlockKind("c", ShortConvOptions, ShortConvBlock),
    "gated_delta": BlockKind("g", GatedDeltaOptions, GatedDeltaBlock),
    "linear_attention": BlockKind("l", LinearAttentionOptions, LinearAttentionBlock),
    "adaptive_span": BlockKind("s", AdaptiveSpanOptions, AdaptiveSpanBlock),
    "all_attention": BlockKind("m", AllAttentionOptions, AllAttentionBlock),
    "persistent": BlockKind("p", PersistentOptions, PersistentBlock, mixes_tokens=False),
    "routing": BlockKind("r", RoutingOptions, RoutingBlock),
    "mixture_of_experts": BlockKind(
        "e", MixtureOfExpertsOptions, MixtureOfExpertsBlock, mixes_tokens=False
    ),
    "product_key_memory": BlockKind(
        "k", ProductKeyMemoryOptions, ProductKeyMemoryBlock, mixes_tokens=False
    ),
}

if TYPE_CHECKING:
    Candidate = BlockOptions
else:
    Candidate = Annotated[
        Union[tuple(kind.options for kind in BLOCKS.values())],  # noqa: UP007
        Field(discriminator="kind"),
    ]

__all__ = ["BLOCKS", "AddUp", "Block", "BlockKind", "BlockOptions", "Candidate"]
