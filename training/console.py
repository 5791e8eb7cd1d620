"""What a person sees while a phase runs: a bar on a terminal, plain lines elsewhere, train.log."""

import time
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from utils.files import append_line
from utils.screen import announce
from utils.text import duration

_MOST_SHOWN = 16
_NETS = {"soft": ", mixture by pi", "onehot": ", likeliest layout", "drawn": ", random layouts"}
_HEADER = f"{'iteration':>10} {'train ppl':>10} {'valid ppl':>10} {'time':>8}"


def bits(row: Mapping[str, Any]) -> str:
    """', 1.2345 bits/byte' of an evaluation's row; nothing where text may be lost."""
    value = row["bits_per_byte"]
    return "" if value is None else f", {value:.4f} bits/byte"


def _in_short(values: Sequence[float]) -> str:
    """The numbers in three digits, or the ends of many."""
    shown = [f"{value:.3g}" for value in values]
    if len(shown) <= _MOST_SHOWN:
        return " ".join(shown)
    return f"{min(values):.3g} to {max(values):.3g} ({len(values)})"


class Screen:
    """Progress of one phase on the screen and in its train.log.

    `log` is None in processes beside the first one, which show nothing. `start` steps are done
    already. The time that is left is reckoned by the `work` of each step, in any unit.
    """

    def __init__(self, log: Path | None, *, title: str, start: int, work: Sequence[float]) -> None:
        self._log, self._title = log, title
        self._steps, self._start = len(work), start
        self._work_N = np.concatenate([[0.0], np.cumsum(work)])
        self._began = time.monotonic()
        # None: on a terminal alone.
        disable = None if log is not None else True
        self._bar = tqdm(
            total=self._steps, initial=start, desc=title, unit="step", disable=disable, leave=True
        )
        self._table_started = False

    def say(self, text: str, heard: Set[str] = frozenset()) -> None:
        """One message, in train.log; on the screen without indented lines and what was heard."""
        self._bar.clear()
        new = [line for line in text.splitlines() if line not in heard]
        short = [line for line in new if not line.startswith("  ")]
        self._show("\n".join([*short, *[f"details: {self._log}"] * (short != new)]))
        self._record(text)

    def _show(self, text: str) -> None:
        if self._log is not None:
            announce(text)

    def _record(self, text: str) -> None:
        if self._log is not None:
            append_line(self._log, text)

    def advance(self, step: int) -> None:
        """Move the bar to a step."""
        self._bar.update(step - self._bar.n)

    def train_line(self, row: dict[str, Any]) -> None:
        """Show one training row: loss, perplexity, how undecided pi is, tokens/s, time left."""
        shown = {"loss": f"{row['loss_nats']:.3f}", "perplexity": f"{row['perplexity']:.1f}"}
        if "kl_nats" in row:
            shown["KL"] = f"{row['kl_nats']:.3f}"
        if "entropy" in row:
            shown["undecided"] = f"{row['entropy']:.0%}"
        shown["tokens/s"] = f"{row['tokens_per_s']:,.0f}"
        self._bar.set_postfix(shown)
        done = self._work_N[row["step"]]
        left_over_done = (self._work_N[-1] - done) / (done - self._work_N[self._start])
        left_s = (time.monotonic() - self._began) * float(left_over_done)
        line = f"{self._title} {row['step']:>6}/{self._steps}  " + "  ".join(
            f"{name} {value}" for name, value in shown.items()
        )
        line += f"  {duration(left_s)} left"
        if self._bar.disable:
            self._show(line)
        self._record(line)

    def valid_line(self, row: dict[str, Any], train_perplexity: float | None) -> None:
        """Show one validation and add its row to the table of train.log."""
        net = _NETS.get(row["net"], "")
        self._bar.clear()
        self._show(
            f"{self._title} {row['step']:>6}/{self._steps}  validation{net}: "
            f"perplexity {row['perplexity']:.2f} ({row['nats_per_token']:.4f} nats/token"
            f"{bits(row)}) on {row['tokens']:,} tokens"
        )
        if not self._table_started:
            self._record(_HEADER)
            self._table_started = True
        train = "-" if train_perplexity is None else f"{train_perplexity:.2f}"
        self._record(
            f"{row['step']:>10} {train:>10} {row['perplexity']:>10.2f} "
            f"{duration(row['elapsed_s']):>8}{net}"
        )

    def block_lines(self, step: int, blocks: Sequence[Mapping[str, Any]]) -> None:
        """Show what blocks say of themselves: a line for each label and name, slot by slot."""
        parts: dict[str, list[str]] = {}
        for block in blocks:
            for name, values in block["numbers"].items():
                slots = parts.setdefault(f"{block['label']}, {name}", [])
                slots.append(f"block {block['block']}: {_in_short(values)}")
        for what, slots in parts.items():
            line = f"{self._title} {step:>6}/{self._steps}  {what}: {'; '.join(slots)}"
            self._show(line)
            self._record(line)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()
