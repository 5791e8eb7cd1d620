"""Blocks, language model, adaptive softmax, architecture files; needs nothing else of Parnas.

A saved model is one line away: `model = load_model("runs/x/model")`; `generate` goes on with ids.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.architecture import (
        Agreement,
        Architecture,
        ArchitectureCosts,
        Evidence,
        FlopsKey,
        Gap,
        Measured,
        TimedCost,
        TokenizerIdentity,
        load_architecture,
    )
    from model.blocks import BLOCKS, Candidate
    from model.config import AutoSoftmaxConfig, ModelConfig, ModelOptions, SoftmaxConfig
    from model.generation import Sampling, generate
    from model.language_model import LanguageModel, Mix
    from model.layout import (
        Layout,
        Network,
        block_options,
        default_candidates,
        layout_letters,
        network_from,
        network_of,
        parse_layout,
        reads_context,
    )
    from model.ops import Dropout
    from model.saving import adjustable_options, adjusted, build_model, load_model, save_model
    from model.state import StreamState

# Where the names are; those that need torch come last.
_MODULES = (
    *("blocks", "config", "layout", "architecture"),
    *("ops", "state", "language_model", "generation", "saving"),
)


def __getattr__(name: str) -> Any:
    """A name of `__all__`, from the module that has it: torch is imported for what needs it."""
    for module in _MODULES if name in __all__ else ():
        if hasattr(found := import_module(f"model.{module}"), name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BLOCKS",
    "Agreement",
    "Architecture",
    "ArchitectureCosts",
    "AutoSoftmaxConfig",
    "Candidate",
    "Dropout",
    "Evidence",
    "FlopsKey",
    "Gap",
    "LanguageModel",
    "Layout",
    "Measured",
    "Mix",
    "ModelConfig",
    "ModelOptions",
    "Network",
    "Sampling",
    "SoftmaxConfig",
    "StreamState",
    "TimedCost",
    "TokenizerIdentity",
    "adjustable_options",
    "adjusted",
    "block_options",
    "build_model",
    "default_candidates",
    "generate",
    "layout_letters",
    "load_architecture",
    "load_model",
    "network_from",
    "network_of",
    "parse_layout",
    "reads_context",
    "save_model",
]
