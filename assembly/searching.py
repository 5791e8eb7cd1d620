"""Phase 1 put together: the SuperNet, alpha, how both are trained, what is shown at the end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

import cli
import command_line
from assembly.costs import layout_costs
from assembly.forecasting import memory_lines, search_memory
from assembly.lengths import DEFAULT_SHARE, search_steps, search_text
from assembly.models import build_supernet
from assembly.size import check_supernet_size
from assembly.summary import (
    optimiser_line,
    parameter_count,
    softmax_line,
    text_summary,
    tying_lines,
)
from assembly.workbench import Workbench, tensorboard_writer
from model import LanguageModel
from nas.config import SearchConfig
from nas.estimators import one_hot_net, soft_net
from nas.plan import SearchPlan
from nas.search_step import SearchStep, build_alpha, build_alpha_optimiser
from nas.trajectory import Trajectory, entropy_share, margins, softmax, write_pi_csv
from training.optimisers import build_optimiser
from training.phase import Phase
from training.schedules import rate_of
from training.state import TrainState
from training.step import WeightStep


def search_phase(bench: Workbench) -> Phase:
    """Phase 1: the SuperNet, alpha, and how both are trained."""
    experiment = bench.experiment
    check_supernet_size(bench)
    model = build_supernet(bench)
    plan = _plan(bench, model)
    labels = [candidate.label for candidate in experiment.model.candidates]
    alpha_LC = build_alpha(experiment.model.slots, len(labels))
    streams = {"weights": model.initial_state(bench.own_streams)}
    text = search_text(bench)
    if text.alpha is not None:
        streams["alpha"] = model.initial_state(bench.own_streams)
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
    bench.ranks.seed(experiment.run.seed)
    weight_step = WeightStep(
        bench.forward,
        experiment.search.optimiser,
        rate_of(experiment.search.optimiser, plan.steps),
    )
    step = SearchStep(plan, weight_step, experiment.run.seed, text.alpha)
    memory = search_memory(step, state, text.weights.batch(0))
    folder = bench.run_dir / "search" / f"seed-{experiment.run.seed}"
    trajectory = Trajectory(labels, plan)
    valid = bench.streams("valid")
    return Phase(
        title="search",
        folder=folder,
        identity=_search_identity(bench),
        files=bench.files(),
        summary="\n".join(
            [_search_summary(bench, model, plan), *memory_lines(memory, bench.forward)]
        ),
        steps=plan.steps,
        state=state,
        batches=text.weights,
        step=step,
        nets={
            "soft": lambda state: bench.validate(
                state.model, valid, soft_net(state.parameters["alpha"])
            ),
            "onehot": lambda state: bench.validate(
                state.model, valid, one_hot_net(state.parameters["alpha"])
            ),
        },
        columns=_SearchColumns(plan),
        recorders=[trajectory],
        resumed=lambda state: trajectory.resume(folder / "pi.npz", state),
        before_checkpoint=lambda: trajectory.save(folder / "pi.npz"),
        writer=tensorboard_writer(bench, folder),
        ranks=bench.ranks,
    )


def _plan(bench: Workbench, model: LanguageModel) -> SearchPlan:
    rows = [memory.shape[1] for memory in model.initial_state(1).memory if memory is not None]
    experiment = bench.experiment
    return SearchPlan(
        experiment.search,
        steps=search_steps(bench),
        memory=max(rows, default=0),
        segment=experiment.data.segment,
    )


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
    table = layout_costs(bench)
    config = experiment.search
    candidates = ", ".join(f"{label} {flops / 1e6:.3f}" for label, flops in table.by_label.items())
    return "\n".join(
        [
            text_summary(bench),
            softmax_line(bench, bench.softmax),
            f"SuperNet: {experiment.model.slots} slots x {len(table.by_label)} candidates, "
            f"d_model {experiment.model.d_model}, {parameter_count(model):,} parameters",
            *tying_lines(model),
            f"MFLOP per token and slot: {candidates}; embedding and softmax {table.rest / 1e6:.3f}",
            optimiser_line(config.optimiser, plan.steps),
            f"estimator {config.estimator}, draws held {plan.hold} step{'s' * (plan.hold > 1)}, "
            f"tau {config.tau.schedule} {plan.tau(0):.3g} -> {plan.tau(plan.steps - 1):.3g}",
            f"alpha: {config.alpha.data} data{_split_text(bench)}, {_kind_text(config)}"
            f"first moves at step {plan.alpha_start}, peak learning rate {plan.alpha_peak_lr:.4f}",
        ]
    )


def _kind_text(config: SearchConfig) -> str:
    every = config.alpha.every
    said = f"estimator {config.alpha_estimator}, " if config.alpha.estimator else ""
    return said + (f"moves every {every} steps, " if every > 1 else "")


def _split_text(bench: Workbench) -> str:
    config = bench.experiment.search.alpha
    if config.data != "split":
        return ""
    return f" ({config.share or DEFAULT_SHARE:.0%} of the training tokens are alpha's alone)"


def finish_search(bench: Workbench, phase: Phase) -> None:
    """Figures and the report; says what pi came to."""
    from report.page import write_report
    from report.trajectory import write_search_figures

    write_pi_csv(phase.folder / "pi.npz", phase.folder / "pi.csv")
    figures = bench.experiment.run.figures
    if figures:
        write_search_figures(phase.folder)
    pi_LC = softmax(phase.state.parameters["alpha"].detach().numpy())
    labels = [candidate.label for candidate in bench.experiment.model.candidates]
    header = "  ".join(f"{label:>10}" for label in labels)
    print(f"\npi after the last step\n{'slot':>4}  {header}  margin")
    for slot, (pi_C, margin) in enumerate(zip(pi_LC, margins(pi_LC), strict=True)):
        row = "  ".join(f"{value:>10.3f}" for value in pi_C)
        print(f"{slot:>4}  {row}  {margin:.3f}")
    print(f"mean entropy of pi: {entropy_share(pi_LC):.3f} of uniform")
    print(
        "One search says little about the next: compare it with other seeds "
        "(--set run.seed=1) and with a placebo (docs/experiments.md)."
    )
    seed = bench.experiment.run.seed
    others = [] if cli.is_lowest_seed(phase.folder) else [f"run.seed={seed}"]
    if figures:
        print(f"report: {write_report(bench.run_dir)}")
    print(f"next: {command_line.command('derive.py', bench.run_dir, *others)}")
