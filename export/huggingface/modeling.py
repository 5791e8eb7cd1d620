"""The model and its config as transformers knows them.

`flatten` puts what it needs of `model/` before it.

B batch   T tokens   D d_model   V vocabulary
"""

from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from model.blocks import BLOCKS
from model.config import ModelOptions, SoftmaxConfig
from model.language_model import LanguageModel
from model.ops import Dropout
from model.state import StreamState

# What transformers calls what is carried from call to call: `cache` from 5.24 on.
_CACHE = next(
    field.name
    for field in fields(CausalLMOutputWithPast)
    if field.name in ("cache", "past_key_values")
)
# What a label says that is not scored.
_IGNORED = -100
# Tokens of a long prompt that one pass reads: products of a few rows are slow, but each meets all
# keys.
_LEAST_AT_ONCE, _MOST_AT_ONCE = 64, 1024

# Hidden states (B, T, D), the state behind the tokens, and the blocks' own losses.
Read = tuple[Tensor, StreamState, Tensor | None]


class ParnasConfig(PretrainedConfig):  # type: ignore[misc]
    """A language model of residual slots, each of which holds one block.

    Args:
        vocab_size: number of ids.
        hidden_size: width of the residual stream.
        blocks: the block of each slot: its kind, its label, and every option of the kind.
        tie_blocks: slots so many apart share their weights; None: none do.
        options: norms, token shift and the like of the whole model.
        softmax: `cutoffs`, `sizes` of the tails, and whether the embedding shares them (`tied`).
        dropout: what a training drops: `residual`, `embedding`, `attention`, `dense`.
        kwargs: what every config has.
    """

    model_type = "parnas"
    # A list, because Trainer adds one to it.
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "past_key_values"]

    def __init__(
        self,
        vocab_size: int = 2,
        hidden_size: int = 8,
        blocks: Any = (),
        tie_blocks: int | None = None,
        options: dict[str, Any] | None = None,
        softmax: dict[str, Any] | None = None,
        dropout: dict[str, float] | None = None,
        use_cache: bool = True,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.blocks, self.num_hidden_layers = [dict(block) for block in blocks], len(blocks)
        self.tie_blocks, self.use_cache = tie_blocks, use_cache
        self.options = {} if options is None else options
        self.softmax = softmax or {"cutoffs": [], "sizes": [], "tied": True}
        self.dropout = {} if dropout is None else dropout
        kwargs.pop("num_hidden_layers", None)
        # Of the softmax that is the model's own matter: there is no layer to tie.
        kwargs["tie_word_embeddings"] = False
        super().__init__(**kwargs)


class ParnasMemory:
    """What streams carry from call to call, in the place of transformers' caches.

    A call reads on from it and changes it; `copy.deepcopy` keeps a place that is gone on from
    several times.
    """

    # What transformers asks of a cache.
    is_compileable = is_croppable = False
    is_linear = (False,)

    def __init__(self, state: StreamState) -> None:
        self.state = state
        # Of the ids that were read, those included that a mask leaves out.
        self.columns = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many columns of ids were read."""
        return self.columns

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Go on from these streams, each as often as it is named."""
        self.state = self.state.rows(beam_idx.to(self.state.seen_B.device))

    def __deepcopy__(self, memo: dict[int, Any]) -> "ParnasMemory":
        # Not member by member: the names of what is shared while weights stand still are modules.
        every_B = torch.arange(len(self.state.seen_B), device=self.state.seen_B.device)
        copied = ParnasMemory(self.state.rows(every_B))
        copied.columns = self.columns
        return copied


class ParnasForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A Parnas language model: ids in, log-probabilities of the next id out."""

    config_class = ParnasConfig
    base_model_prefix = "model"
    # No step back: what streams carry holds nothing of what has been forgotten.
    _is_stateful = True

    def __init__(self, config: ParnasConfig) -> None:
        super().__init__(config)
        softmax = config.softmax
        self.model = LanguageModel(
            [[BLOCKS[slot["kind"]].options(**slot)] for slot in config.blocks],
            d_model=config.hidden_size,
            vocabulary_size=config.vocab_size,
            softmax=SoftmaxConfig(
                cutoffs=tuple(softmax["cutoffs"]),
                sizes=tuple(softmax["sizes"]),
                tied=softmax["tied"],
            ),
            dropout=Dropout(**config.dropout),
            tie_blocks=config.tie_blocks,
            options=ModelOptions(**config.options),
        )
        self.post_init()

    def _init_weights(self, module: torch.nn.Module) -> None:
        # Weights are drawn where they are made; what no file holds begins as zero.
        for name in module._non_persistent_buffers_set:
            torch.nn.init.zeros_(getattr(module, name))

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: ParnasMemory | None = None,
        past_key_values: ParnasMemory | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        chunk: int | None = None,
        num_items_in_batch: Any = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Read ids of every stream, going on where the memory ended.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T) or longer, of which the last T columns count: a token whose mask
                is 0 is not read at all, wherever it stands.
            cache: what an earlier call returned; None: the streams begin.
            past_key_values: another name for it.
            labels: (B, T), each is predicted from the tokens before it; -100 is not scored.
            use_cache: return the memory (default: as the config says, but not in a training).
            logits_to_keep: of so many last tokens logits are returned; 0: of all.
            chunk: read the ids as if they came in calls of so many, which with a memory of
                limited length is not the same as at once; None: at once.
            num_items_in_batch: what the sum of the nats is divided by (default: their number).
            return_dict: False returns a tuple.
            others: nothing else is taken.

        Returns:
            `logits` (B, T, V), which are log-probabilities in nats; `loss`, the mean nats of the
            labels, in a training with the blocks' own losses; the memory.
        """
        _refuse(others, input_ids)
        assert input_ids is not None
        memory = cache if cache is not None else past_key_values
        if use_cache is None:
            use_cache = bool(self.config.use_cache) and not self.training
        reads_BT = None if attention_mask is None else _reads(attention_mask, input_ids)
        # What stands behind all others is seen by none of them.
        at_once = reads_BT is None or (not use_cache and _stands_behind(reads_BT))
        if memory is None:
            cached = not self.training and not torch.is_grad_enabled()
            state = self.model.initial_state(len(input_ids), cached=cached)
        else:
            state = memory.state
        loss = None
        # Keys and values that were kept have no gradient.
        with torch.set_grad_enabled(torch.is_grad_enabled() and state.cache is None):
            read = (input_ids, state, chunk, None if at_once else reads_BT)
            h_BTD, state, aux = self._read(*read)
            if labels is not None:
                loss = self._loss(h_BTD, labels, reads_BT, num_items_in_batch)
                loss = loss + aux if aux is not None and self.training else loss
            logits = self.model.log_prob(h_BTD[:, -logits_to_keep:])
        if use_cache:
            memory = ParnasMemory(state) if memory is None else memory
            memory.state, memory.columns = state, memory.columns + input_ids.shape[1]
        returned = {_CACHE: memory if use_cache else None}
        output = CausalLMOutputWithPast(loss=loss, logits=logits, **returned)
        return output.to_tuple() if return_dict is False else output

    def _read(
        self, ids_BT: Tensor, state: StreamState, chunk: int | None, reads_BT: Tensor | None = None
    ) -> Read:
        """Read the tokens that a mask leaves; None: all of them."""
        if reads_BT is not None:
            return self._read_some(ids_BT, reads_BT, state, chunk)
        length, how = ids_BT.shape[1] if chunk is None else chunk, {}
        if chunk is not None and state.cache is not None:
            most = max(_LEAST_AT_ONCE, min(self.model.longest_memory // 4, _MOST_AT_ONCE))
            length, how = max(1, most // chunk) * chunk, {"chunk": chunk}
        h_parts, aux = [], None
        for part_BT in torch.split(ids_BT, length, dim=1):
            h_BTD, state, aux = self.model(part_BT, state, **how)
            h_parts.append(h_BTD)
        if state.cache is not None and ids_BT.shape[1] > 1:
            # It holds something for each length of a pass, and prompts have any.
            state = replace(state, cache={})
        return torch.cat(h_parts, dim=1), state, aux

    def _read_some(
        self, ids_BT: Tensor, reads_BT: Tensor, state: StreamState, chunk: int | None
    ) -> Read:
        """Streams that have as many tokens left are read together, without what is left out."""
        count_B = reads_BT.sum(dim=1)
        counts = sorted(set(count_B.tolist()))
        rows = [(count_B == count).nonzero().flatten() for count in counts]
        states, aux = [], None
        out_BTD = self.model.tables.head.new_zeros(*ids_BT.shape, self.config.hidden_size)
        for count, row_R in zip(counts, rows, strict=True):
            ids_RT = ids_BT[row_R][reads_BT[row_R]].view(len(row_R), count)
            h_RTD, after, own_aux = self._read(ids_RT, state.rows(row_R), chunk)
            theirs_BT = reads_BT & (count_B == count)[:, None]
            out_BTD = out_BTD.masked_scatter(theirs_BT[..., None], h_RTD.to(out_BTD.dtype))
            states.append(after)
            if own_aux is not None:
                share = own_aux * (ids_RT.numel() / int(count_B.sum()))
                aux = share if aux is None else aux + share
        return out_BTD, StreamState.join(states).rows(torch.cat(rows).argsort()), aux

    def _loss(self, h_BTD: Tensor, label_BT: Tensor, reads_BT: Tensor | None, items: Any) -> Tensor:
        """Nats of the labels, each predicted from the token before it, which a mask must leave."""
        target_BT = label_BT[:, 1:].to(h_BTD.device)
        scored_BT = target_BT != _IGNORED
        if reads_BT is not None:
            scored_BT = scored_BT & reads_BT[:, 1:] & reads_BT[:, :-1]
        # The sum over no token at all is 0, and has a gradient.
        nats = h_BTD.float().sum() * 0.0
        if bool(scored_BT.any()):
            nats = self.model.nll(h_BTD[:, :-1][scored_BT][None], target_BT[scored_BT][None]).sum()
        return nats / (scored_BT.sum() if items is None else items)

    def prepare_inputs_for_generation(
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        cache: ParnasMemory | None = None,
        past_key_values: ParnasMemory | None = None,
        attention_mask: Tensor | None = None,
        cache_position: Tensor | None = None,
        use_cache: bool | None = True,
        **others: Any,
    ) -> dict[str, Any]:
        """What `generate` calls the model with: the ids that it has not read yet.

        A token sees what it would see if they came one by one, however long a prompt is.
        """
        new = next_sequence_length if cache_position is None else len(cache_position)
        return {
            "input_ids": input_ids if new is None else input_ids[:, -new:],
            "attention_mask": attention_mask,
            _CACHE: cache if cache is not None else past_key_values,
            "use_cache": use_cache,
            "logits_to_keep": 1,
            "chunk": 1,
        }


def _refuse(others: dict[str, Any], ids_BT: Tensor | None) -> None:
    """Raise ValueError for what transformers lets one ask for and this model does not have."""
    if ids_BT is None:
        raise ValueError("input_ids: missing; this model reads ids and nothing else")
    for name, value in others.items():
        # The model counts positions itself.
        if name != "position_ids" and value is not None and value is not False:
            raise ValueError(f"{name}: this model does not take it")


def _reads(mask: Tensor, ids_BT: Tensor) -> Tensor | None:
    """Which tokens are read; None: all of them."""
    if mask.dim() != 2 or len(mask) != len(ids_BT) or mask.shape[1] < ids_BT.shape[1]:
        raise ValueError(
            f"attention_mask: must be of shape {list(ids_BT.shape)}, found {list(mask.shape)}"
        )
    reads_BT = mask[:, mask.shape[1] - ids_BT.shape[1] :].to(ids_BT.device).bool()
    if bool(reads_BT.all()):
        return None
    if not bool(reads_BT.any(dim=1).all()):
        raise ValueError("attention_mask: a row has no token; begin it with the id of <doc>")
    return reads_BT


def _stands_behind(reads_BT: Tensor) -> bool:
    """Whether what is not read stands behind what is, in every row."""
    return not bool((reads_BT[:, 1:] & ~reads_BT[:, :-1]).any())
