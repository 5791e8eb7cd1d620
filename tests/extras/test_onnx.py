"""What onnxruntime and torch.export make of a graph is the model, for every kind of block.

An export takes seconds, so several kinds share a network, and the options of whole models come
with them. B batch   T segment length
"""

import copy
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor

from data import Tokenizer
from data.tokenizers.tokenizer import Bytes
from export import onnx as exporter
from export.blocks import FORMS
from export.graph import GraphModel, Memories
from export.onnx import converted, run_of
from export.torch_export import exported
from model import (
    BLOCKS,
    Architecture,
    LanguageModel,
    ModelConfig,
    ModelOptions,
    build_model,
    load_model,
    save_model,
)
from tests.model.tiny import candidate, language_model, randomise, tokens
from tests.refusal import refused
from tools import export as command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
Run = Callable[[Tensor, Memories], tuple[Tensor, Memories]]

# Others are refused by name (tests/export/test_graph.py).
KINDS = sorted(kind for kind in BLOCKS if BLOCKS[kind].block in FORMS)
# Each a network of a third of the kinds, with the options and the softmax beside it.
NETWORKS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    str(number): ([candidate(kind) for kind in KINDS[number::3]], softmax)
    for number, softmax in enumerate(
        [
            {"cutoffs": (5, 11)},
            {"tied": False, "options": ModelOptions(norm="rms", norm_position="post")},
            {"options": ModelOptions(rezero=True, token_shift=True)},
        ]
    )
}
NETWORKS["windows"] = (
    [
        candidate("attention", window=4, memory=3, n_kv_heads=1),
        candidate("attention", window=9, clamp=4),
        candidate("dense", chunk=3, activation="swiglu"),
        candidate("attention", memory=0),
    ],
    {
        "cutoffs": (5, 11),
        "tied": False,
        "options": ModelOptions(norm="scale", d_embedding=4, token_shift=True),
    },
)

NETWORKS["turned"] = (
    [
        candidate("attention", positions="rope", qk_norm=True, n_kv_heads=1),
        candidate("attention", positions="rope", window=9, clamp=4),
        candidate("dense", activation="relu2"),
        candidate("all_attention", positions="rope"),
        candidate("adaptive_span", positions="none", qk_norm=True),
    ],
    {},
)


@dataclass
class Exported:
    """A model, and what runs its graph."""

    model: LanguageModel
    zeros: Callable[[int], Memories]
    by_torch: Run
    by_onnxruntime: Run
    path: Path


def export_of(name: str, folder: Path) -> Exported:
    """A network by its name, exported."""
    slots, options = NETWORKS[name]
    model = language_model([[slot] for slot in slots], **options).float()
    for parameter in model.parameters():
        # Without norms the numbers grow from slot to slot.
        parameter.data *= 0.6
    graph = GraphModel(copy.deepcopy(model))
    program, path = exported(graph), folder / "model.onnx"
    path.write_bytes(converted(graph, program).SerializeToString())
    onnx.checker.check_model(str(path), full_check=True)
    return Exported(model, graph.zeros, program.module(), run_of(path), path)


@torch.no_grad()
def difference(export: Exported, run: Run, batch: int, length: int) -> tuple[float, float]:
    """The largest over three segments, and as a part of the largest log-probability."""
    memories, state = export.zeros(batch), export.model.initial_state(batch, cached=True)
    found = []
    for seed in range(3):
        ids_BT = tokens(batch, length, seed=seed)
        log_prob_BTV, memories = run(ids_BT, memories)
        h_BTD, state, _ = export.model(ids_BT, state)
        wanted_BTV = export.model.log_prob(h_BTD)
        most = float((log_prob_BTV - wanted_BTV).abs().max())
        found.append((most, most / max(1.0, float(wanted_BTV.abs().max()))))
        assert torch.equal(memories["seen"], state.seen_B)
    return max(found)


@pytest.mark.parametrize("name", NETWORKS)
def test_both_graphs_compute_every_kind(name: str, tmp_path: Path) -> None:
    export = export_of(name, tmp_path)
    for batch in (1, 3):
        for length in (1, 17):
            case = (name, batch, length)
            assert difference(export, export.by_onnxruntime, batch, length)[0] < 1e-4, case
            assert difference(export, export.by_torch, batch, length)[1] < 1e-6, case
    refuses_an_id_that_the_vocabulary_lacks(export)
    if name == "windows":
        names_its_sizes_and_nothing_of_the_machine(export)


def names_its_sizes_and_nothing_of_the_machine(export: Exported) -> None:
    graph = onnx.load(str(export.path)).graph
    sizes = {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert sizes["ids"] == ["batch", "length"]
    assert sizes["log_probs"] == ["batch", "length", 23]
    assert sizes["state_000"] == sizes["next_state_000"] == ["batch", 1, 2, 3, 4]
    assert sizes["before_002"] == ["batch", 1, 8]
    # Attention without memory carries nothing.
    assert "state_003" not in sizes
    assert str(ROOT).encode() not in export.path.read_bytes()
    assert b".py" not in export.path.read_bytes()


def refuses_an_id_that_the_vocabulary_lacks(export: Exported) -> None:
    for wrong in (-1, 23):
        with pytest.raises(Exception, match="out of data bounds"):
            export.by_onnxruntime(torch.tensor([[0, wrong]]), export.zeros(1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of random weights."""
    tokenizer, path = Tokenizer(Bytes()), tmp_path_factory.mktemp("made") / "model"
    config = ModelConfig(n_blocks=3, d_model=48, n_heads=4, d_ffn=256, memory=16)
    by_label = {each.label: each for each in config.completed_candidates()}
    architecture = Architecture(
        name="made",
        d_model=48,
        blocks=tuple(by_label[label] for label in ("attention", "dense", "attention")),
        softmax={"cutoffs": (100,)},
        vocabulary_size=tokenizer.vocabulary_size,
        tokenizer={"digest": tokenizer.digest},
        provenance={"commit": "abc"},
    )
    model = build_model(architecture)
    randomise(model)
    for parameter in model.parameters():
        parameter.data *= 0.3
    save_model(path, model.float(), architecture)
    tokenizer.save(path)
    return path


def test_the_command_writes_a_folder_that_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that is said of one folder: it takes seconds to be made."""
    out = folder.with_name("graph")
    assert command.main([str(folder), "--to", "onnx", str(out)]) == 0
    assert re.search(r"model\.onnx: 0\.\d\d MB\n", capsys.readouterr().out)
    the_manifest_says_all(out)
    monkeypatch.chdir(out.parent)
    the_page_runs_as_it_stands(folder)
    assert capsys.readouterr().out


def the_manifest_says_all(written: Path) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    files = {"manifest.json", "model.onnx", "tokenizer.json"}
    assert {path.name for path in written.iterdir()} == files
    assert manifest["file"] == "model.onnx"
    assert manifest["checked"] < 1e-4
    assert manifest["provenance"]["commit"] == "abc"
    assert manifest["vocabulary"]["tokenizer_digest"] == Tokenizer(Bytes()).digest
    session = onnxruntime.InferenceSession(str(written / "model.onnx"))
    memories = manifest["memories"]
    assert [value.name for value in session.get_inputs()] == [
        "ids", *(memory["input"] for memory in memories)
    ]  # fmt: skip
    assert [value.name for value in session.get_outputs()] == [
        "log_probs", *(memory["output"] for memory in memories)
    ]  # fmt: skip
    assert [value.shape for value in session.get_inputs()[1:]] == [
        memory["shape"] for memory in memories
    ]


def the_page_runs_as_it_stands(folder: Path) -> None:
    """The code of docs/models.md continues a prompt as the model does."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (text for text in found if "onnxruntime" in text)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    model, ids = load_model(folder), list(names["prompt"])
    state = model.initial_state(1, cached=True)
    with torch.no_grad():
        read = torch.tensor([ids])
        for _ in range(len(names["made"])):
            h_BTD, state, _ = model(read, state)
            ids.append(int(model.log_prob(h_BTD)[0, -1].argmax()))
            read = torch.tensor([[ids[-1]]])
    assert names["made"] == ids[len(names["prompt"]) :]


def test_torch_export_writes_no_pickle(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "graph"
    assert command.main([str(folder), "--to", "torch", str(out)]) == 0
    with zipfile.ZipFile(out / "model.pt2") as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert b"data.pkl" not in content, name
            assert not content.startswith((b"\x80\x02", b"PK")), name
            assert str(ROOT).encode() not in content, name
    program = torch.export.load(str(out / "model.pt2")).module()
    manifest = json.loads((out / "manifest.json").read_text())
    memories = {
        memory["input"]: torch.from_numpy(np.zeros([3, *memory["shape"][1:]], memory["dtype"]))
        for memory in manifest["memories"]
    }
    model, ids_BT = load_model(folder), tokens(3, 5)
    log_prob_BTV, _ = program(ids_BT, memories)
    wanted_BTV = model.log_prob(model(ids_BT, model.initial_state(3))[0])
    torch.testing.assert_close(log_prob_BTV, wanted_BTV, rtol=0, atol=2e-6)


def test_a_graph_that_is_not_the_model_gets_no_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made = exporter.graph_of

    def another(source: Any) -> GraphModel:
        graph = made(source)
        graph.model.softmax.head.data[7] += 0.01
        return graph

    monkeypatch.setattr(exporter, "graph_of", another)
    said = refused(command.main, capsys, folder, "--to", "onnx", tmp_path / "out")
    assert "the exported graph differs from the model by" in said
    assert list(tmp_path.iterdir()) == []
