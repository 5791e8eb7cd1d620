"""A table of layouts that were trained alone, and what a search is worth measured on it.

Every layout of one small space is in it with the same number of seeds, all trained alike.
"""

import csv
import io
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, order=True)
class Row:
    """One training of one layout.

    Attributes:
        layout: its letters.
        seed: of the training.
        parameters: of the model.
        flops_per_token: of its forward pass.
        valid_nats: per token of validation, at the best step.
        test_nats: per token of test, with the same weights.
        latency_ms: of a forward pass; None where it was not measured.
    """

    layout: str
    seed: int
    parameters: int
    flops_per_token: float
    valid_nats: float
    test_nats: float
    latency_ms: float | None = None


@dataclass(frozen=True)
class LayoutTable:
    """All rows, and the layouts' means.

    Attributes:
        rows: in order of layout and seed.
    """

    rows: tuple[Row, ...]

    @property
    def layouts(self) -> list[str]:
        """Each layout once, in order."""
        return sorted({row.layout for row in self.rows})

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return sorted({row.seed for row in self.rows})

    def nats(self, split: str) -> dict[str, list[float]]:
        """A split's nats by layout, in the order of the seeds."""
        found: dict[str, list[float]] = {layout: [] for layout in self.layouts}
        for row in sorted(self.rows):
            found[row.layout].append(row.valid_nats if split == "valid" else row.test_nats)
        return found

    def missing(self, alphabet: str) -> list[str]:
        """Layouts of the space that lack a row of some seed."""
        length = len(self.rows[0].layout)
        there = {(row.layout, row.seed) for row in self.rows}
        return [
            layout
            for layout in all_layouts(alphabet, length)
            if any((layout, seed) not in there for seed in self.seeds)
        ]

    def pooled_deviation(self, split: str) -> float:
        """The standard deviation of one training over seeds, pooled over all layouts."""
        groups = [found for found in self.nats(split).values() if len(found) > 1]
        freedom = sum(len(found) - 1 for found in groups)
        squares = sum((len(found) - 1) * statistics.variance(found) for found in groups)
        return math.sqrt(squares / freedom)


def all_layouts(alphabet: str, length: int) -> list[str]:
    """Every layout of so many slots."""
    return ["".join(letters) for letters in itertools.product(sorted(alphabet), repeat=length)]


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV, in order of layout and seed."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [f.name for f in fields(Row)], lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda row: (row.layout, row.seed)):
        writer.writerow({k: "" if v is None else v for k, v in asdict(row).items()})
    return buffer.getvalue()


def read_table(path: Path) -> LayoutTable:
    """Read a table that `as_csv` wrote.

    Raises:
        ValueError: a column is missing, a value is no number, or a row stands twice.
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = [f.name for f in fields(Row)]
        if reader.fieldnames != names:
            raise ValueError(f"{path}: expected the columns {', '.join(names)}")
        rows = []
        for number, given in enumerate(reader, start=2):
            try:
                rows.append(_row(given))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from None
    keys = [(row.layout, row.seed) for row in rows]
    if not rows or len(set(keys)) < len(keys) or len({len(row.layout) for row in rows}) > 1:
        raise ValueError(f"{path}: no rows, a row twice, or layouts of different lengths")
    return LayoutTable(tuple(sorted(rows, key=lambda row: (row.layout, row.seed))))


def _row(given: Mapping[str, str]) -> Row:
    numbers = {name: float(given[name]) for name in ("flops_per_token", "valid_nats", "test_nats")}
    if not all(math.isfinite(value) for value in numbers.values()):
        raise ValueError("a number is not finite")
    return Row(
        layout=given["layout"],
        seed=int(given["seed"]),
        parameters=int(given["parameters"]),
        latency_ms=float(given["latency_ms"]) if given["latency_ms"] else None,
        **numbers,
    )
