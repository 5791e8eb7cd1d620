"""Measure on this machine how long every candidate takes to read, to decode and to train.

A layout's time is floor + scale * (rest + the sum of its candidates). rest is the model without
blocks: embedding and softmax. Floor and scale are fitted to whole layouts, because a plain sum of
parts is biased. --validate measures further whole layouts, which the fit does not use.

The table is kept in the cache, or in the file costs.table; derive.budget and search.cost read it
and measure what is missing.

    python -m tools.latency configs/quickstart.yaml
    python -m tools.latency configs/quickstart.yaml --validate 20 --workloads latency decode
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipeline import cli

if TYPE_CHECKING:
    from nas.costs.model import WorkloadTimes
    from pipeline.plan import RunPlan

WORKLOADS = ("latency", "decode", "train_step", "throughput")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__, writes=False)
    parser.prog = "python -m tools.latency"
    parser.add_argument(
        "--workloads", nargs="+", metavar="NAME", choices=WORKLOADS, default=[*WORKLOADS],
        help="what to time: latency (prefill of a segment), decode (one token), train_step, "
        "throughput (data.batch segments)",
    )  # fmt: skip
    parser.add_argument(
        "--validate", type=cli.number_from(0, 1000), default=0, metavar="N",
        help="whole layouts to check the fit with, never fewer than the table has",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        from pipeline.experiment import experiment_of

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        cli.loading("torch")
        from pipeline.plan import set_up

        plan = set_up(experiment, run_dir)
        _measure(plan, arguments.workloads, arguments.validate)
    return 0


def _measure(plan: "RunPlan", workloads: Sequence[str], validate: int) -> None:
    from nas.costs.latency import dtype_of
    from pipeline.costs import cost_model

    costs = cost_model(plan)
    kept = costs.kept()
    for name in dict.fromkeys(workloads):
        known = kept.workloads.get(name)
        # What whole layouts said of a table is not lost by measuring it again: they are, too.
        held_out = max(validate, len(known.held_out) if known else 0)
        times = costs.measured(name, held_out).workloads[name]
        dtype = dtype_of(name, plan.forward.precision)
        print("\n".join(_lines(name, dtype, times)), flush=True)
    print(f"table: {costs.path}")


def _lines(name: str, dtype: str, times: "WorkloadTimes") -> Iterator[str]:
    from nas.costs.model import agreement

    yield f"{name}, {dtype}, ms"
    for label, ms in {"rest": times.rest_ms, **times.by_label_ms}.items():
        yield f"  {label:<20} {ms:>9.4f}"
    yield f"  layout = {times.floor_ms:+.4f} + {times.scale:.4f} x (rest + its candidates)"
    for kind, wholes in (("fitted", times.wholes), ("held out", times.held_out)):
        if wholes:
            mean, tau = agreement(wholes)
            counted = f"{len(wholes)} whole layouts {kind}"
            yield f"  {counted}: mean error {mean:.1%}, Kendall's tau {tau:.2f}"
    if times.doubt is not None:
        yield f"  warning: {times.doubt}"


if __name__ == "__main__":
    sys.exit(main())
