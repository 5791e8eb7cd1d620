"""Phase 2 put together: the derived model from scratch, tested once."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from math import exp
from pathlib import Path
from typing import Any

import torch

from model import Architecture, build_model, load_architecture, save_model
from model.distillation import Teacher
from model.layout import legend
from model.saving import Given, load_given, started
from nas.derivation import named_layout
from pipeline.architectures import (
    architecture_hash,
    blind_caveats,
    check_tokenizer,
    chosen_by_trainings,
    network_hash,
    write_architecture,
)
from pipeline.derive import derive
from pipeline.experiment import idle_clusters
from pipeline.jobs import Countdown, Job, run_counted
from pipeline.plan import RunPlan
from pipeline.run_files import MODEL_FILES, chosen_architecture, remove_checkpoints
from pipeline.summary import (
    model_lines,
    parameter_count,
    passes_line,
    settings_line,
    softmax_line,
    text_summary,
)
from training.console import bits
from training.optim import build_optimiser, warmup_steps
from training.run_dir import claim, is_claimed, locked
from training.state import TrainState
from training.step import LayerDropoutStep, WeightStep
from training.trackers import Opener
from training.trainer import Trainer
from utils.files import folder_made_whole, read_object, write_whole
from utils.screen import announce
from utils.text import given_words


def find_architecture(plan: RunPlan, file: Path | None, layout: str | None) -> Architecture:
    """What a retraining trains: a JSON, a layout in letters or by rule, else the chosen one.

    The first process finds it and tells the others.
    """
    if not plan.ranks.is_first:
        return Architecture.from_json(plan.ranks.broadcast_str(None), "the first process")
    if layout is not None:
        architecture = derive(plan, **named_layout(layout))
        given_models(plan, architecture)
        architecture = write_architecture(architecture, plan.experiment, plan.run_dir)
    else:
        path = file or plan.run_dir / "architecture.json"
        architecture = load_architecture(path) if file else chosen_architecture(plan.run_dir)
        for problem in idle_clusters("blocks", architecture.blocks, plan.experiment.data.segment):
            raise ValueError(f"{path}: {problem}")
        given_models(plan, architecture)
    plan.ranks.broadcast_str(architecture.to_json())
    return architecture


def given_models(plan: RunPlan, architecture: Architecture) -> dict[str, Given]:
    """The trained models that `retrain` names, by key; ValueError: one cannot serve here."""
    written = [plan.run_dir / "model", plan.retrain_folder(architecture.name) / "model"]
    return load_given(plan.experiment.retrain.models(), architecture, written)


def retrain_identity(plan: RunPlan, architecture: Architecture) -> dict[str, Any]:
    """Whose folder a retraining's is; all seeds have the same.

    How often it is validated belongs to it: the best step is the best of so many.
    """
    return plan.identity(
        validate_every=plan.experiment.run.validate_every,
        dropout=asdict(plan.experiment.model.dropouts()),
        retrain=plan.experiment.retrain.identity(),
        architecture=architecture_hash(architecture),
    )


def claim_retraining(plan: RunPlan, architecture: Architecture) -> None:
    """Take the folder of a retraining to come for this command, or see that it is its own."""
    folder, identity = plan.retrain_folder(architecture.name), retrain_identity(plan, architecture)
    if folder.exists():
        is_claimed(folder, identity)
    else:
        given_models(plan, architecture)
        claim(folder, identity, _files(plan, architecture))


def _files(plan: RunPlan, architecture: Architecture) -> dict[str, str]:
    return {**plan.files(), "architecture.json": architecture.to_json()}


def retrain_trainer(plan: RunPlan, architecture: Architecture) -> Trainer:
    """Phase 2: the derived model from scratch, or from the weights that it is given."""
    check_tokenizer(plan.prepared.tokenizer, architecture)
    given = given_models(plan, architecture)
    torch.manual_seed(plan.seed)
    model = build_model(architecture, dropout=plan.experiment.model.dropouts())
    if "start" in given:
        slots = [[block] for block in architecture.blocks]
        model.load_state_dict(started(model, slots, given["start"]))
    model.to(plan.device).train()
    stages = plan.stages
    config = stages.config
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, config.optimiser)},
        streams={"weights": model.initial_state(plan.ranks.count(plan.experiment.data.batch))},
        loss_sum=torch.zeros((), dtype=torch.float64, device=plan.device),
    )
    teacher, facts = _taught(plan, state, given)
    plan.ranks.seed(plan.seed)
    folder, identity = plan.retrain_folder(architecture.name), retrain_identity(plan, architecture)
    valid, batches = plan.streams("valid"), plan.training_batches()
    whole = WeightStep(plan.forward, config.optimiser, stages.rate, teacher)
    rate = config.layer_dropout
    step = LayerDropoutStep(whole, rate, plan.seed) if rate else whole
    summary = [
        text_summary(plan),
        softmax_line(plan, architecture.softmax),
        f"layout {architecture.letters()} ({legend(architecture.blocks)}): "
        f"{parameter_count(model):,} parameters, {plan.flops_per_token(model):,.0f} FLOPs/token",
        *model_lines(model, config.layer_dropout),
        *blind_caveats(architecture.blocks, model.options),
        *([_ANEW] if chosen_by_trainings(architecture) else []),
        *given_words(facts),
        passes_line(stages.steps, batches),
        settings_line("retrain", config),
        f"  {warmup_steps(config.optimiser, stages.first)} steps of warm-up, "
        f"{stages.fine_tune} of fine-tuning at the end",
    ]
    return Trainer(
        title=f"retrain {architecture.name}",
        folder=folder,
        identity=identity,
        files=_files(plan, architecture),
        summary="\n".join(summary),
        steps=stages.steps,
        state=state,
        batches=batches,
        step=step,
        nets={"model": lambda state: plan.validate(valid, state.model)},
        trackers=plan.trackers(folder, identity),
        ranks=plan.ranks,
        facts=facts,
    )


def _taught(
    plan: RunPlan, state: TrainState, given: Mapping[str, Given]
) -> tuple[Teacher | None, dict[str, dict[str, Any]]]:
    """The teacher, whose memories join the state, and what is recorded of given models."""
    facts = {key: one.facts for key, one in given.items()}
    if (taught := plan.experiment.retrain.taught) is None:
        return None, facts
    teacher = Teacher(given["teacher"].model.to(plan.device), **dict(taught))
    state.streams["teacher"] = teacher.initial_state(len(state.streams["weights"].seen_B))
    state.kl_sum = torch.zeros_like(state.loss_sum)
    mass = plan.cluster_mass(teacher.model.softmax.bounds[:-1])
    flops = teacher.flops_per_token(plan.experiment.data.segment, mass)
    facts["teacher"] |= {**dict(taught), "flops_per_token": flops}
    return teacher, facts


Retraining = tuple[RunPlan, Architecture]
_ANEW = "trained again from scratch: the trainings that chose this layout flatter it"


def retrain_all(
    trainings: Sequence[Retraining], workers: int = 1, trackers: Sequence[Opener] = ()
) -> list[Path]:
    """Train architectures, each with its plan's seed, and test them; the paths of the results.

    What has a result is done, and is not trained again. Of several `workers` so many train at a
    time, each in a process with its share of the cores. `trackers` hear of those of this process.

    Raises:
        ValueError: a folder is another experiment's, or a training failed.
        Stopped: a signal came; everything is saved.
    """
    trainings[0][0].experiment.check_seeds({plan.seed for plan, _ in trainings})
    waiting = _waiting(trainings)
    if len(waiting) < len(trainings) > 1:
        announce(f"already trained: {len(trainings) - len(waiting)} of {len(trainings)}")
    if not waiting:
        trainings[0][0].ranks.wait()
    if workers > 1 and waiting:
        run_counted([_job(*training) for training in waiting], workers)
        waiting = []
    countdown, shown = Countdown(len(waiting)), set[str]()
    for number, (plan, architecture) in enumerate(waiting, start=1):
        name = f"{architecture.name}, seed {plan.seed}"
        if len(trainings) > 1 and plan.ranks.is_first:
            announce(f"training {number} of {len(waiting)}: {name}")
        with closing(retrain_trainer(plan, architecture)) as trainer:
            trainer.trackers = [*trainer.trackers, *trackers]
            trainer.open()
            trainer.run(plan.experiment.run, shown)
            shown |= set(trainer.summary.splitlines())
            if number == len(waiting):
                plan.ranks.wait()
            if plan.ranks.is_first:
                finish_retrain(plan, trainer, architecture)
        if len(trainings) > 1 and plan.ranks.is_first:
            announce(countdown.line(f"trained {name}"))
    return [_result_path(*training) for training in trainings]


def _waiting(trainings: Sequence[Retraining]) -> list[Retraining]:
    """Those without a result, as the first process sees it."""
    ranks, done = trainings[0][0].ranks, list[bool]()
    if ranks.is_first:
        for plan, architecture in trainings:
            path = _result_path(plan, architecture)
            is_claimed(path.parent, retrain_identity(plan, architecture))
            done.append(path.exists())
            if done[-1]:
                # Left by a kill between the result and their removal.
                remove_checkpoints(path.parent)
    done = ranks.all_say(done)[0]
    return [one for one, is_done in zip(trainings, done, strict=True) if not is_done]


def _job(plan: RunPlan, architecture: Architecture) -> Job:
    log = plan.run_dir / "jobs" / architecture.name / f"seed-{plan.seed}"
    file = log / "architecture.json"
    log.mkdir(parents=True, exist_ok=True)
    write_whole(file, architecture.to_json())
    arguments = ("--run", str(plan.run_dir), "--architecture", str(file))
    name = f"{architecture.name}, seed {plan.seed}"
    return Job(name, plan.experiment, ("retrain",), log, arguments)


def _result_path(plan: RunPlan, architecture: Architecture) -> Path:
    return plan.retrain_folder(architecture.name) / "result.json"


def finish_retrain(plan: RunPlan, trainer: Trainer, architecture: Architecture) -> None:
    """Take the best step, test it once; write the model, then result.json; drop checkpoints."""
    announce(f"testing the weights of step {trainer.state.best.step}, the best in validation")
    trainer.take_best()
    with folder_made_whole(trainer.folder / "model", MODEL_FILES) as work:
        save_model(work, trainer.state.model, architecture)
        plan.prepared.tokenizer.save(work)
    result = _result(plan, trainer, architecture)
    write_whole(trainer.folder / "result.json", json.dumps(result, indent=1) + "\n")
    remove_checkpoints(trainer.folder)


def _result(plan: RunPlan, trainer: Trainer, architecture: Architecture) -> dict[str, Any]:
    state = trainer.state
    described = [
        row["blocks"]
        for row in trainer.metrics_file.rows()
        if row["kind"] == "blocks" and row["step"] == state.best.step
    ]
    read = {"teacher": {"tokens": state.tokens}}
    return {
        "name": architecture.name,
        "seed": plan.seed,
        "layout": architecture.letters(),
        "network": network_hash(architecture)[:16],
        "steps": trainer.steps,
        "tokens": state.tokens,
        "parameters": parameter_count(state.model),
        "flops_per_token": plan.flops_per_token(state.model),
        "best_step": state.best.step,
        "validations": state.validations,
        "evaluation": plan.cut(),
        "valid": plan.evaluate(state.model, plan.streams("valid")).row(),
        "test": plan.evaluate(state.model, plan.streams("test")).row(),
        # Of the best step; only there do its blocks know what they did in it.
        **({"blocks": described[-1]} if described else {}),
        **{key: {**one, **read.get(key, {})} for key, one in trainer.facts.items()},
        "elapsed_s": round(state.elapsed_s, 3),
    }


def show_result(path: Path) -> None:
    """Print what a result.json says."""
    result = read_object(path)
    test = result["test"]
    per_word = f", {test['word_perplexity']:.2f} per word" if "word_perplexity" in test else ""
    print(
        f"\ntest perplexity {test['perplexity']:.2f}{per_word} ({test['nats_per_token']:.4f} "
        f"nats/token{bits(test)}), weights of step {result['best_step']} of {result['steps']}: "
        f"layout {result['layout']}, seed {result['seed']} ({result['name']})"
    )


def show_mean(paths: Sequence[Path]) -> None:
    """Print the mean over the seeds of one layout, with its 95% interval."""
    from nas.statistics.intervals import paired_interval

    mean, half = paired_interval([read_object(path)["test"]["nats_per_token"] for path in paths])
    of = f"{mean:.4f} +- {half:.4f} nats/token, 95%"
    print(f"\nmean of {len(paths)} seeds: test perplexity {exp(mean):.2f} ({of})")


def copy_chosen(path: Path, run_dir: Path) -> str:
    """Copy the model beside a result.json to RUN/model, unless another seed's stands there.

    Returns a line that says where the model is. ValueError: RUN/model is no model folder of ours.
    """
    target, model, result = run_dir / "model", path.parent / "model", read_object(path)
    with locked(run_dir, wait=True):
        if (target / "result.json").exists():
            before = read_object(target / "result.json")
            if before["name"] == result["name"] and before["seed"] != result["seed"]:
                return f"model: {model} ({target} stays that of seed {before['seed']})"
        with folder_made_whole(target, MODEL_FILES) as work:
            shutil.copytree(model, work, dirs_exist_ok=True)
            shutil.copy(path, work)
        return f"model: {target}"
