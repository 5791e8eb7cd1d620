"""The folder that transformers loads: weights, config, code, tokenizer and a model card."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save

from export.huggingface.card import card_of
from export.huggingface.config import config_of
from export.huggingface.flatten import configuration_source, modelling_source
from export.huggingface.tokenizer import write_tokenizer
from export.source import Source

_DTYPES = ("float32", "bfloat16", "float16")


def write_folder(source: Source, folder: Path) -> list[str]:
    """Write all files into an empty folder; returns lines that say what they are.

    ValueError: the tokenizer or the weights' dtype cannot be carried.
    """
    architecture, tokenizer = source.architecture, source.tokenizer
    tensors = {f"model.{name}": tensor for name, tensor in source.model.state_dict().items()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ValueError(f"weights: {dtype} cannot be carried; transformers loads others")
    write_tokenizer(tokenizer, source.folder, folder)
    doc = tokenizer.doc_id
    _write_json(folder / "config.json", config_of(architecture, doc, dtype))
    ids = {"bos_token_id": doc, "eos_token_id": doc, "pad_token_id": doc}
    _write_json(folder / "generation_config.json", ids)
    modelling = modelling_source(slot.kind for slot in architecture.slots)
    texts = {
        "modeling_parnas.py": modelling,
        "configuration_parnas.py": configuration_source(modelling),
        "README.md": card_of(source),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    # transformers 4 asks for the format.
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    return [
        f"{architecture.name}, layout {architecture.letters()}, {dtype}; load it with "
        "AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)"
    ]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
