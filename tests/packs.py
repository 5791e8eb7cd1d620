"""A run folder made up by hand, with all that a pack and a replay look at."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from model import Architecture, SoftmaxConfig
from pipeline.experiment import dump_experiment, load_experiment
from tests.tiny import candidates

FACTS = {"torch": "2.0", "processor": "p", "device": "cpu", "threads": 2, "commit": "c0ffee"}
SCORES = {"nats_per_token": 1.5, "perplexity": 4.5, "bits_per_byte": 1.0, "tokens": 9, "bytes": 9}
CHOSEN, RIVAL = "argmax-0-1", "interleaved"


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def architecture(name: str) -> Architecture:
    return Architecture(
        name=name, d_model=8, slots=candidates("attention", "dense"), softmax=SoftmaxConfig(),
        vocabulary_size=23, tokenizer={"digest": "0" * 64}, provenance={"commit": "c0ffee"},
    )  # fmt: skip


def write_phase(folder: Path, experiment_file: Path, seed: int, rows: Sequence[Any]) -> None:
    """What a search and a training have alike."""
    write_json(folder / "environment.json", FACTS)
    write_json(folder / "identity.json", {"corpus": "1" * 64, "tokenizer": "2" * 64})
    experiment = load_experiment(experiment_file, [f"run.seed={seed}"])
    (folder / "experiment.yaml").write_text(dump_experiment(experiment))
    lines = [json.dumps({**row, "elapsed_s": 1.5}) + "\n" for row in rows]
    (folder / "metrics.jsonl").write_text("".join(lines))
    weights = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(2)}
    save_file(weights, folder / "last.safetensors")


def write_search(folder: Path, experiment_file: Path, seed: int) -> None:
    rows = [
        {"kind": "train", "step": 5, "loss_nats": 2.5, "lr": 0.1},
        {"kind": "valid", "step": 5, "net": "soft", "nats_per_token": 2.25},
    ]
    write_phase(folder, experiment_file, seed, rows)
    pi = np.full((4, 3, 2), 0.5, dtype=np.float32)
    labels = np.array(["attention", "dense"])
    arrays = {"pi": pi, "alpha": pi * 0, "step": np.arange(1, 5), "labels": labels}
    np.savez_compressed(folder / "pi.npz", **arrays)
    (folder / "pi.csv").write_text("step,slot,pi\n1,0,0.5\n1,1,0.5\n")


def write_training(run: Path, experiment_file: Path, name: str, seed: int) -> None:
    folder = run / "retrain" / name / f"seed-{seed}"
    row = {"kind": "train", "step": 5, "loss_nats": 2.0}
    write_phase(folder, experiment_file, seed, [row])
    (folder / "architecture.json").write_text(architecture(name).to_json())
    write_json(folder / "result.json", {
        "name": name, "seed": seed, "layout": "a d", "steps": 5, "best_step": 5, "parameters": 1,
        "flops_per_token": 1.0, "validations": 1, "valid": SCORES, "test": SCORES,
        "elapsed_s": 3.0,
    })  # fmt: skip
    (folder / "model").mkdir()
    save_file({"a": torch.zeros(2)}, folder / "model" / "model.safetensors")


def made_up_run(run: Path, experiment_file: Path) -> Path:
    """Searches of two seeds, a layout derived from both, two more trainings, and a comparison."""
    for seed in (0, 1):
        write_search(run / "search" / f"seed-{seed}", experiment_file, seed)
    entry = {"searches": [0, 1], "caveats": []}
    write_json(run / "search" / "caveats.json", {"together": [entry]})
    for name in (CHOSEN, RIVAL):
        folder = run / "architectures"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(architecture(name).to_json())
        write_training(run, experiment_file, name, 0)
    write_training(run, experiment_file, "layout-aa", 3)
    (run / "architecture.json").write_text(architecture(CHOSEN).to_json())
    text = dump_experiment(load_experiment(experiment_file, ["derive.searches=[0, 1]"]))
    (run / "architectures" / f"{CHOSEN}.yaml").write_text(text)
    (run / "comparison.yaml").write_text(dump_experiment(load_experiment(experiment_file)))
    rows = [
        {"name": name, "nats_per_token": 1.5, "latency_ms": 3.0, "equal": equal}
        for name, equal in ((CHOSEN, "FLOPs latency"), (RIVAL, ""))
    ]
    results = {name: [{"seed": 0, "elapsed_s": 2.0}] for name in (CHOSEN, RIVAL)}
    remarks = ["not trained under equal conditions: program c0ffee (x), 0c0ffee (the others)"]
    content = {"verdict": "none", "remarks": remarks, "rows": rows, "results": results}
    content["latency_interval_ms"] = {CHOSEN: [3.0, 3.5]}
    write_json(run / "comparison.json", content)
    table = f"name,nats_per_token,latency_ms,equal\n{CHOSEN},1.5,3.0,latency\n{RIVAL},1.5,,\n"
    (run / "comparison.csv").write_text(table)
    result = (run / "retrain" / CHOSEN / "seed-0/result.json").read_text()
    write_json(run / "model" / "result.json", json.loads(result))
    (run / "report.html").write_text("drawn")
    (run / "lock").write_text("")
    (run / "search/seed-0/tensorboard").mkdir()
    (run / "search/seed-0/tensorboard/events").write_text("x")
    return run


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
