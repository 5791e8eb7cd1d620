"""Blocks, language model, adaptive softmax, architecture files; needs nothing else of Parnas.

A saved model is one line away: `model = load_model("runs/x/model")`; `generate` goes on with ids.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.architecture import (
        Agreement as Agreement,
        Architecture as Architecture,
        ArchitectureCosts as ArchitectureCosts,
        Evidence as Evidence,
        FlopsKey as FlopsKey,
        Gap as Gap,
        Measured as Measured,
        TimedCost as TimedCost,
        TokenizerIdentity as TokenizerIdentity,
        load_architecture as load_architecture,
    )
    from model.blocks import BLOCKS as BLOCKS, Candidate as Candidate
    from model.config import (
        ModelConfig as ModelConfig,
        ModelOptions as ModelOptions,
        SoftmaxConfig as SoftmaxConfig,
    )
    from model.generation import Sampling as Sampling, generate as generate
    from model.language_model import LanguageModel as LanguageModel, Mix as Mix
    from model.layout import (
        Layout as Layout,
        Network as Network,
        block_options as block_options,
        default_candidates as default_candidates,
        layout_letters as layout_letters,
        network_from as network_from,
        network_of as network_of,
        parse_layout as parse_layout,
        reads_context as reads_context,
    )
    from model.ops import Dropout as Dropout
    from model.saving import (
        adjustable_options as adjustable_options,
        adjusted as adjusted,
        build_model as build_model,
        load_model as load_model,
        save_model as save_model,
    )
    from model.state import StreamState as StreamState

# Where the names are; those that need torch come last.
_MODULES = (
    *("blocks", "config", "layout", "architecture"),
    *("ops", "state", "language_model", "generation", "saving"),
)


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it: torch is imported for what needs it."""
    for module in () if name.startswith("_") else _MODULES:
        if hasattr(found := import_module(f"model.{module}"), name):
            return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
