"""What a kind of tokenizer says about itself in the registry."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.tokenizers.tokenizer import Scheme

if TYPE_CHECKING:
    from data.config import TokenizerConfig


@dataclass(frozen=True)
class TokenizerKind:
    """How a kind of tokenizer is made and loaded, and which settings are its own.

    Attributes:
        make: from the settings, the texts of the training split, and the folder that relative
            paths start from; raises ValueError where the settings do not serve.
        load: from a saved model and `lower_case`; raises ValueError where the model does not serve.
        key: what decides the pieces beside the corpus, for the name of the cached folder.
        ids: how many ids there will be, from the settings alone; None where only the model says.
        saves_model: whether there is a SentencePiece model to save and load.
        takes: the keys of `data.tokenizer` that it heeds.
        needs: the key that must be given.
        sample_bytes: it is trained on so much text at most; 0 where it is not trained.
        exact: whether a text that comes back changed is this program's mistake.
    """

    make: "Callable[[TokenizerConfig, Iterable[str], Path], Scheme]"
    load: Callable[[bytes, bool], Scheme]
    key: "Callable[[TokenizerConfig, Path], dict[str, Any]]"
    ids: "Callable[[TokenizerConfig], int | None]"
    saves_model: bool = True
    takes: frozenset[str] = frozenset()
    needs: str | None = None
    sample_bytes: int = 0
    exact: bool = True
