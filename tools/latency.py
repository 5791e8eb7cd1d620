"""Measure what every candidate takes on this machine: reading, decoding, training, in turn.

A layout's time is floor + scale * (rest + the sum of its candidates). rest is the model without
slots: embedding and softmax. Floor and scale are fitted to whole layouts, because a sum of parts is
biased. --validate measures more whole layouts, which the fit does not see.

The table lies in the cache, where derive.budget and search.cost find it; they measure by themselves
what is not there. Each workload's mean error stands in its first line.

    python -m tools.latency configs/quickstart.yaml
    python -m tools.latency configs/quickstart.yaml --validate 20 --workloads latency decode
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli, exit_codes

if TYPE_CHECKING:
    from nas.costs.table import WorkloadTimes
    from pipeline.plan import RunPlan

_MOST_LAYOUTS = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__, writes=False)
    parser.prog = "python -m tools.latency"
    parser.add_argument(
        "--workloads", nargs="+", metavar="NAME",
        help="what is timed, of latency (a segment is read: prefill), decode (a token), "
        "train_step, throughput (data.batch segments are read) (default: all four)",
    )  # fmt: skip
    parser.add_argument(
        "--validate",
        type=int,
        default=0,
        metavar="N",
        help="whole layouts beside the fitted ones, never fewer than the table has",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="also write the table there (default: cache alone)"
    )
    arguments = parser.parse_args(argv)
    with exit_codes.user_errors():
        from pipeline.experiment import experiment_of
        from pipeline.plan import set_up

        workloads = _workloads(arguments.workloads)
        if not 0 <= arguments.validate <= _MOST_LAYOUTS:
            raise ValueError(
                f"--validate: must be from 0 to {_MOST_LAYOUTS}, found {arguments.validate}"
            )
        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        plan = set_up(experiment, run_dir)
        _measure(plan, workloads, arguments.validate, arguments.out)
    return 0


def _measure(plan: "RunPlan", workloads: Sequence[str], validate: int, out: Path | None) -> None:
    from nas.costs.table import write_table
    from nas.costs.workloads import dtype_of
    from pipeline.costs import (
        cached_table,
        keep_table,
        measure_workload,
        table_key,
        table_path,
    )

    key = table_key(plan)
    table = cached_table(key)
    for name in workloads:
        known = table.workloads.get(name)
        # What whole layouts said of a table is not lost by measuring it again: they are, too.
        held_out = max(validate, len(known.held_out) if known else 0)
        table = table.with_workload(name, measure_workload(plan, name, held_out))
        if out is not None:
            write_table(out, table)
        keep_table(table)
        tokens = plan.experiment.data.batch * plan.experiment.data.segment
        dtype = dtype_of(name, plan.forward.precision)
        print(_text(name, dtype, table.workloads[name], len(plan.slots), tokens), flush=True)
    print(f"table: {out or table_path(key)}")


def _workloads(given: Sequence[str] | None) -> list[str]:
    from nas.costs.workloads import WORKLOADS
    from utils.validation import must_be_one_of

    for name in given or ():
        if name not in WORKLOADS:
            raise ValueError(f"--workloads: {must_be_one_of(name, list(WORKLOADS))}")
    return list(dict.fromkeys(given or WORKLOADS))


def _text(name: str, dtype: str, times: "WorkloadTimes", slots: int, tokens: int) -> str:
    from nas.costs.table import agreement

    shown = times.agreement
    kind, wholes = ("held-out", times.held_out) if times.held_out else ("fitted", times.wholes)
    error = f"mean error {shown.error:.1%} of {len(wholes)} {kind} layouts"
    lines = [f"{name}, {dtype}, ms; {error}", *_rows(times)]
    if name == "throughput":
        lines = [f"{name}, {dtype}, tokens per second; {error}", *_token_rows(times, slots, tokens)]
    lines.append(f"  layout = {times.floor_ms:+.4f} + {times.scale:.4f} x (rest + its candidates)")
    for kind, wholes in (("fitted", times.wholes), ("held out", times.held_out)):
        if wholes:
            shown = agreement(wholes)
            lines.append(
                f"  {len(wholes)} whole layouts {kind}: mean error {shown.error:.1%}, "
                f"Kendall's tau {shown.tau:.2f}"
            )
    if times.distrust is not None:
        lines.append(f"  warning: {times.distrust}")
    return "\n".join(lines)


def _rows(times: "WorkloadTimes") -> list[str]:
    parts = {"rest": times.rest_ms, **times.by_label_ms}
    return [f"  {label:<20} {value:>9.4f}" for label, value in parts.items()]


def _token_rows(times: "WorkloadTimes", slots: int, tokens: int) -> list[str]:
    """Of the model without slots and with a candidate in every slot; times alone add up."""
    from nas.costs.budget import tokens_per_second

    parts = {"rest": 0.0, **times.by_label_ms}
    return [
        f"  {row} ms, {tokens_per_second(tokens, times.rest_ms + slots * ms)} "
        + ("without slots" if label == "rest" else "in every slot")
        for row, (label, ms) in zip(map(str.strip, _rows(times)), parts.items(), strict=True)
    ]


if __name__ == "__main__":
    sys.exit(main())
