"""Phase 1 put together: the SuperNet, alpha, how both are trained, what is shown at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model import LanguageModel, Mix
from nas.config import DEFAULT_FLOOR, DEFAULT_SHARE, SearchConfig
from nas.search.estimators import gumbel_noise, one_hot_net, soft_net, spos
from nas.search.flops import search_flops
from nas.search.plan import SearchPlan, build_rho, tau_now
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from nas.search.trajectory import Trajectory
from pipeline.build import build_supernet, search_steps, search_text
from pipeline.context import Workbench, tensorboard_writer
from pipeline.costs import layout_costs
from pipeline.resources import busy_lines, check_supernet_size, memory_notes, search_memory
from pipeline.summary import (
    optimiser_line,
    parameter_count,
    softmax_line,
    text_summary,
    tying_lines,
)
from training.evaluation import Evaluation, joined
from training.loop import TrainState
from training.optim import build_optimiser, rate_of
from training.run_dir import is_claimed
from training.step import WeightStep
from training.trainer import Phase
from utils.cores import core_numbers, read_cpu
from utils.pi import entropy_share, margins, softmax

# The layouts that are validated where alpha does not move: the same in every search.
VALIDATED, _VALIDATED_SEED = 4, 0


def search_phase(bench: Workbench) -> Phase:
    """Phase 1: the SuperNet, alpha, and how both are trained."""
    experiment, began = bench.experiment, read_cpu(core_numbers())
    check_supernet_size(bench)
    model = build_supernet(bench)
    plan = _plan(bench, model)
    labels = [candidate.label for candidate in experiment.model.candidates]
    alpha_LC = build_alpha(experiment.model.slots, len(labels))
    streams = {"weights": model.initial_state(bench.own_streams)}
    text = search_text(bench)
    if text.alpha is not None:
        streams["alpha"] = model.initial_state(bench.own_streams)
    rho = build_rho(experiment.search.tau)
    state = TrainState(
        model=model,
        optimisers={
            "weights": build_optimiser(model, experiment.search.optimiser),
            "alpha": build_alpha_optimiser(alpha_LC, plan, rho.values()),
        },
        streams=streams,
        parameters={"alpha": alpha_LC, **rho},
        loss_sum=torch.zeros((), dtype=torch.float64, device=bench.device),
    )
    bench.ranks.seed(experiment.run.seed)
    weight_step = WeightStep(
        bench.forward,
        experiment.search.optimiser,
        rate_of(experiment.search.optimiser, plan.steps),
    )
    step = SearchStep(plan, weight_step, experiment.run.seed, text.alpha)
    folder = search_folder(bench, experiment.run.seed)
    memory = memory_notes(bench, search_memory(step, state, text.weights.batch(0)), folder)
    trajectory = Trajectory(labels, plan)
    return Phase(
        title="search",
        folder=folder,
        identity=search_identity(bench),
        files=bench.files(),
        summary="\n".join(
            [
                _search_summary(bench, model, plan),
                *memory.lines,
                *busy_lines(bench, began),
            ]
        ),
        steps=plan.steps,
        state=state,
        batches=text.weights,
        step=step,
        nets=_nets(bench),
        columns=_SearchColumns(plan, adds_nothing(bench)),
        recorders=[trajectory],
        resumed=lambda state: trajectory.resume(folder / "pi.npz", state),
        before_checkpoint=lambda: trajectory.save(folder / "pi.npz"),
        writer=tensorboard_writer(bench, folder),
        ranks=bench.ranks,
        work=_work(bench, plan),
        refusal=memory.refusal,
    )


def _work(bench: Workbench, plan: SearchPlan) -> list[float]:
    """FLOPs of each step for each token."""
    costs = layout_costs(bench)
    slots = bench.experiment.model.slots
    return search_flops(plan, list(costs.by_label.values()), costs.rest, slots)


def search_folder(bench: Workbench, seed: int) -> Path:
    """Where the search of a seed writes."""
    return bench.run_dir / "search" / f"seed-{seed}"


def searched_folder(bench: Workbench, seed: int) -> Path:
    """The folder of a search to read pi or the SuperNet from, once it is seen to be this search's.

    Raises:
        ValueError: its identity is that of another experiment or text, damaged, or not there.
    """
    folder = search_folder(bench, seed)
    try:
        claimed = is_claimed(folder, search_identity(bench))
    except ValueError as error:
        raise ValueError(f"{error}; in a new one search.py comes first") from None
    if not claimed and (folder / "pi.npz").exists():
        raise ValueError(
            f"{folder / 'identity.json'}: not found, so nothing says of which text pi is; start "
            f"search.py again with run.seed={seed}, which mends it or says what is wrong"
        )
    return folder


def _nets(bench: Workbench) -> dict[str, Callable[[TrainState], Evaluation]]:
    """What is validated: the soft and the one-hot net; where pi stays uniform, layouts drawn."""
    valid = bench.streams("valid")

    def under(mix: Callable[[Tensor], Mix]) -> Callable[[TrainState], Evaluation]:
        return lambda state: bench.validate(state.model, valid, mix(state.parameters["alpha"]))

    if bench.experiment.search.alpha_learns:
        return {"soft": under(soft_net), "onehot": under(one_hot_net)}

    def drawn(number: int, alpha_LC: Tensor) -> Mix:
        return spos(alpha_LC, gumbel_noise(_VALIDATED_SEED, number, *alpha_LC.shape), 1.0)

    layouts = [under(partial(drawn, number)) for number in range(VALIDATED)]
    return {"drawn": lambda state: joined([layout(state) for layout in layouts])}


def _plan(bench: Workbench, model: LanguageModel) -> SearchPlan:
    experiment = bench.experiment
    return SearchPlan(
        experiment.search,
        steps=search_steps(bench),
        memory=model.longest_memory,
        segment=experiment.data.segment,
    )


def search_identity(bench: Workbench) -> dict[str, Any]:
    """Whose folder a search's is; all seeds of an experiment have the same."""
    experiment = bench.experiment
    return {
        "precision": experiment.run.precision,
        "data": bench.data_identity(),
        "model": experiment.model.model_dump(mode="json"),
        "search": experiment.search.model_dump(mode="json"),
        **bench.inputs(),
    }


def adds_nothing(bench: Workbench) -> dict[str, bool]:
    """Which candidates cost nothing, because they add nothing."""
    costs = layout_costs(bench).by_label
    return {c.label: costs[c.label] == 0 for c in bench.experiment.model.candidates}


@dataclass(frozen=True)
class _SearchColumns:
    """What is watched of a search at each log line.

    tau of the step just done; of pi: entropy as a part of uniform, smallest margin, share of the
    candidates that add nothing; the norm of each kind of candidate's gradients in the step, after
    clipping, over all slots.

    Attributes:
        plan: schedules.
        adds_nothing: which candidates do, by label.
    """

    plan: SearchPlan
    adds_nothing: Mapping[str, bool]

    @torch.no_grad()
    def __call__(self, state: TrainState) -> Mapping[str, float]:
        pi_LC = softmax(state.parameters["alpha"].detach().numpy())
        nothing = list(self.adds_nothing.values())
        norms = {
            f"grad_norm_{label}": _gradient_norm(state.model, label)
            for label, idle in self.adds_nothing.items()
            if not idle
        }
        return {
            "tau": float(tau_now(self.plan, state, state.step - 1)),
            "entropy": entropy_share(pi_LC),
            "least_margin": float(margins(pi_LC).min()),
            "nothing_share": float(pi_LC.mean(0)[nothing].sum()),
            **norms,
        }


def _gradient_norm(model: LanguageModel, label: str) -> float:
    """The norm of the gradients that stand on all blocks of a candidate; 0 where none does."""
    gradients = [
        parameter.grad
        for slot in model.slots
        if label in slot.labels
        for parameter in slot.blocks[label].parameters()
        if parameter.grad is not None
    ]
    norms = torch._foreach_norm(gradients) if gradients else [torch.zeros(())]
    return float(torch.stack([norm.float() for norm in norms]).norm())


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
            f"estimator {config.weights_estimator}{_frozen_text(config)}, "
            f"draws held {plan.hold} step{'s' * (plan.hold > 1)}, "
            f"tau {config.tau.schedule} {_tau_text(plan)}",
            _alpha_text(bench, plan),
        ]
    )


def _tau_text(plan: SearchPlan) -> str:
    config = plan.config.tau
    if config.schedule != "learnable":
        return f"{plan.tau(0):.3g} -> {plan.tau(plan.steps - 1):.3g}"
    floor = DEFAULT_FLOOR if config.floor is None else config.floor
    return f"(experimental) from {config.start:.3g}, above {floor:.3g}"


def _alpha_text(bench: Workbench, plan: SearchPlan) -> str:
    config = bench.experiment.search
    if not config.alpha_learns:
        return "alpha: does not move, pi stays uniform: layouts are to be scored with the SuperNet"
    return (
        f"alpha: {config.alpha.data} data{_split_text(bench)}, {_kind_text(config)}"
        f"first moves at step {plan.alpha_start}, peak learning rate {plan.alpha_peak_lr:.4f}"
    )


def _kind_text(config: SearchConfig) -> str:
    every = config.alpha.every
    own = config.alpha_estimator
    said = f"estimator {own}, " if own != config.weights_estimator else ""
    return said + (f"moves every {every} steps, " if every > 1 else "")


def _frozen_text(config: SearchConfig) -> str:
    return f" ({config.frozen} until alpha moves)" if config.frozen else ""


def _split_text(bench: Workbench) -> str:
    config = bench.experiment.search.alpha
    if config.data != "split":
        return ""
    return f" ({config.share or DEFAULT_SHARE:.0%} of the training tokens are alpha's alone)"
