"""Phase 1 put together: the SuperNet, alpha, how both are trained, what is shown of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from data import EvaluationStreams
from model import LanguageModel, Mix
from nas.config import DEFAULT_FLOOR, DEFAULT_SHARE
from nas.search.estimators import gumbel_noise, one_hot_net, soft_net, spos
from nas.search.flops import search_flops
from nas.search.plan import SearchPlan, build_rho, tau_now
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from nas.search.trajectory import Trajectory, entropy_share, margins, softmax
from pipeline.build import build_supernet
from pipeline.context import RunPlan
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
from training.step import WeightStep
from training.trainer import Phase
from utils.cores import core_numbers, read_cpu

# The layouts that are validated where alpha does not move: the same in every search.
VALIDATED, _VALIDATED_SEED = 4, 0


def search_phase(plan: RunPlan) -> Phase:
    """Phase 1: the SuperNet, alpha, and how both are trained."""
    run, slots = plan.experiment.run, plan.experiment.model.slots
    config, began = plan.experiment.search, read_cpu(core_numbers())
    check_supernet_size(plan)
    model = build_supernet(plan)
    schedules = plan.schedules(model.longest_memory)
    labels = [candidate.label for candidate in plan.candidates]
    alpha_LC = build_alpha(slots, len(labels))
    weights_batches, alpha_batches = plan.search_batches
    streams = {"weights": model.initial_state(plan.own_streams)}
    if alpha_batches is not None:
        streams["alpha"] = model.initial_state(plan.own_streams)
    rho = build_rho(config.tau)
    state = TrainState(
        model=model,
        optimisers={
            "weights": build_optimiser(model, config.optimiser),
            "alpha": build_alpha_optimiser(alpha_LC, schedules, rho.values()),
        },
        streams=streams,
        parameters={"alpha": alpha_LC, **rho},
        loss_sum=torch.zeros((), dtype=torch.float64, device=plan.device),
    )
    plan.ranks.seed(run.seed)
    rate = rate_of(config.optimiser, schedules.steps)
    weight_step = WeightStep(plan.forward, config.optimiser, rate)
    step = SearchStep(schedules, weight_step, run.seed, alpha_batches)
    folder = plan.search_folder(run.seed)
    forecast = search_memory(step, state, weights_batches.batch(0))
    memory = memory_notes(forecast, plan.forward, folder, ignore=run.ignore_memory_forecast)
    trajectory = Trajectory(labels, schedules)
    summary = [
        *_search_summary(plan, model, schedules),
        *memory.lines,
        *busy_lines(plan.device, plan.ranks.world, began),
    ]
    return Phase(
        title="search",
        folder=folder,
        identity=plan.search_identity,
        files=plan.files(),
        summary="\n".join(summary),
        steps=schedules.steps,
        state=state,
        batches=weights_batches,
        step=step,
        nets=_nets(plan, plan.streams("valid")),
        columns=_SearchColumns(schedules, plan.adds_nothing),
        recorders=[trajectory],
        resumed=lambda state: trajectory.resume(folder / "pi.npz", state),
        before_checkpoint=lambda: trajectory.save(folder / "pi.npz"),
        writer=plan.tensorboard(folder),
        ranks=plan.ranks,
        work=search_flops(schedules, list(plan.costs.by_label.values()), plan.costs.rest, slots),
        refusal=memory.refusal,
    )


def _nets(plan: RunPlan, valid: EvaluationStreams) -> dict[str, Callable[[TrainState], Evaluation]]:
    """What is validated: the soft and the one-hot net; where pi stays uniform, layouts drawn."""

    def under(mix: Callable[[Tensor], Mix]) -> Callable[[TrainState], Evaluation]:
        return lambda state: plan.validate(state.model, valid, mix(state.parameters["alpha"]))

    if plan.experiment.search.alpha_learns:
        return {"soft": under(soft_net), "onehot": under(one_hot_net)}

    def drawn(number: int, alpha_LC: Tensor) -> Mix:
        return spos(alpha_LC, gumbel_noise(_VALIDATED_SEED, number, *alpha_LC.shape), 1.0)

    layouts = [under(partial(drawn, number)) for number in range(VALIDATED)]
    return {"drawn": lambda state: joined([layout(state) for layout in layouts])}


@dataclass(frozen=True)
class _SearchColumns:
    """What a log line says of the search.

    tau of the step just done; of pi: entropy as a part of uniform, smallest margin, share of the
    candidates that add nothing; the norm of each kind of candidate's gradients in the step, after
    clipping, over all slots.
    """

    schedules: SearchPlan
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
            "tau": float(tau_now(self.schedules, state, state.step - 1)),
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


def _search_summary(plan: RunPlan, model: LanguageModel, schedules: SearchPlan) -> list[str]:
    sizes, config, costs = plan.experiment.model, plan.experiment.search, plan.costs
    candidates = ", ".join(f"{label} {flops / 1e6:.3f}" for label, flops in costs.by_label.items())
    warmup = f" ({config.frozen} until alpha moves)" if config.frozen else ""
    return [
        text_summary(plan),
        softmax_line(plan, plan.softmax),
        f"SuperNet: {sizes.slots} slots x {len(costs.by_label)} candidates, "
        f"d_model {sizes.d_model}, {parameter_count(model):,} parameters",
        *tying_lines(model),
        f"MFLOP per token and slot: {candidates}; embedding and softmax {costs.rest / 1e6:.3f}",
        optimiser_line(config.optimiser, schedules.steps),
        f"estimator {config.weights_estimator}{warmup}, "
        f"draws held {schedules.hold} step{'s' * (schedules.hold > 1)}, "
        f"tau {config.tau.schedule} {_tau_text(schedules)}",
        _alpha_text(schedules),
    ]


def _tau_text(schedules: SearchPlan) -> str:
    config = schedules.config.tau
    if config.schedule != "learnable":
        return f"{schedules.tau(0):.3g} -> {schedules.tau(schedules.steps - 1):.3g}"
    floor = DEFAULT_FLOOR if config.floor is None else config.floor
    return f"(experimental) from {config.start:.3g}, above {floor:.3g}"


def _alpha_text(schedules: SearchPlan) -> str:
    config = schedules.config
    if not config.alpha_learns:
        return "alpha: does not move, pi stays uniform: layouts are to be scored with the SuperNet"
    text = f"alpha: {config.alpha.data} data"
    if config.alpha.data == "split":
        share = config.alpha.share or DEFAULT_SHARE
        text += f" ({share:.0%} of the training tokens are alpha's alone)"
    if config.alpha_estimator != config.weights_estimator:
        text += f", estimator {config.alpha_estimator}"
    if config.alpha.every > 1:
        text += f", moves every {config.alpha.every} steps"
    return (
        f"{text}, first moves at step {schedules.alpha_start}, "
        f"peak learning rate {schedules.alpha_peak_lr:.4f}"
    )
