"""What a GPU would need for an experiment, and bounds of its speed; no GPU and no text is needed.

One training step runs on tensors without numbers, with the layout that derive.method names, or
else that of derive.reference. Its memory is followed; FLOPs, bytes and launches are counted. No
step is faster than the bound: each kernel takes as long as its products or its memory traffic take
at the card's full rate, and the host starts one kernel after another. Real steps take longer, on a
GPU about twice as long. Ids are drawn by Zipf's law. Trainings count as of this one layout, and
validations are left out.

    python -m benchmarks.plan configs/gpu_base.yaml --device h100
    python -m benchmarks.plan configs/gpu_base.yaml --device tflops=150,gb_per_s=900,gb=24
    python -m benchmarks.plan configs/quickstart.yaml --device cpu

Cards: t4, v100, l4, l40s, rtx3090, rtx4090, a100 (80 GB), a100-40, h100, h100-pcie, h200; cpu is
this machine, measured in a few seconds.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pipeline import cli

if TYPE_CHECKING:
    from benchmarks.counting import Work
    from pipeline.experiment import Experiment
    from pipeline.plan import RunPlan
    from training.config import OptimiserConfig


@dataclass(frozen=True)
class Card:
    """A card's full rates; TFLOP/s are of products, by `run.precision`, where it has one.

    Attributes:
        us_per_launch: what the host takes at least to start a kernel from Python.
        waits: the host starts a kernel when the last one is done, as on a CPU.
    """

    tflops: dict[str, float]
    gb_per_s: float
    gb: float
    us_per_launch: float = 10.0
    waits: bool = False


def _card(bf16: float, tf32: float, fp32: float, gb: float, gb_per_s: float) -> Card:
    rates = {"bfloat16": bf16, "tf32": tf32, "float32": fp32}
    return Card({name: rate for name, rate in rates.items() if rate}, gb_per_s, gb)


# From NVIDIA's data sheets and white papers, of dense products: TFLOP/s in bfloat16, tf32 and
# float32, GB, GB/s. Of consumers' cards with sums in float32.
CARDS = {
    "t4": _card(0, 0, 8.1, 16, 320),
    "v100": _card(0, 0, 15.7, 32, 900),
    "l4": _card(121, 60, 30.3, 24, 300),
    "rtx3090": _card(71, 35.6, 35.6, 24, 936),
    "rtx4090": _card(165, 82.6, 82.6, 24, 1008),
    "a100-40": _card(312, 156, 19.5, 40, 1555),
    "a100": _card(312, 156, 19.5, 80, 2039),
    "l40s": _card(362, 183, 91.6, 48, 864),
    "h100-pcie": _card(756, 378, 51, 80, 2000),
    "h100": _card(989, 494, 67, 80, 3350),
    "h200": _card(989, 494, 67, 141, 4800),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__, writes=False)
    parser.prog = "python -m benchmarks.plan"
    add, size = parser.add_argument, cli.number_from(1, 10**13)
    add("--device", default="h100", metavar="NAME", help="a card, cpu, or tflops=N,...")
    add("--vocabulary", type=size, metavar="N", help="ids (default: the experiment's)")
    add("--tokens", type=size, metavar="N", help="training tokens, for lengths given in epochs")
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        from pipeline.experiment import experiment_of

        experiment, _ = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        precision = experiment.run.precision
        card = card_of(arguments.device, precision)
        plan = pretended_plan(experiment, arguments.vocabulary, arguments.tokens)
        card = replace(card, tflops={precision: card.tflops[precision]})
        rates = f"{card.tflops[precision]:,.3g} TFLOP/s in {precision}, {card.gb_per_s:,.4g} GB/s"
        print(f"{arguments.device}: {rates}, {card.us_per_launch:.3g} us a launch")
        for line in lines_of(plan, card):
            print(line, flush=True)
    return 0


def card_of(name: str, precision: str) -> Card:
    """The card of a name, of numbers, or this machine's CPU.

    ValueError: it is unknown, a number is missing, or it has not the precision.
    """
    if name == "cpu":
        return measured_cpu(precision)
    card = CARDS.get(name.lower())
    if card is None and "=" in name:
        pairs = (part.partition("=") for part in name.split(","))
        try:
            given = {key: float(value) for key, _, value in pairs}
            rates = dict.fromkeys((precision,), given.pop("tflops"))
            card = Card(rates, **given)  # type: ignore[arg-type]
            assert min(*rates.values(), card.gb_per_s, card.gb, card.us_per_launch) > 0
        except (TypeError, ValueError, KeyError, AssertionError):
            known = ", ".join(f"{field.name}=N" for field in fields(Card)[:4])
            raise ValueError(f"--device: must be {known}, found {name!r:.80}") from None
    if card is None:
        known = ", ".join([*CARDS, "cpu"])
        raise ValueError(
            f"--device: must be one of {known}, or tflops=N,gb_per_s=N,gb=N, found {name!r:.40}"
        )
    if precision not in card.tflops:
        raise ValueError(f"--device: {name} has no {precision}; set run.precision=float32")
    return card


def measured_cpu(precision: str) -> Card:
    """This machine's rates, each the best of some tries; traffic is that of the memory."""
    cli.loading("torch")
    import torch

    if precision == "tf32":
        raise ValueError("--device: cpu has no tf32; set run.precision=float32")
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32

    def best_s(call: Any, seconds: float = 1.0) -> float:
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            began = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - began)
        return best

    with torch.no_grad():
        one, two = (torch.ones(shape, dtype=dtype) for shape in ((1024, 512), (512, 1024)))
        wide, out, few = torch.ones(2**24), torch.empty(2**24), torch.ones(1)
        product_s = best_s(lambda: torch.mm(one, two))
        traffic_s = best_s(lambda: torch.add(wide, wide, out=out))
        launch_s = best_s(lambda: torch.add(few, few))
    gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    rates = {precision: 2 * 1024 * 512 * 1024 / product_s / 1e12}
    return Card(rates, 2 * wide.nbytes / traffic_s / 1e9, gb, 1e6 * launch_s, waits=True)


def pretended_plan(
    experiment: "Experiment", vocabulary: int | None = None, tokens: int | None = None
) -> "RunPlan":
    """The plan of a run whose text has not been read, on the device without numbers.

    ValueError: the vocabulary, or the length of the text, is needed and not known.
    """
    cli.loading("torch")
    import numpy as np
    import torch

    from pipeline.plan import RunPlan

    ids = vocabulary or experiment.data.tokenizer.ids
    if ids is None:
        raise ValueError("--vocabulary: only the tokenizer's model knows it; give the number")
    if tokens is None and None in (experiment.search.steps, experiment.retrain.steps):
        raise ValueError("--tokens: lengths are in epochs of a text that is not read; give it")
    train = np.broadcast_to(np.int64(0), tokens or 10**12)
    counts_V = np.ceil(1e9 / np.arange(1, ids + 1)).astype(np.int64)
    prepared: Any = SimpleNamespace(
        tokens={"train": train}, counts_V=counts_V, tokenizer=SimpleNamespace(vocabulary_size=ids)
    )
    return RunPlan(experiment, Path("runs"), prepared, torch.device("meta"))


def lines_of(plan: "RunPlan", card: Card) -> Iterator[str]:
    """What a step takes, and how long an experiment's parts take."""
    from model import layout_letters
    from nas.derivation import PLACING, reference_layout
    from nas.search.config import HARD
    from nas.search.plan import ALPHA_PASS, TRAINING

    experiment, retrain, search = plan.experiment, plan.stages, plan.schedules()
    derive, config, compare = experiment.derive, search.config, experiment.compare
    if derive.method in (*PLACING, "layout"):
        chosen = derive.layout or derive.method
        derive = derive.model_copy(update={"reference": chosen})
    layout = reference_layout(plan.request(derive, []))
    work = _step(plan, [(slot,) for slot in layout], retrain.config.optimiser)
    tokens = experiment.data.batch * experiment.data.segment
    yield f"layout {layout_letters(layout)}: {work.parameters:,} parameters"
    parts = ", ".join(f"{name} {size / 1e9:.3g}" for name, size in work.memory.items())
    yield f"memory in GB: {parts}; at the peak of a step {_peak(work, card)}"
    step_s, alone = seconds(work, card)
    each = ", ".join(f"{name} {1e3 * part_s:,.3g}" for name, part_s in alone.items())
    moved = sum(size for _, size in work.kernels) / 1e9
    yield (
        f"a step of {tokens:,} tokens: {work.flops / 1e12:.3g} TFLOP, {moved:,.3g} GB "
        f"({work.moved_bytes / 1e9:,.3g} without products), {work.launches:,} launches"
    )
    yield (
        f"at least {1e3 * step_s:,.3g} ms (alone {each}): at most {tokens / step_s:,.0f} "
        f"tokens/s, bound by {max(alone, key=lambda name: alone[name])}"
    )
    # Of what a hard estimator draws the weights' own step computes one candidate.
    one = config.alpha.data != "shared" and config.weights_estimator in HARD
    drawn = "single_path" if one else config.weights_estimator
    pair = [
        _step(plan, plan.slots, config.optimiser, name)
        for name in dict.fromkeys((drawn, config.alpha_estimator))
    ]
    moves = len(search.alpha_steps) if config.alpha_learns and config.alpha.data != "shared" else 0
    search_s = search.steps * seconds(pair[0], card)[0]
    search_s += moves * ALPHA_PASS / TRAINING * seconds(pair[-1], card)[0]
    most, full_s = max(pair, key=lambda one: one.peak_bytes), retrain.steps * step_s
    trained, compared = trainings(plan), (len(compare.baselines) + 1) * len(compare.seeds) - 1
    for words, spent_s in (
        (f"search: {search.steps:,} steps, {_peak(most, card)}", search_s),
        (f"derive: {derive.method}, {trained:g} trainings", trained * full_s),
        (f"retrain: {retrain.steps:,} steps", full_s),
        (f"compare: {compared} trainings", compared * full_s),
    ):
        yield f"{words}: at least {spent_s / 3600:,.2g} hours"


def seconds(work: "Work", card: Card) -> tuple[float, dict[str, float]]:
    """The bound of a step, and what its parts would take alone."""
    # All products at the rate of the run's precision, if some are in float32: it stays a bound.
    flops_per_s = 1e12 * max(card.tflops.values())
    pairs = [(flops / flops_per_s, moved / card.gb_per_s / 1e9) for flops, moved in work.kernels]
    parts = {
        "compute": sum(product_s for product_s, moved_s in pairs if product_s >= moved_s),
        "bandwidth": sum(moved_s for product_s, moved_s in pairs if product_s < moved_s),
        "launches": work.launches * card.us_per_launch / 1e6,
    }
    device_s, host_s = parts["compute"] + parts["bandwidth"], parts["launches"]
    return (device_s + host_s if card.waits else max(device_s, host_s)), parts


def trainings(plan: "RunPlan") -> float:
    """How many full trainings a derivation takes at most; scoring by a SuperNet is not counted."""
    from nas.derivation.config import PROBES, PROBES_PER_KIND
    from nas.derivation.space import layout_space
    from nas.derivation.trained import Trained

    config = plan.experiment.derive.trainings
    again = config.best + 1
    if plan.experiment.derive.method == "predictor":
        known = ("attention", "dense", "identity")
        more = len({one.kind for one in plan.candidates} - set(known))
        half = PROBES + PROBES_PER_KIND * more if config.half == "auto" else config.half
        return half / 2 + again * config.seeds
    if plan.experiment.derive.method != "trained":
        return 0.0
    named = Trained().named(layout_space(plan.request(plan.experiment.derive, [])))
    return len(named) + again * (config.seeds - 1)


def _step(
    plan: "RunPlan", slots: Sequence[Any], optimiser: "OptimiserConfig", estimator: str = ""
) -> "Work":
    import numpy as np
    import torch

    from benchmarks.counting import counted_step, pretended_mix
    from training.step import Forward, no_mix

    run, data, counts_V = plan.experiment.run, plan.experiment.data, plan.prepared.counts_V
    shape = (data.batch, data.segment)
    id_BT = np.random.default_rng(0).choice(len(counts_V), shape, p=counts_V / counts_V.sum())
    forward = Forward(
        plan.device, run.precision, run.micro_batches, run.recompute,
        attention=None if run.attention == "auto" else run.attention,
    )  # fmt: skip
    ids_BT = torch.from_numpy(id_BT)
    mix = partial(pretended_mix, estimator, len(slots), len(slots[0])) if estimator else no_mix
    return counted_step(lambda: plan.network(slots), ids_BT, forward, optimiser, mix)


def _peak(work: "Work", card: Card) -> str:
    too_much = " (too much)" if work.peak_bytes > 1e9 * card.gb else ""
    return f"{work.peak_bytes / 1e9:.3g} of {card.gb:,.0f} GB{too_much}"


if __name__ == "__main__":
    sys.exit(main())
