"""The two phases put together from an experiment's parts; imported by scripts and tools only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assembly import workbench
from assembly.workbench import Workbench
from model import Architecture, LanguageModel, build_model, save_model
from nas.estimators import one_hot_net, soft_net
from nas.plan import SearchPlan
from nas.search_step import SearchStep, build_alpha, build_alpha_optimiser
from nas.trajectory import Trajectory, entropy_share, margins, softmax, write_pi_csv
from training.checkpoint import read_tensors
from training.evaluation import Evaluation
from training.files import write_whole
from training.optimisers import build_optimiser
from training.phase import BEST, Phase
from training.state import TrainState
from training.step import WeightStep

DEFAULT_SHARE = 0.2


def search_phase(bench: Workbench) -> Phase:
    """Phase 1: the SuperNet, alpha, and how both are trained."""
    experiment = bench.experiment
    model = workbench.build_supernet(bench)
    plan = _plan(bench, model)
    labels = [candidate.label for candidate in experiment.model.candidates]
    alpha_LC = build_alpha(experiment.model.slots, len(labels))
    streams = {"weights": model.initial_state(experiment.data.batch)}
    tokens, alpha_batches = bench.prepared.tokens["train"], None
    if experiment.search.alpha.data == "split":
        share = experiment.search.alpha.share or DEFAULT_SHARE
        cut = round(len(tokens) * (1 - share))
        tokens, alpha_batches = tokens[:cut], bench.training_batches(tokens[cut:])
        streams["alpha"] = model.initial_state(experiment.data.batch)
    state = TrainState(
        model=model,
        optimisers={
            "weights": build_optimiser(model, experiment.search.optimiser),
            "alpha": build_alpha_optimiser(alpha_LC, plan),
        },
        streams=streams,
        parameters={"alpha": alpha_LC},
        loss_sum=torch.zeros((), dtype=torch.float64, device=bench.device),
    )
    folder = bench.run_dir / "search" / f"seed-{experiment.run.seed}"
    trajectory = Trajectory(labels, plan)
    weight_step = WeightStep(bench.forward, experiment.search.optimiser, experiment.search.steps)
    valid = bench.streams("valid")
    return Phase(
        title="search",
        folder=folder,
        identity=_search_identity(bench),
        files=bench.files(),
        summary=_search_summary(bench, model, plan),
        steps=experiment.search.steps,
        state=state,
        batches=bench.training_batches(tokens),
        step=SearchStep(plan, weight_step, experiment.run.seed, alpha_batches),
        nets={
            "soft": lambda state: bench.evaluate(
                state.model, valid, soft_net(state.parameters["alpha"])
            ),
            "onehot": lambda state: bench.evaluate(
                state.model, valid, one_hot_net(state.parameters["alpha"])
            ),
        },
        columns=_SearchColumns(plan),
        recorders=[trajectory],
        resumed=lambda step: trajectory.resume(folder / "pi.npz", step),
        before_checkpoint=lambda: trajectory.save(folder / "pi.npz"),
        writer=workbench.tensorboard_writer(bench, folder),
    )


def _plan(bench: Workbench, model: LanguageModel) -> SearchPlan:
    rows = [memory.shape[1] for memory in model.initial_state(1).memory if memory is not None]
    experiment = bench.experiment
    return SearchPlan(experiment.search, max(rows, default=0), experiment.data.segment)


def _search_identity(bench: Workbench) -> dict[str, Any]:
    experiment = bench.experiment
    return {
        "precision": experiment.run.precision,
        "data": bench.data_identity(),
        "model": experiment.model.model_dump(mode="json"),
        "search": experiment.search.model_dump(mode="json"),
        **bench.inputs(),
    }


@dataclass(frozen=True)
class _SearchColumns:
    """tau of the step just done, entropy of pi as a part of uniform, smallest margin."""

    plan: SearchPlan

    def __call__(self, state: TrainState) -> Mapping[str, float]:
        pi_LC = softmax(state.parameters["alpha"].detach().numpy())
        return {
            "tau": self.plan.tau(state.step - 1),
            "entropy": entropy_share(pi_LC),
            "least_margin": float(margins(pi_LC).min()),
        }


def _search_summary(bench: Workbench, model: LanguageModel, plan: SearchPlan) -> str:
    experiment = bench.experiment
    table = workbench.layout_costs(bench)
    config = experiment.search
    candidates = ", ".join(f"{label} {flops / 1e6:.3f}" for label, flops in table.by_label.items())
    return "\n".join(
        [
            _text_summary(bench),
            f"SuperNet: {experiment.model.slots} slots x {len(table.by_label)} candidates, "
            f"d_model {experiment.model.d_model}, {_count(model):,} parameters",
            f"MFLOP per token and slot: {candidates}; embedding and softmax {table.rest / 1e6:.3f}",
            f"estimator {config.estimator}, draws held {plan.hold} steps, "
            f"tau {config.tau.schedule} {plan.tau(0):.2f} -> {plan.tau(config.steps - 1):.2f}",
            f"alpha: {config.alpha.data} data, first moves at step {plan.alpha_start}, "
            f"peak learning rate {plan.alpha_peak_lr:.4f}",
        ]
    )


def _text_summary(bench: Workbench) -> str:
    data, prepared = bench.experiment.data, bench.prepared
    counts = ", ".join(f"{name} {len(ids):,}" for name, ids in prepared.tokens.items())
    dropped = bench.training_batches().dropped
    capped = ", ".join(
        f"{name} capped at {most:,} tokens"
        for name, most in (("validation", data.validation_tokens), ("test", data.test_tokens))
        if most is not None
    )
    return (
        f"text: {data.corpus}, tokens {counts}, vocabulary {prepared.tokenizer.vocabulary_size}"
        + (f"; {capped}" if capped else "")
        + f"\nstreams: {data.batch} x {data.segment} tokens a step, {dropped} training tokens "
        "left over"
    )


def _count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def finish_search(bench: Workbench, phase: Phase) -> None:
    """Figures and the report; says what pi came to."""
    from report.page import write_report
    from report.trajectory import write_search_figures

    write_pi_csv(phase.folder / "pi.npz", phase.folder / "pi.csv")
    write_search_figures(phase.folder)
    page = write_report(bench.run_dir)
    pi_LC = softmax(phase.state.parameters["alpha"].detach().numpy())
    labels = [candidate.label for candidate in bench.experiment.model.candidates]
    print(f"\n{'slot':>4}  " + "  ".join(f"{label:>10}" for label in labels) + "  margin")
    for slot, (pi_C, margin) in enumerate(zip(pi_LC, margins(pi_LC), strict=True)):
        row = "  ".join(f"{value:>10.3f}" for value in pi_C)
        print(f"{slot:>4}  {row}  {margin:.3f}")
    print(f"mean entropy of pi: {entropy_share(pi_LC):.3f} of uniform")
    print(f"report: {page}\nnext: python derive.py {bench.run_dir}")


def retrain_phase(bench: Workbench, architecture: Architecture) -> Phase:
    """Phase 2: the derived model from scratch."""
    experiment = bench.experiment
    workbench.check_vocabulary(bench, architecture)
    torch.manual_seed(experiment.run.seed)
    model = build_model(architecture, dropout=experiment.model.dropout).to(bench.device)
    model.train()
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, experiment.retrain.optimiser)},
        streams={"weights": model.initial_state(experiment.data.batch)},
        loss_sum=torch.zeros((), dtype=torch.float64, device=bench.device),
    )
    folder = retrain_folder(bench, architecture.name)
    valid = bench.streams("valid")
    return Phase(
        title=f"retrain {architecture.name}",
        folder=folder,
        identity={
            "precision": experiment.run.precision,
            "data": bench.data_identity(),
            "dropout": experiment.model.dropout,
            "retrain": experiment.retrain.model_dump(mode="json"),
            "architecture": workbench.architecture_hash(architecture),
            **bench.inputs(),
        },
        files={**bench.files(), "architecture.json": architecture.to_json()},
        summary=_retrain_summary(bench, architecture, model),
        steps=experiment.retrain.steps,
        state=state,
        batches=bench.training_batches(),
        step=WeightStep(bench.forward, experiment.retrain.optimiser, experiment.retrain.steps),
        nets={"model": lambda state: bench.evaluate(state.model, valid)},
        writer=workbench.tensorboard_writer(bench, folder),
    )


def retrain_folder(bench: Workbench, name: str) -> Path:
    """Where phase 2 of one architecture and one seed writes."""
    return bench.run_dir / "retrain" / name / f"seed-{bench.experiment.run.seed}"


def _retrain_summary(bench: Workbench, architecture: Architecture, model: LanguageModel) -> str:
    flops = workbench.costs(bench, model).total
    return "\n".join(
        [
            _text_summary(bench),
            f"layout {architecture.letters()}: {_count(model):,} parameters, "
            f"{flops / 1e6:.3f} MFLOP per token forward",
        ]
    )


def finish_retrain(
    bench: Workbench, phase: Phase, architecture: Architecture, *, chosen: bool
) -> dict[str, Any]:
    """Take the best checkpoint, test it once, write result.json and the model folder."""
    path = phase.folder / "result.json"
    if not path.exists():
        state = phase.state
        tensors, header = read_tensors(phase.folder / BEST)
        state.model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items()})
        _save_model(bench, phase.folder / "model", state.model, architecture)
        result = _result(bench, phase, architecture, best_step=header["step"])
        write_whole(path, json.dumps(result, indent=1) + "\n")
    if chosen:
        _copy_model(phase.folder / "model", bench.run_dir / "model")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _result(
    bench: Workbench, phase: Phase, architecture: Architecture, *, best_step: int
) -> dict[str, Any]:
    model = phase.state.model
    valid: Evaluation = bench.evaluate(model, bench.streams("valid"))
    test: Evaluation = bench.evaluate(model, bench.streams("test"))
    return {
        "name": architecture.name,
        "seed": bench.experiment.run.seed,
        "layout": architecture.letters(),
        "steps": phase.steps,
        "tokens": phase.state.tokens,
        "parameters": _count(model),
        "flops_per_token": workbench.costs(bench, model).total,
        "best_step": best_step,
        "valid": valid.row(),
        "test": test.row(),
        "elapsed_s": round(phase.state.elapsed_s, 3),
    }


def _save_model(
    bench: Workbench, folder: Path, model: LanguageModel, architecture: Architecture
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model, architecture)
    bench.prepared.tokenizer.save(folder)


def _copy_model(source: Path, target: Path) -> None:
    """Put the chosen model where it can be carried away; each file is whole or absent."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        write_whole(target / path.name, path.read_bytes())
