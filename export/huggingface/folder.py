"""The folder that transformers loads: weights, config, code, tokenizer and a model card."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors.torch import save

from export.huggingface.flatten import modelling_source
from export.huggingface.tokenizer import write_tokenizer
from export.source import Source
from model import Architecture, reads_context
from utils.text import NO_CONTEXT, given_words, visible

_MEASURES = {
    "nats_per_token": "nats per token",
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
    "word_perplexity": "perplexity per word",
    "tokens": "scored tokens",
}


def write_folder(source: Source, folder: Path) -> list[str]:
    """Write all files into an empty folder; returns lines that say what they are.

    ValueError: the tokenizer cannot be carried.
    """
    architecture, tokenizer = source.architecture, source.tokenizer
    tensors = {f"model.{name}": tensor for name, tensor in source.model.state_dict().items()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    write_tokenizer(tokenizer, source.folder, folder)
    doc = tokenizer.doc_id
    _write_json(folder / "config.json", config_of(architecture, doc, dtype))
    ids = {"bos_token_id": doc, "eos_token_id": doc, "pad_token_id": doc}
    _write_json(folder / "generation_config.json", ids)
    code = modelling_source(slot.kind for slot in architecture.blocks)
    (folder / "modeling_parnas.py").write_text(code, encoding="utf-8")
    (folder / "README.md").write_text(card_of(source), encoding="utf-8")
    # transformers 4 asks for the format.
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    return [
        f"{architecture.name}, layout {architecture.letters()}, {dtype}; load it with "
        "AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)"
    ]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def config_of(architecture: Architecture, doc_id: int, dtype: str) -> dict[str, Any]:
    """The content of config.json."""
    softmax = architecture.softmax
    head_width = architecture.options.d_embedding or architecture.d_model
    return {
        "architectures": ["ParnasForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_parnas.ParnasConfig",
            "AutoModelForCausalLM": "modeling_parnas.ParnasForCausalLM",
        },
        "model_type": "parnas",
        "dtype": dtype,
        "vocab_size": architecture.vocabulary_size,
        "hidden_size": architecture.d_model,
        "num_hidden_layers": len(architecture.blocks),
        "blocks": _blocks(architecture),
        "tie_blocks": architecture.tie_blocks,
        "options": architecture.options.model_dump(mode="json"),
        "softmax": {
            "cutoffs": list(softmax.cutoffs),
            "sizes": list(softmax.tail_widths(head_width)),
            "tied": softmax.tied,
        },
        "dropout": {"residual": 0.0, "embedding": 0.0, "attention": 0.0, "dense": 0.0},
        "bos_token_id": doc_id,
        "eos_token_id": doc_id,
        "pad_token_id": doc_id,
        "use_cache": True,
        "tie_word_embeddings": False,
    }


def _blocks(architecture: Architecture) -> list[dict[str, Any]]:
    """Kind, label and options of each slot."""
    return [
        {name: getattr(slot, name) for name in type(slot).model_fields}
        for slot in architecture.blocks
    ]


def card_of(source: Source) -> str:
    """The text of README.md."""
    own, tokenizer = source.architecture, source.tokenizer
    facts = [*own.provenance.items()]
    if own.evidence is not None:
        facts.append(("derivation", own.evidence.method))
        facts += [("caveat", caveat) for caveat in own.evidence.caveats]
    facts += [("training", words) for words in given_words(source.result or {})]
    facts.append(("tokenizer", f"{tokenizer.kind}, digest {tokenizer.digest[:16]}"))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"cell": _cell, "shown": _shown}
    return environment.get_template("card.md.j2").render(
        own=own,
        blocks=_blocks(own),
        tokenizer=tokenizer,
        parameters=sum(parameter.numel() for parameter in source.model.parameters()),
        blind="" if any(map(reads_context, own.blocks)) else NO_CONTEXT,
        result=source.result,
        measures=_MEASURES,
        facts=facts,
    )


def _cell(text: str) -> str:
    """Text of a file in a table: nothing of it ends a cell, or is markup."""
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
