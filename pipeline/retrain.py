"""Phase 2 put together: the derived model from scratch, tested once."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from data import load_tokenizer
from model import Architecture, LanguageModel, build_model, load_model, save_model
from pipeline import cli
from pipeline.build import architecture_hash, check_tokenizer, network_hash, retrain_stages
from pipeline.context import Workbench, tensorboard_writer
from pipeline.costs import costs
from pipeline.resources import busy_lines, check_architecture_size, memory_notes, retrain_memory
from pipeline.results import read_result
from pipeline.summary import (
    fine_tune_lines,
    optimiser_line,
    parameter_count,
    softmax_line,
    text_summary,
    tying_lines,
)
from training.console import announce, bits
from training.evaluation import Evaluation
from training.loop import TrainState
from training.optim import Stages, build_optimiser
from training.run_dir import FolderLock
from training.step import WeightStep
from training.trainer import Phase
from utils.cores import core_numbers, read_cpu
from utils.files import make_durable, named, words_of, write_whole

MODEL = ("architecture.json", "model.safetensors", "tokenizer.json")


def retrain_phase(bench: Workbench, architecture: Architecture) -> Phase:
    """Phase 2: the derived model from scratch."""
    experiment, began = bench.experiment, read_cpu(core_numbers())
    check_tokenizer(bench, architecture)
    check_architecture_size(bench, architecture)
    torch.manual_seed(experiment.run.seed)
    model = build_model(architecture, dropout=experiment.model.dropouts()).to(bench.device)
    model.train()
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, experiment.retrain.optimiser)},
        streams={"weights": model.initial_state(bench.own_streams)},
        loss_sum=torch.zeros((), dtype=torch.float64, device=bench.device),
    )
    bench.ranks.seed(experiment.run.seed)
    folder = retrain_folder(bench, architecture.name)
    stages = retrain_stages(bench)
    valid, batches = bench.streams("valid"), bench.training_batches()
    step = WeightStep(bench.forward, experiment.retrain.optimiser, stages.rate)
    memory = memory_notes(bench, retrain_memory(step, state, batches.batch(0)), folder)
    return Phase(
        title=f"retrain {architecture.name}",
        folder=folder,
        identity={
            "precision": experiment.run.precision,
            "data": bench.data_identity(),
            "dropout": asdict(experiment.model.dropouts()),
            "retrain": experiment.retrain.model_dump(mode="json"),
            "architecture": architecture_hash(architecture),
            **bench.inputs(),
        },
        files={**bench.files(), "architecture.json": architecture.to_json()},
        summary="\n".join(
            [
                _retrain_summary(bench, architecture, model, stages),
                *memory.lines,
                *busy_lines(bench, began),
            ]
        ),
        steps=stages.steps,
        state=state,
        batches=batches,
        step=step,
        nets={"model": lambda state: bench.validate(state.model, valid)},
        writer=tensorboard_writer(bench, folder),
        ranks=bench.ranks,
        refusal=memory.refusal,
    )


def open_retraining(bench: Workbench, architecture: Architecture) -> Phase:
    """Phase 2 with its folder taken.

    Raises:
        ValueError, OSError, Lost: as in Phase.open.
    """
    if bench.ranks.is_first:
        announce("building the model and forecasting its memory")
    phase = retrain_phase(bench, architecture)
    phase.open()
    return phase


def retrain_folder(bench: Workbench, name: str) -> Path:
    """Where phase 2 of one architecture and one seed writes."""
    return bench.run_dir / "retrain" / name / f"seed-{bench.experiment.run.seed}"


def _retrain_summary(
    bench: Workbench, architecture: Architecture, model: LanguageModel, stages: Stages
) -> str:
    flops = costs(bench, model).total
    return "\n".join(
        [
            text_summary(bench),
            softmax_line(bench, architecture.softmax),
            f"layout {architecture.letters()}: {parameter_count(model):,} parameters, "
            f"{flops / 1e6:.3f} MFLOP per token forward",
            *tying_lines(model),
            optimiser_line(bench.experiment.retrain.optimiser, stages.first),
            *fine_tune_lines(stages),
        ]
    )


def finish_retrain(bench: Workbench, phase: Phase, architecture: Architecture) -> Path:
    """Take the best step, test it once; write the model folder, then result.json.

    Raises:
        ValueError: the best checkpoint is damaged.
        OSError: a file cannot be written.
    """
    path, folder = phase.folder / "result.json", phase.folder / "model"
    if not path.exists() or (problem := _problem_of(folder)):
        if path.exists():
            print(f"{problem}; the model folder is made again from the best step")
        announce(f"testing the weights of step {phase.state.best.step}, the best on validation")
        phase.take_best()
        _save_model(bench, folder, phase.state.model, architecture)
        result = _result(bench, phase, architecture)
        write_whole(path, json.dumps(result, indent=1) + "\n")
    return path


def _problem_of(folder: Path) -> str | None:
    """What is wrong with a model folder, in one line."""
    if missing := [name for name in MODEL if not (folder / name).is_file()]:
        return f"{folder}: {', '.join(missing)} not found"
    try:
        load_model(folder)
        load_tokenizer(folder)
    except (ValueError, OSError) as error:
        return words_of(error)
    return None


def show_result(bench: Workbench, result: Path, *, chosen: bool) -> None:
    """Say what a retraining came to; carry the chosen model to RUN/model."""
    found = read_result(result)
    test = found["test"]
    words = f", {test['word_perplexity']:.2f} per word" if "word_perplexity" in test else ""
    print(
        f"\n{found['name']}, layout {found['layout']}, seed {found['seed']}: best at step "
        f"{found['best_step']} of {found['steps']}; test {test['nats_per_token']:.4f} nats/token, "
        f"perplexity {test['perplexity']:.2f}{words}{bits(test)}"
    )
    if chosen:
        lock = FolderLock(bench.run_dir, wait=True)
        try:
            print(_carry(bench, result))
        finally:
            lock.release()
        print(f"next: {cli.command('compare.py', bench.run_dir, *bench.settings)}")
    else:
        print(f"model: {result.parent / 'model'}")


def _carry(bench: Workbench, result: Path) -> str:
    """Copy the chosen model to RUN/model, unless another seed's stands there."""
    target = bench.run_dir / "model"
    mine, there = read_result(result), target / "result.json"
    if there.exists():
        theirs = read_result(there)
        if theirs["name"] == mine["name"] and theirs["seed"] != mine["seed"]:
            return (
                f"{target} stays that of seed {theirs['seed']}; this one: {result.parent / 'model'}"
            )
    with _folder_made_whole(target) as work:
        shutil.copytree(result.parent / "model", work)
        shutil.copy(result, work)
    return f"model: {target}"


def _result(bench: Workbench, phase: Phase, architecture: Architecture) -> dict[str, Any]:
    model, rows = phase.state.model, phase.metrics_file.rows()
    valid: Evaluation = bench.evaluate(model, bench.streams("valid"))
    test: Evaluation = bench.evaluate(model, bench.streams("test"))
    return {
        "name": architecture.name,
        "seed": bench.experiment.run.seed,
        "layout": architecture.letters(),
        "network": network_hash(architecture)[:16],
        "steps": phase.steps,
        "tokens": phase.state.tokens,
        "parameters": parameter_count(model),
        "flops_per_token": costs(bench, model).total,
        "best_step": phase.state.best.step,
        "validations": len({row["step"] for row in rows if row["kind"] == "valid"}),
        "evaluation": bench.cut(),
        "valid": valid.row(),
        "test": test.row(),
        "elapsed_s": round(phase.state.elapsed_s, 3),
    }


def _save_model(
    bench: Workbench, folder: Path, model: LanguageModel, architecture: Architecture
) -> None:
    with _folder_made_whole(folder) as work:
        save_model(work, model, architecture)
        bench.prepared.tokenizer.save(work)


@contextmanager
def _folder_made_whole(folder: Path) -> Iterator[Path]:
    """Where to write a folder that then takes this one's place, whole or not at all."""
    work = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with named(folder):
        try:
            yield work
            for path in work.iterdir():
                make_durable(path)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(work, folder)
            make_durable(folder.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
