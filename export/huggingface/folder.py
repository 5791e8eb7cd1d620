"""The folder that transformers loads: weights, config, code, tokenizer and a model card."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save

from export.huggingface.flatten import modelling_source
from export.huggingface.tokenizer import write_tokenizer
from export.source import Source
from model import Architecture, reads_context
from utils.text import NO_CONTEXT, visible

_DTYPES = ("float32", "bfloat16", "float16")

_MEASURES = {
    "nats_per_token": "nats per token",
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
    "word_perplexity": "perplexity per word",
    "tokens": "scored tokens",
}
_HEAD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [parnas, custom_code]
---"""
_USE = """## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("DIR", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("DIR", trust_remote_code=True)
inputs = tokenizer("def add(", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=40)[0]))
```

`trust_remote_code` runs `modeling_parnas.py`, which lies in this folder and imports torch,
transformers and the standard library. Training texts began with `<doc>`
(`tokenizer.bos_token_id`); no text becomes that id, so put it before a prompt yourself where a
document begins."""


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
    texts = {
        "modeling_parnas.py": modelling_source(slot.kind for slot in architecture.slots),
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
        "num_hidden_layers": len(architecture.slots),
        "slots": [
            {name: getattr(slot, name) for name in type(slot).model_fields}
            for slot in architecture.slots
        ],
        "tie_slots": architecture.tie_slots,
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


def card_of(source: Source) -> str:
    """The text of README.md."""
    architecture = source.architecture
    parameters = sum(parameter.numel() for parameter in source.model.parameters())
    tokenizer = source.tokenizer
    sees = any(map(reads_context, architecture.slots))
    parts = [
        _HEAD,
        f"# {architecture.name}",
        *([] if sees else [f"**Warning: {NO_CONTEXT}, so this is no Transformer.**"]),
        f"A {'Transformer-XL' if sees else 'context-free'} language model of {parameters:,} "
        f"parameters whose blocks were chosen slot by slot: {len(architecture.slots)} slots, width "
        f"{architecture.d_model}, layout `{architecture.letters()}`. The tokenizer "
        f"is {tokenizer.kind} with {tokenizer.vocabulary_size:,} ids.",
        _USE,
        "## Layout",
        _layout(source),
        "## Results",
        _results(source.result),
        "## Where it comes from",
        _provenance(source),
    ]
    return "\n\n".join(parts) + "\n"


def _table(titles: list[str], rows: list[list[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _layout(source: Source) -> str:
    rows = []
    for number, slot in enumerate(source.architecture.slots):
        names = [name for name in type(slot).model_fields if name not in ("kind", "label")]
        shown = ", ".join(f"{name} {_shown(getattr(slot, name))}" for name in names)
        rows.append([str(number), slot.label, slot.kind, shown])
    return _table(["slot", "label", "kind", "options"], rows)


def _results(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "No `result.json` lay beside the model."
    rows = []
    for name, title in _MEASURES.items():
        values = [result[split].get(name) for split in ("valid", "test")]
        if any(value is not None for value in values):
            rows.append([title, *map(_shown, values)])
    said = (
        f"Seed {result['seed']}, best of {result['validations']} validations at step "
        f"{result['best_step']} of {result['steps']}. Every token was scored once, with memory "
        "carried over; the test text was used once."
    )
    return f"{_table(['', 'validation', 'test'], rows)}\n\n{said}"


def _provenance(source: Source) -> str:
    architecture = source.architecture
    rows = [[_cell(name), _cell(value)] for name, value in architecture.provenance.items()]
    if architecture.evidence is not None:
        rows.append(["derivation", _cell(architecture.evidence.method)])
        rows += [["caveat", _cell(caveat)] for caveat in architecture.evidence.caveats]
    rows.append(["tokenizer", f"{source.tokenizer.kind}, digest {source.tokenizer.digest[:16]}"])
    return _table(["", ""], rows)


def _cell(text: str) -> str:
    """Text of a file in a table: nothing of it ends a cell, or is markup."""
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if value else "0"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
