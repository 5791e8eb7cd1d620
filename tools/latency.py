"""Measure what every candidate takes on this machine: reading, decoding, training, in turn.

A layout's time is floor + scale * (rest + the sum of its candidates). rest is the model without
slots: embedding and softmax. Floor and scale are fitted to whole layouts, because a sum of parts is
biased. --validate measures more whole layouts, which the fit does not see.

The table lies in the cache, where derive.budget and search.cost find it; they measure by themselves
what is not there.

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
        "--validate", type=int, default=0, metavar="N", help="whole layouts beside the fitted ones"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="also write the table there (default: cache alone)"
    )
    arguments = parser.parse_args(argv)
    with exit_codes.user_errors():
        from nas.costs.table import CostTable, read_table, write_table
        from pipeline.context import say, set_up
        from pipeline.costs import cached_table, measure_workload, table_key
        from pipeline.experiment import experiment_of

        workloads = _workloads(arguments.workloads)
        if not 0 <= arguments.validate <= _MOST_LAYOUTS:
            raise ValueError(
                f"--validate: must be from 0 to {_MOST_LAYOUTS}, found {arguments.validate}"
            )
        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        plan = set_up(experiment, run_dir)
        key = table_key(plan)
        path = cached_table(key)
        table = read_table(path, key) if path.exists() else CostTable(key=key, workloads={})
        for name in workloads:
            say(f"measuring {name} of every candidate and of whole layouts, in turn")
            table = table.with_workload(name, measure_workload(plan, name, arguments.validate))
            write_table(path, table)
            print(_text(name, table.workloads[name]), flush=True)
        if arguments.out is not None:
            write_table(arguments.out, table)
    print(f"table: {arguments.out or path}")
    return 0


def _workloads(given: Sequence[str] | None) -> list[str]:
    from nas.costs.workloads import WORKLOADS
    from utils.validation import must_be_one_of

    for name in given or ():
        if name not in WORKLOADS:
            raise ValueError(f"--workloads: {must_be_one_of(name, list(WORKLOADS))}")
    return list(dict.fromkeys(given or WORKLOADS))


def _text(name: str, times: "WorkloadTimes") -> str:
    from nas.costs.table import agreement

    parts = {"rest": times.rest_ms, **times.by_label_ms}
    lines = [f"{name}, ms", *(f"  {label:<20} {value:>9.4f}" for label, value in parts.items())]
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


if __name__ == "__main__":
    sys.exit(main())
