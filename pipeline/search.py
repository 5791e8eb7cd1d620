"""Phase 1: a SuperNet trained by a plan, and what pi became, shown and warned of."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from model import LanguageModel, Mix, layout_letters
from model.layout import legend
from nas.derivation import NEED_PI
from nas.search.constraint import Constraint, multipliers
from nas.search.diagnostics import LEAST_DIRECTED, alpha_path, diagnose_search, warnings_of
from nas.search.estimators import gumbel_noise, one_hot_net, soft_net, spos
from nas.search.plan import SearchPlan, search_flops
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from nas.search.trajectory import Trajectory, write_pi_csv
from pipeline import cli
from pipeline.jobs import Job, run_counted
from pipeline.plan import RunPlan
from pipeline.summary import (
    CAVEATS,
    ONE_SEARCH,
    agreement_caveats,
    model_lines,
    parameter_count,
    passes_line,
    settings_line,
    show_report,
    softmax_line,
    text_summary,
    text_warnings,
)
from training.evaluation import Evaluation, joined
from training.optim import build_optimiser, rate_of, warmup_steps
from training.run_dir import is_claimed
from training.state import TrainState
from training.step import WeightStep
from training.trainer import Trainer
from utils.files import write_whole
from utils.pi import entropy_share, load_pi, margins, softmax
from utils.screen import announce
from utils.text import aligned, plural

# The layouts that are validated where alpha does not move: the same in every search.
VALIDATED, _VALIDATED_SEED = 4, 0


def run_searches(plan: RunPlan, seeds: Sequence[int], workers: int = 1) -> None:
    """Run the searches, so many at a time; those that are done already take no step.

    Of several `workers` each search is a process with its share of the cores.
    """
    for seed in seeds:
        is_claimed(plan.search_folder(seed), plan.search_identity)
    if workers > 1:
        run_counted([_job(plan.with_seed(seed)) for seed in seeds], workers)
        return
    for number, seed in enumerate(seeds, start=1):
        if plan.ranks.is_first:
            if len(seeds) > 1:
                print(f"search {number} of {len(seeds)}, seed {seed}", flush=True)
            announce("building the SuperNet")
        with closing(search_trainer(plan.with_seed(seed))) as trainer:
            trainer.open()
            trainer.run(plan.experiment.run)
        # A SuperNet that is done must not take memory beside the next one's.
        del trainer


def _job(plan: RunPlan) -> Job:
    log = plan.run_dir / "jobs" / "search" / f"seed-{plan.seed}"
    arguments = ("--run", str(plan.run_dir))
    return Job(f"search, seed {plan.seed}", plan.experiment, ("search",), log, arguments)


def search_trainer(plan: RunPlan) -> Trainer:
    """Phase 1: the SuperNet, alpha, and how both are trained."""
    plan.experiment.check_searchable()
    constraints, files = tuple[Constraint, ...](), dict[str, str]()
    if plan.experiment.search.cost.on:
        from pipeline.costs import bounds_of

        constraints, files = bounds_of(plan)
    # Not before: what is measured draws numbers, and a search that begins again measures nothing.
    model = plan.supernet()
    schedules = plan.schedules(model.longest_memory)
    config = schedules.config
    weights_batches, alpha_batches = plan.search_batches
    streams = ["weights"] if alpha_batches is None else ["weights", "alpha"]
    state = _first_state(plan, model, schedules, streams, constraints)
    plan.ranks.seed(plan.seed)
    rate = rate_of(config.optimiser, schedules.steps)
    weight_step = WeightStep(plan.forward, config.optimiser, rate)
    step = SearchStep(schedules, weight_step, plan.seed, alpha_batches, constraints)
    folder = plan.search_folder(plan.seed)
    trajectory = Trajectory([candidate.label for candidate in plan.candidates], schedules)
    return Trainer(
        title="search",
        folder=folder,
        identity=plan.search_identity,
        files=plan.files() | files,
        summary="\n".join(_search_summary(plan, state, schedules)),
        steps=schedules.steps,
        state=state,
        batches=weights_batches,
        step=step,
        nets=_nets(partial(plan.validate, plan.streams("valid")), schedules),
        columns=partial(_search_columns, schedules, plan.adds_nothing, constraints),
        recorders=[trajectory],
        resumed=lambda state: trajectory.resume(folder / "pi.npz", state),
        before_checkpoint=lambda: trajectory.save(folder / "pi.npz"),
        trackers=plan.trackers(folder, plan.search_identity),
        ranks=plan.ranks,
        work=search_flops(
            schedules, [*plan.costs.by_label.values()], plan.costs.rest, len(plan.slots)
        ),
    )


def _first_state(
    plan: RunPlan,
    model: LanguageModel,
    schedules: SearchPlan,
    streams: Sequence[str],
    constraints: Sequence[Constraint],
) -> TrainState:
    config = schedules.config
    alpha_LC = build_alpha(len(plan.slots), len(plan.candidates))
    own = plan.ranks.count(plan.experiment.data.batch)
    return TrainState(
        model=model,
        optimisers={
            "weights": build_optimiser(model, config.optimiser),
            "alpha": build_alpha_optimiser(alpha_LC, schedules),
        },
        streams={name: model.initial_state(own) for name in streams},
        parameters={"alpha": alpha_LC},
        multipliers=multipliers(constraints),
        loss_sum=torch.zeros((), dtype=torch.float64, device=plan.device),
    )


def _nets(
    validate: Callable[[LanguageModel, Mix], Evaluation], schedules: SearchPlan
) -> dict[str, Callable[[TrainState], Evaluation | None]]:
    """What is validated: the soft net, and the one-hot net once alpha has moved.

    Where pi stays uniform, layouts drawn.
    """

    def under(mix: Callable[[Tensor], Mix]) -> Callable[[TrainState], Evaluation]:
        return lambda state: validate(state.model, mix(state.parameters["alpha"]))

    one_hot, start = under(one_hot_net), schedules.alpha_start
    if schedules.config.alpha_learns:
        # Before, one-hot is whichever candidate stands first.
        nets = {"onehot": lambda state: one_hot(state) if state.step > start else None}
        return {"soft": under(soft_net), **nets}

    def drawn(number: int, alpha_LC: Tensor) -> Mix:
        return spos(alpha_LC, gumbel_noise(_VALIDATED_SEED, number, *alpha_LC.shape), 1.0)

    layouts = [under(partial(drawn, number)) for number in range(VALIDATED)]
    return {"drawn": lambda state: joined([layout(state) for layout in layouts])}


@torch.no_grad()
def _search_columns(
    schedules: SearchPlan,
    adds_nothing: Mapping[str, bool],
    constraints: Sequence[Constraint],
    state: TrainState,
) -> Mapping[str, float]:
    """What a log line says of the search.

    tau of the step just done; of pi: entropy as a part of uniform, smallest margin, share of the
    candidates that add nothing; the norm of each kind of candidate's gradients in the step, after
    clipping, over all slots; of each bound on pi the expectation as a part of it, and its weight.
    """
    alpha_LC = state.parameters["alpha"].detach()
    pi_LC = softmax(alpha_LC.numpy())
    return {
        "tau": schedules.tau(state.step - 1),
        "entropy": entropy_share(pi_LC),
        "least_margin": float(margins(pi_LC).min()),
        "nothing_share": float(pi_LC.mean(0)[list(adds_nothing.values())].sum()),
        **{
            f"grad_norm_{label}": _gradient_norm(state.model, label)
            for label, idle in adds_nothing.items()
            if not idle
        },
        **{f"{one.name}_of_bound": one.ratio(alpha_LC) for one in constraints},
        **{f"{one.name}_weight": float(state.multipliers[one.name]) for one in constraints},
    }


def _gradient_norm(model: LanguageModel, label: str) -> float:
    """The norm of the gradients that stand on all blocks of a candidate; 0 where none does.

    Of candidates that share weights, it is that of all of the weights.
    """
    gradients = [
        parameter.grad
        for slot in model.slots
        if label in slot.labels
        for parameter in slot.blocks[label].parameters()
        if parameter.grad is not None
    ]
    return float(torch.nn.utils.get_total_norm(gradients))


def _search_summary(plan: RunPlan, state: TrainState, schedules: SearchPlan) -> list[str]:
    config, costs, model = schedules.config, plan.costs, state.model
    candidates = ", ".join(f"{label} {flops / 1e6:.3f}" for label, flops in costs.by_label.items())
    alpha = "pi stays uniform: a derivation scores layouts with the SuperNet's weights"
    if config.alpha_learns:
        alpha = f"pi, the candidates' probabilities, moves from step {schedules.alpha_start} on; "
        alpha += "undecided: 100% where all are equally likely, 0% where one is certain"
    return [
        text_summary(plan),
        softmax_line(plan, plan.experiment.model.softmax),
        f"SuperNet: {len(plan.slots)} blocks ({len(plan.slots) / 2:g} Transformer layers), each "
        f"one of ({legend(plan.candidates)}); {parameter_count(model):,} parameters",
        *model_lines(model),
        f"  MFLOPs per token and block: {candidates}; embedding and softmax {costs.rest / 1e6:.3f}",
        passes_line(schedules.steps, plan.search_batches[0]),
        settings_line("search", config),
        f"  {warmup_steps(config.optimiser, schedules.steps)} steps of warm-up; architecture "
        f"resampled every {plural(schedules.resample_every, 'step')}; peak learning rate of alpha "
        f"{schedules.alpha_peak_lr:.4f}",
        alpha,
    ]


def guard_lines(
    trajectory: Path, schedules: SearchPlan, adds_nothing: Mapping[str, bool]
) -> list[str]:
    """What alpha's path in a search's pi.npz shows, and warnings."""
    path_NLC, rate_M = alpha_path(load_pi(trajectory)["alpha"], schedules)
    shown = diagnose_search(path_NLC, rate_M, list(adds_nothing), list(adds_nothing.values()))
    line = f"mean margin {shown.mean_margin:.3f}; identity has {shown.nothing_share:.0%} of pi; "
    judged_L = shown.directed_L[~np.isnan(shown.directed_L)]
    if not len(judged_L):
        line += "too few steps to tell whether alpha followed the loss or noise"
    else:
        directed, blocks = (judged_L >= LEAST_DIRECTED).sum(), len(shown.directed_L)
        line += f"alpha kept a direction, as noise would not, in {directed} of {blocks} blocks"
        if few := blocks - len(judged_L):
            line += f" ({few} settled in too few steps to tell)"
    return [line, *warnings_of(shown, schedules)]


def finish_searches(plan: RunPlan, seeds: Sequence[int]) -> None:
    """Show what pi became, warn, and draw: tables, words, figures and the report, figures last."""
    if not plan.ranks.is_first:
        return
    folders = [plan.search_folder(seed) for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        _show_pi(plan, folder, f", seed {seed}" if len(seeds) > 1 else "")
        # Last, since where it stands a search has come to its end.
        write_pi_csv(folder / "pi.npz", folder / "pi.csv")
    _show_together(plan, seeds, folders)
    if plan.experiment.run.figures:
        from report.searches import write_search_figures

        announce("drawing the figures")
        for folder in folders:
            write_search_figures(folder)
    show_report(plan)
    print(f"next: {_next(plan, seeds)}")


def _show_pi(plan: RunPlan, folder: Path, which: str) -> None:
    pi_LC = softmax(load_pi(folder / "pi.npz")["alpha"][-1])
    layout = [plan.candidates[k] for k in pi_LC.argmax(axis=1)]
    likeliest = f"likeliest layout {layout_letters(layout)} ({legend(layout)}); "
    likeliest *= plan.experiment.search.alpha_learns
    print(f"\nafter the last step{which}: {likeliest}undecided {entropy_share(pi_LC):.0%}")
    rows = [["block", *(legend([one]) for one in plan.candidates), "margin"]]
    for block, (pi_C, margin) in enumerate(zip(pi_LC, margins(pi_LC), strict=True)):
        rows.append([f"{block}", *(f"{value:.3f}" for value in (*pi_C, margin))])
    print("probabilities pi (margin: the likeliest less the second)", *aligned(rows), sep="\n")
    lines = list[str]()
    if plan.experiment.search.alpha_learns:
        # Alpha's steps do not depend on how long draws are held, so no memory is needed.
        lines = guard_lines(folder / "pi.npz", plan.schedules(), plan.adds_nothing)
    if plan.experiment.search.cost.target is not None:
        from pipeline.costs import finish_costs

        lines = [*finish_costs(plan, folder), *lines]
    # The warnings of the text were printed before step 0.
    warnings = [line for line in lines if line.startswith("warning: ")]
    of_text = text_warnings(plan.prepared)
    of_text += plan.experiment.warnings()
    caveats = {"caveats": [*of_text, *warnings]}
    write_whole(folder / CAVEATS, json.dumps(caveats, indent=1) + "\n")
    for line in lines:
        print(line)


def _show_together(plan: RunPlan, seeds: Sequence[int], folders: Sequence[Path]) -> None:
    """How far the searches of this command agree, or that one alone says little."""
    lines, caveats, path = list[str](), [ONE_SEARCH], folders[0].parent / CAVEATS
    if len(seeds) > 1:
        lines, caveats = _agreement(plan, seeds)
        print()
    # What was said of several stays.
    if len(seeds) > 1 or not path.exists():
        content = {"searches": sorted(seeds), "caveats": caveats}
        write_whole(path, json.dumps(content, indent=1) + "\n")
    print(*lines, *caveats, sep="\n")


def _agreement(plan: RunPlan, seeds: Sequence[int]) -> tuple[list[str], list[str]]:
    from nas.derivation.from_search import read_searches

    searched = read_searches(plan.request(plan.experiment.derive, seeds), "agreement")
    agreement = searched.agreement()
    if agreement is None:
        return [], ["no agreement of these searches: alpha does not move, so pi chooses nothing"]
    blocks = "  ".join(f"{block}: {alike:.0%}" for block, alike in enumerate(agreement.blocks))
    pairs = f"pairs of searches that chose alike, by block ({searched.averaged}): {blocks}"
    return [pairs], agreement_caveats(agreement)


def _next(plan: RunPlan, seeds: Sequence[int]) -> str:
    experiment = plan.experiment
    by_pi = experiment.derive.method in NEED_PI and not experiment.search.alpha_learns
    method = " --method evolution" if by_pi else ""
    if len(seeds) > 1:
        derive = cli.command("derive.py", plan.run_dir)
        return f"{derive}{method} --seeds {','.join(map(str, seeds))}"
    alone = len(list(plan.run_dir.glob("search/seed-*"))) == 1
    others = [] if alone else [f"run.seed={seeds[0]}"]
    return cli.command("derive.py", plan.run_dir, *others) + method
