"""config.json: what the model is built of, and the layout in transformers' words."""

from typing import Any

from model import Architecture, Candidate

# By kind, how a slot mixes tokens. Where it does not, `moe` stands: transformers refuses other
# names, and takes it for a layer without attention, for which it keeps nothing.
LAYER_TYPES = {
    "attention": "full_attention",
    "all_attention": "full_attention",
    "routing": "full_attention",
    "adaptive_span": "sliding_attention",
    "gated_delta": "linear_attention",
    "linear_attention": "linear_attention",
    "short_conv": "conv",
}
NOT_MIXING = "moe"
_SPARSE = {"mixture_of_experts", "product_key_memory"}
# Our options of a slot, by their names in transformers.
OPTIONS = {
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "head_dim": "d_head",
    "sliding_window": "window",
    "intermediate_size": "d_ffn",
    "hidden_act": "activation",
    "num_local_experts": "n_experts",
}


def config_of(architecture: Architecture, doc_id: int, dtype: str) -> dict[str, Any]:
    """The content of config.json."""
    softmax = architecture.softmax
    head_width = architecture.options.d_embedding or architecture.d_model
    layers = [_layer(slot) for slot in architecture.slots]
    # A value of the whole model must stand for each name; a layer that has one says its own.
    common: dict[str, Any] = {}
    for layer in layers:
        common = {name: value for name, value in layer.items() if name != "skip"} | common
    return {
        "architectures": ["ParnasForCausalLM"],
        "auto_map": {
            "AutoConfig": "configuration_parnas.ParnasConfig",
            "AutoModelForCausalLM": "modeling_parnas.ParnasForCausalLM",
        },
        "model_type": "parnas",
        "dtype": dtype,
        "vocab_size": architecture.vocabulary_size,
        "hidden_size": architecture.d_model,
        "num_hidden_layers": len(architecture.slots),
        "slots": [_every_option(slot) for slot in architecture.slots],
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
        "layer_types": [layer_type(slot) for slot in architecture.slots],
        "mlp_layer_types": [
            "sparse" if slot.kind in _SPARSE else "dense" for slot in architecture.slots
        ],
        **common,
        "per_layer_config": {str(number): layer for number, layer in enumerate(layers)},
    }


def _every_option(slot: Candidate) -> dict[str, Any]:
    return {name: getattr(slot, name) for name in type(slot).model_fields}


def layer_type(slot: Candidate) -> str:
    """The layer's type in transformers' words."""
    known = LAYER_TYPES.get(slot.kind, NOT_MIXING)
    windowed = getattr(slot, "window", None) is not None
    return "sliding_attention" if known == "full_attention" and windowed else known


def _layer(slot: Candidate) -> dict[str, Any]:
    """What a slot's options are called in transformers, and which half of a layer it lacks."""
    options = _every_option(slot)
    layer = {theirs: options[ours] for theirs, ours in OPTIONS.items() if ours in options}
    if "span" in options:
        layer["sliding_window"] = options["span"]
    if layer.get("num_key_value_heads", 0) is None:
        layer["num_key_value_heads"] = layer["num_attention_heads"]
    layer["skip"] = ["attention"] if layer_type(slot) == NOT_MIXING else ["mlp"]
    if slot.kind == "identity":
        layer["skip"] = ["attention", "mlp"]
    return layer
