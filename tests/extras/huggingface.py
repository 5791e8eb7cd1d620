"""Tiny models of any layout, exported to a folder, and that folder as transformers loads it."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read once, when transformers is imported: its copies of the code go there, and it asks nobody.
os.environ.setdefault("HF_HOME", tempfile.mkdtemp())
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor

from data.tokenizers.tokenizer import Bytes
from export.huggingface.folder import write_folder
from model import Candidate, LanguageModel
from model.generation import GREEDY
from tests.model.test_generation import token_by_token
from tests.model.tiny import save_source

IDS = Bytes.source_doc + 1
DOC = Bytes.source_doc


@dataclass
class Exported:
    """A model, and what transformers makes of the folder that was written."""

    own: LanguageModel
    folder: Path
    theirs: Any


def load(folder: Path, **options: Any) -> Any:
    """As a user loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **options)


def export(folder: Path, *slots: Candidate, **given: Any) -> Exported:
    """Save, export and load a model."""
    source = save_source(folder / "model", *slots, **given)
    out = folder / "exported"
    out.mkdir()
    write_folder(source, out)
    return Exported(source.model, out, load(out))


def tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    """Random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(IDS, (batch, length), generator=generator)


def greedy(own: LanguageModel, prompt: Tensor, new: int) -> list[int]:
    """The likeliest ids after a prompt (T,), which is read token by token, and nothing is kept."""
    return token_by_token(own, prompt.tolist(), new, GREEDY, 0)
