"""Sequences whose answers stand earlier in them: in-context recall and selective copy.

Both as in MAD (Poli et al. 2024, arXiv 2403.17844), section 3; every batch is drawn anew.

B batch   T length   N symbols   C copied symbols
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

SYMBOLS = 8
COPIED = 6


@dataclass(frozen=True)
class Examples:
    """Sequences, and where their next token is an answer that a model can know."""

    input_BT: Tensor
    target_BT: Tensor
    is_answer_BT: Tensor


def in_context_recall(batch: int, length: int, generator: torch.Generator) -> Examples:
    """Keys and values in turn; a key that was there before has the value that it had then.

    Each sequence has a map of its own from keys to values. Keys are the tokens 0 to N-1, values the
    next N.
    """
    pairs = length // 2
    value_BN = torch.randint(SYMBOLS, (batch, SYMBOLS), generator=generator)
    key_BP = torch.randint(SYMBOLS, (batch, pairs), generator=generator)
    token_BT = torch.stack([key_BP, SYMBOLS + value_BN.gather(1, key_BP)], dim=2).flatten(1)
    is_same_BPP = key_BP[:, :, None] == key_BP[:, None, :]
    seen_BP = is_same_BPP.tril(diagonal=-1).any(dim=2)
    is_answer_BT = torch.stack([seen_BP, torch.zeros_like(seen_BP)], dim=2).flatten(1)
    return Examples(token_BT[:, :-1], token_BT[:, 1:], is_answer_BT[:, :-1])


def selective_copy(batch: int, length: int, generator: torch.Generator) -> Examples:
    """C symbols stand anywhere among blanks; behind them they are to be said in their order.

    Symbols are the tokens 0 to N-1, then come the blank and the mark that asks for the next symbol.
    Answers are not read back: between them stand marks.
    """
    blank, mark = SYMBOLS, SYMBOLS + 1
    text = length - COPIED
    symbol_BC = torch.randint(SYMBOLS, (batch, COPIED), generator=generator)
    place_BC = torch.rand(batch, text, generator=generator).argsort(dim=1)[:, :COPIED]
    text_BT = torch.full((batch, text), blank)
    text_BT.scatter_(1, place_BC.sort(dim=1).values, symbol_BC)
    mark_BC = torch.full((batch, COPIED), mark)
    none_BT = torch.zeros_like(text_BT)
    return Examples(
        torch.cat([text_BT, mark_BC], dim=1),
        torch.cat([none_BT, symbol_BC], dim=1),
        torch.cat([none_BT, torch.ones_like(symbol_BC)], dim=1).bool(),
    )


# By name; the vocabulary of each is two sets of symbols at most.
TASKS: Mapping[str, Callable[[int, int, torch.Generator], Examples]] = {
    "in-context recall": in_context_recall,
    "selective copy": selective_copy,
}
VOCABULARY = 2 * SYMBOLS
CHANCE = 1 / SYMBOLS
