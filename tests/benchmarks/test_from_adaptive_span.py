"""Checkpoints of adaptive-span: the model made of one against plain loops, on random weights.

T tokens   D width   H heads   K head dim   L span
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks import from_adaptive_span as command
from data import load_tokenizer
from model import LanguageModel, load_architecture, load_model
from model.blocks.adaptive_span import AdaptiveSpanBlock
from tests.model.contract import read
from tests.refusal import refused
from tools import evaluate

Array = NDArray[Any]
State = dict[str, Array]

D, H, F, LAYERS, RAMP = 8, 2, 12, 2, 3
TEXT = b"the cat sat\non the mat"
SYMBOLS = b"the cas\nonm"
PROJECTIONS = ("query", "key", "val", "out")


def state_of(span: int, dtype: str = "<f8", spans: Sequence[float] = (0.9, 1.0)) -> State:
    """Random tensors of the layout."""
    generator = np.random.default_rng(3)
    symbols = len(command.symbols_of([TEXT]))
    shapes: dict[str, tuple[int, ...]] = {
        "in_emb.weight": (symbols, D), "out_emb.weight": (symbols, D), "out_emb.bias": (symbols,),
        "key_pe": (1, D // H, span),
    }  # fmt: skip
    for layer in (f"layers.{number}." for number in range(LAYERS)):
        shapes |= {f"{layer}attn.proj_{name}.weight": (D, D) for name in PROJECTIONS}
        shapes |= {f"{layer}norm{n}.{part}": (D,) for n in (1, 2) for part in ("weight", "bias")}
        shapes |= {f"{layer}ff.fc1.weight": (F, D), f"{layer}ff.fc1.bias": (F,)}
        shapes |= {f"{layer}ff.fc2.weight": (D, F), f"{layer}ff.fc2.bias": (D,)}
    state = {name: generator.normal(size=shape) * 0.7 for name, shape in shapes.items()}
    for number in range(LAYERS):
        mask = f"layers.{number}.attn.attn.adaptive_span._mask."
        state[f"{mask}current_val"] = np.array(spans, dtype="<f8").reshape(H, 1, 1) * 0.9**number
        state[f"{mask}mask_template"] = np.linspace(1 - span, 0, span)
    return {name: array.astype(dtype) for name, array in state.items()}


def written(path: Path, content: Any, *, older: bool = False) -> Path:
    """A file of either form that torch.save knows: that of before 2020, and the zip."""
    torch.save(content, path, _use_new_zipfile_serialization=not older)
    return path


def checkpoint(path: Path, state: State, *, older: bool = True) -> Path:
    """A checkpoint as training writes one."""
    model = OrderedDict({f"module.{name}": torch.tensor(array) for name, array in state.items()})
    sums = {n: {"step": 9, "sum": torch.ones(2)} for n in (140273, 2**40)}
    content = {
        "iter_no": 599, "model": model, "logger": {"step": [1000], "train_bpc": [1.2]},
        "optimizer": {"state": sums, "param_groups": [{"lr": 0.07, "params": [140273, 2**40]}]},
        "scheduler_iter": 600000,
    }  # fmt: skip
    return written(path, content, older=older)


def converted(folder: Path, state: State, *, older: bool = True) -> LanguageModel:
    """The model that the command makes."""
    text = folder / "text.txt"
    text.write_bytes(TEXT)
    path = checkpoint(folder / "my.pt", state, older=older)
    words = [str(path), str(folder / "out"), "--ramp", str(RAMP), "--text", str(text)]
    assert command.main(words) == 0
    return load_model(folder / "out")


def reference(state: State, ids: Sequence[int]) -> Array:
    """(T, symbols) log-probabilities after each token, as they are computed there."""
    w = {name: array.astype(np.float64) for name, array in state.items()}
    span, k_width = w["key_pe"].shape[2], w["key_pe"].shape[1]

    def normed(x_D: Array, place: str) -> Array:
        centred_D = x_D - x_D.mean()
        scaled_D = centred_D / math.sqrt((centred_D**2).mean() + 1e-5)
        return scaled_D * w[f"{place}.weight"] + w[f"{place}.bias"]

    def head(rows: list[Array], t: int, layer: str, number: int) -> Array:
        part = slice(number * k_width, (number + 1) * k_width)
        q_K, k_KD, v_KD = (w[f"{layer}attn.proj_{n}.weight"][part] for n in ("query", "key", "val"))
        # Rows of zeros stand before a stream; a token does not see itself.
        before = [rows[t - x - 1] if t - x - 1 >= 0 else np.zeros(D) for x in range(span)]
        query_K = q_K @ rows[t]
        score_L = [
            query_K @ (k_KD @ before[x] + w["key_pe"][0, :, span - 1 - x]) / math.sqrt(k_width)
            for x in range(span)
        ]
        most = max(score_L)
        share_L = [math.exp(score - most) for score in score_L]
        share_L = [share / sum(share_L) for share in share_L]
        z = w[f"{layer}attn.attn.adaptive_span._mask.current_val"][number, 0, 0] * span
        faded_L = [s * min(max((z - x) / RAMP + 1, 0.0), 1.0) for x, s in enumerate(share_L)]
        total = sum(faded_L)
        out_K: Array = sum(faded_L[x] / total * (v_KD @ before[x]) for x in range(span))
        return out_K

    rows = [w["in_emb.weight"][i] for i in ids]
    for number in range(LAYERS):
        layer, after = f"layers.{number}.", []
        for t in range(len(ids)):
            heads = np.concatenate([head(rows, t, layer, n) for n in range(H)])
            x_D = normed(rows[t] + w[f"{layer}attn.proj_out.weight"] @ heads, f"{layer}norm1")
            inner_F = w[f"{layer}ff.fc1.weight"] @ x_D + w[f"{layer}ff.fc1.bias"]
            dense_D = w[f"{layer}ff.fc2.weight"] @ np.maximum(inner_F, 0.0)
            after.append(normed(x_D + dense_D + w[f"{layer}ff.fc2.bias"], f"{layer}norm2"))
        rows = after
    logits = np.array([w["out_emb.weight"] @ x_D + w["out_emb.bias"] for x_D in rows])
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def found(model: LanguageModel, ids: Sequence[int], segment: int, *, cached: bool) -> Array:
    """(T, 257) log-probabilities of our model."""
    ours = torch.tensor([[SYMBOLS[i] for i in ids]])
    with torch.no_grad():
        h_BTD = read(model, ours, segment, cached=cached)
        array: Array = model.log_prob(h_BTD)[0].numpy()
    return array


IDS = [0, 1, 2, 3, 4, 9, 6, 7, 2, 2, 8, 1, 0, 5, 3, 3, 0, 7]


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize(
    ("span", "spans"),
    [(5, (0.9, 1.0)), (40, (0.05, 0.2)), (9, (0.0, 0.0))],
    ids=["short", "trimmed", "none"],
)
def test_it_computes_what_is_computed_there(
    tmp_path: Path, span: int, spans: tuple[float, float], older: bool
) -> None:
    """From the first token of a stream on, over three segments, in training and evaluation."""
    state = state_of(span, spans=spans)
    model = converted(tmp_path, state, older=older)
    block = model.slots[0].block("adaptive_span")
    assert isinstance(block, AdaptiveSpanBlock)
    reach = block.reach()
    assert reach == min(span, math.ceil(max(spans) * span) + RAMP)
    wanted = reference(state, IDS)
    for cached in (False, True):
        logp = found(model, IDS, 6, cached=cached)
        np.testing.assert_allclose(logp[:, list(SYMBOLS)], wanted, rtol=0, atol=1e-10)
    never = [i for i in range(257) if i not in list(SYMBOLS)]
    assert logp[:, never].max() < -90


def test_the_folder_is_a_model_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = converted(tmp_path, state_of(5, "<f4"))
    out = capsys.readouterr().out
    assert f"{tmp_path / 'out'}: 2 layers, d_model 8, 2 heads, d_ffn 12, span 5, ramp 3" in out
    assert "11 bytes are symbols; the other 245 are untrained" in out
    made = load_architecture(tmp_path / "out" / "architecture.json")
    assert made.letters() == "s d s d"
    assert load_tokenizer(tmp_path / "out").digest == made.tokenizer.digest
    head = model.tables.head
    assert torch.equal(head[256], head[ord("\n")])
    assert not head[ord("q")].any()
    text = tmp_path / "held.txt"
    text.write_text("the cat\non the mat\n" * 3)
    assert evaluate.main([str(tmp_path / "out"), "--data", str(text), "--streams", "2"]) == 0
    assert "57 tokens" in capsys.readouterr().out


def test_symbols_are_numbered_as_they_first_occur() -> None:
    assert command.symbols_of([TEXT]) == SYMBOLS
    assert command.symbols_of([b"ba", b"abc"]) == b"ba\nc"
    assert command.symbols_of([b" cab", b"d "]) == b" cab\nd"
    assert command.symbols_of([b" cab a", b"d "], stripped=True) == b"cab \nd"


def without(state: State, name: str) -> State:
    return {key: array for key, array in state.items() if key != name}


def broken() -> Iterator[tuple[State, str]]:
    """Checkpoints of other layouts, and what is said about them."""
    good, fc2 = state_of(5), "layers.1.ff.fc2.weight"
    yield without(good, "key_pe"), "not the tensors of adaptive-span without persistent"
    yield {**good, fc2: good[fc2].T.copy()}, "size mismatch for slots.3.blocks.dense.outer.weight"
    pers = "layers.0.attn.attn.persistent_memory.key"
    yield {**good, pers: np.ones((2, 4, 3))}, f"(unknown: {pers})"
    yield {**good, "out_emb.bias": good["out_emb.bias"] * np.nan}, "softmax.head: holds nan or inf"
    shorter = {n: a[:-1] if "_emb" in n else a for n, a in good.items()}
    yield shorter, "has 10 symbols, and the text has 11; give the text that it was trained on"


def test_other_layouts_and_files_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_bytes(TEXT)
    files = [(checkpoint(tmp_path / f"{n}.pt", one), said) for n, (one, said) in
             enumerate(broken())]  # fmt: skip
    no_tensor = written(tmp_path / "no.pt", {"model": {"module.a": 1}})
    files += [(no_tensor, "no.pt: holds no tensors under the key model")]
    files += [(text, "text.txt: is not a checkpoint of plain tensors")]
    for path, said in files:
        lines = refused(command.main, capsys, path, out, "--text", text).splitlines()
        (line,) = [line for line in lines if line != "loading torch"]
        assert said in line
        assert not out.exists()
