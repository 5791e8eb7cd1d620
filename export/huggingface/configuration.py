"""What config.json says of a Parnas model."""

from typing import Any, ClassVar

from transformers import PretrainedConfig


class ParnasConfig(PretrainedConfig):  # type: ignore[misc]
    """A language model of residual slots, each of which holds one block.

    Args:
        vocab_size: number of ids.
        hidden_size: width of the residual stream.
        slots: the block of each slot: its kind, its label, and every option of the kind.
        tie_slots: slots so many apart share their weights; None: none do.
        options: norms, token shift and the like of the whole model.
        softmax: `cutoffs`, the first id of each tail; `sizes`, the tails' widths; `tied`, whether
            the embedding shares the tables.
        dropout: what a training drops, by place: `residual`, `embedding`, `attention`, `dense`.
        kwargs: what every config has. `layer_types` and `per_layer_config` say in transformers'
            words what `slots` says; the model itself reads `slots` alone.
    """

    model_type = "parnas"
    # A list, because Trainer adds one to it.
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "past_key_values"]

    def __init__(
        self,
        vocab_size: int = 2,
        hidden_size: int = 8,
        slots: Any = (),
        tie_slots: int | None = None,
        options: dict[str, Any] | None = None,
        softmax: dict[str, Any] | None = None,
        dropout: dict[str, float] | None = None,
        use_cache: bool = True,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.slots, self.num_hidden_layers = [dict(slot) for slot in slots], len(slots)
        self.tie_slots, self.use_cache = tie_slots, use_cache
        self.options = {} if options is None else options
        self.softmax = softmax or {"cutoffs": [], "sizes": [], "tied": True}
        self.dropout = {} if dropout is None else dropout
        kwargs.pop("num_hidden_layers", None)
        # Of the softmax that is the model's own matter: there is no layer to tie.
        kwargs["tie_word_embeddings"] = False
        super().__init__(**kwargs)
