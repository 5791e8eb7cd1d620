"""A folder written for transformers: it computes what our model computes, and goes on as it does.

All against our model read plainly, segment by segment or token by token.
"""

import copy
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import BLOCKS, Candidate, ModelOptions, SoftmaxConfig
from tests.extras.huggingface import IDS, Exported, export, greedy, load, tokens
from tests.model.tiny import candidate

CUTS = ((0, 7), (7, 8), (8, 21))
ROOT = Path(__file__).resolve().parents[2]
Folder = pytest.TempPathFactory

# Beside each kind alone, between attentions.
MODELS: dict[str, tuple[list[Candidate], dict[str, Any]]] = {
    kind: ([candidate("attention"), candidate(kind, label="own_label"), candidate("attention")], {})
    for kind in BLOCKS
}
_attention = partial(candidate, "attention")
MODELS |= {
    "windows": ([_attention(window=4, memory=3), _attention(window=3, memory=2, label="b2")], {}),
    "grouped": ([_attention(n_kv_heads=1, clamp=3), candidate("dense", activation="geglu")], {}),
    "turned": ([_attention(positions="rope", qk_norm=True), candidate("dense", activation="relu2"),
                _attention(positions="rope", n_kv_heads=1, clamp=3, window=5, label="b2"),
                candidate("all_attention", positions="rope"),
                candidate("adaptive_span", positions="none", qk_norm=True)], {}),
    "tied": ([_attention(), candidate("dense"), _attention(), candidate("dense")],
             {"tie_blocks": 2}),
    "post": ([_attention(), candidate("dense")],
             {"options": ModelOptions(norm="rms", norm_position="post")}),
    "rezero": ([_attention(), candidate("dense")], {"options": ModelOptions(rezero=True)}),
    "shifted": ([_attention(), candidate("gated_delta"), candidate("short_conv")],
                {"options": ModelOptions(token_shift=True, d_embedding=5, norm="scale")}),
    "free": ([_attention()], {"softmax": SoftmaxConfig(cutoffs=(50,), sizes=(3,), tied=False)}),
    "plain": ([candidate("dense")], {"softmax": SoftmaxConfig()}),
}  # fmt: skip


@pytest.fixture(scope="module")
def exported(tmp_path_factory: Folder) -> Any:
    made: dict[str, Exported] = {}

    def of(name: str) -> Exported:
        if name not in made:
            slots, given = MODELS[name]
            made[name] = export(tmp_path_factory.mktemp(name), *slots, **given)
        return made[name]

    return of


def padded(prompts: list[Tensor]) -> dict[str, Tensor]:
    """Prompts of unequal length, filled up on the left with what must not matter."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), 3)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gradients", [False, True])
def test_logits_and_loss_are_ours_over_three_segments(
    exported: Any, name: str, gradients: bool
) -> None:
    """With keys and values kept, and with gradients, where they are not."""
    pair, ids, memory = exported(name), tokens(3, 21), None
    state = pair.own.initial_state(3)
    for start, end in CUTS:
        part = ids[:, start:end]
        h_BTD, state, _ = pair.own(part, state)
        with torch.set_grad_enabled(gradients):
            out = pair.theirs(part, cache=memory, labels=part, use_cache=True)
        memory = out.cache
        torch.testing.assert_close(out.logits, pair.own.log_prob(h_BTD), rtol=0, atol=1e-5)
        if part.shape[1] > 1:
            nats = pair.own.nll(h_BTD[:, :-1], part[:, 1:]).mean()
            torch.testing.assert_close(out.loss, nats, rtol=0, atol=1e-5)
    assert memory.get_seq_length() == 21


@pytest.mark.parametrize("name", MODELS)
def test_greedy_generation_is_ours_token_for_token(exported: Any, name: str) -> None:
    """Of prompts of unequal length too, one of them longer than any memory."""
    pair, prompts = exported(name), [tokens(1, length, length)[0] for length in (19, 1, 6)]
    wanted = [greedy(pair.own, prompt, 9) for prompt in prompts]
    made = pair.theirs.generate(**padded(prompts), max_new_tokens=9, eos_token_id=None)
    assert made[:, 19:].tolist() == wanted
    whole = pair.theirs.generate(
        **padded(prompts), max_new_tokens=9, eos_token_id=None, use_cache=False
    )
    assert torch.equal(whole, made)


@pytest.mark.parametrize("kind", BLOCKS)
def test_what_a_mask_leaves_out_is_not_there(exported: Any, kind: str) -> None:
    """Wherever it stands, also in a later segment; the memory goes on as without it."""
    pair, ids = exported(kind), tokens(3, 12)
    mask = torch.ones_like(ids)
    mask[0, :4] = mask[1, 7:] = mask[1, :2] = mask[2, 5:8] = 0
    with torch.no_grad():
        memory = pair.theirs(ids[:, :6], attention_mask=mask[:, :6], use_cache=True).cache
        out = pair.theirs(ids[:, 6:], attention_mask=mask, cache=memory, labels=ids[:, 6:])
        later = pair.theirs(ids[:, :3], cache=memory).logits
        nats = []
        for row in range(3):
            state, logits = pair.own.initial_state(1), []
            for part in (slice(0, 6), slice(6, 12), None):
                kept = mask[row, part].bool() if part else torch.ones(3).bool()
                read = ids[row, part][kept] if part else ids[row, :3]
                h_BTD, state, _ = pair.own(read[None], state)
                logits.append(pair.own.log_prob(h_BTD)[0])
                if part == slice(6, 12) and len(read) > 1:
                    nats.append(pair.own.nll(h_BTD[:, :-1], read[None, 1:])[0])
            close = partial(torch.testing.assert_close, rtol=0, atol=1e-5)
            close(out.logits[row][mask[row, 6:].bool()], logits[1])
            close(later[row], logits[2])
        close(out.loss, torch.cat(nats).mean())


@pytest.mark.parametrize("kind", BLOCKS)
def test_other_numbers_and_a_training(exported: Any, kind: str) -> None:
    """In bfloat16 too it computes and learns; what blocks lose by themselves is in the loss."""
    pair, ids = exported(kind), tokens(2, 9)
    for dtype in (torch.bfloat16, torch.float64):
        theirs = load(pair.folder, dtype=dtype)
        assert next(theirs.parameters()).dtype == dtype
        assert theirs.generate(ids, max_new_tokens=2, eos_token_id=None).shape == (2, 11)
        theirs.train()
        out = theirs(ids, labels=ids)
        assert out.get("cache") is None
        out.loss.backward()
        assert all(weight.grad is not None for weight in theirs.parameters())
        if dtype == torch.float64:
            own = copy.deepcopy(pair.own).double().train()
            h_BTD, _, aux = own(ids, own.initial_state(2))
            nats = own.nll(h_BTD[:, :-1], ids[:, 1:]).mean() + (0 if aux is None else aux)
            torch.testing.assert_close(out.loss, nats)


def test_the_folder_loads_where_parnas_is_not(exported: Any, tmp_path: Path) -> None:
    pair, ids = exported("routing"), tokens(1, 9)
    code = f"""
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained({str(pair.folder)!r}, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained({str(pair.folder)!r}, trust_remote_code=True)
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
assert not [file for file in files if file.startswith({str(ROOT)!r}) and "/.venv" not in file]
ids = tokenizer("caf\\u00e9", return_tensors="pt").input_ids
print(model.generate(ids, max_new_tokens=5, eos_token_id=None)[0].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ids = torch.tensor(list("caf\u00e9".encode()))
    assert done.stdout == f"{[*ids.tolist(), *greedy(pair.own, ids, 5)]}\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_ids": None}, "input_ids: missing"),
        ({"output_hidden_states": True}, "output_hidden_states: this model does not take it"),
        ({"inputs_embeds": torch.ones(1, 3, 8)}, "inputs_embeds: this model does not take it"),
        ({"output_attentions": True}, "output_attentions: this model does not take it"),
        ({"attention_mask": torch.zeros(1, 3)}, "attention_mask: a row has no token"),
        ({"attention_mask": torch.ones(2, 3)}, "attention_mask: must be of shape"),
        ({"input_ids": torch.tensor([[IDS]])}, "257, but the vocabulary has 0 to 256"),
    ],
)
def test_what_a_call_cannot_have_is_said(exported: Any, given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        exported("attention").theirs(**{"input_ids": tokens(1, 3), **given})
