"""A table of layouts that were trained alone, and what a search is worth measured on it.

Every layout of one small space is in it with the same number of seeds, all trained alike.
"""

import csv
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from training.tables import csv_of


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

    def check_whole(self, name: Path) -> None:
        """Raise ValueError where it has less than all layouts of its letters with two seeds."""
        there = {(row.layout, row.seed) for row in self.rows}
        letters = "".join(sorted(set("".join(self.layouts))))
        wanted = list(itertools.product(all_layouts(letters, len(self.layouts[0])), self.seeds))
        missing = [key for key in wanted if key not in there]
        if missing or len(self.seeds) < 2:
            example = f", such as {missing[0][0]} with seed {missing[0][1]}" if missing else ""
            raise ValueError(
                f"{name}: {len(there)} of {len(wanted)} trainings{example}, with "
                f"{len(self.seeds)} seeds; it must be whole and have 2 seeds or more: go on with "
                "`python -m tools.layoutbench make`"
            )

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
    ordered = sorted(rows, key=lambda row: (row.layout, row.seed))
    return csv_of(map(asdict, ordered), [f.name for f in fields(Row)])


def read_table(path: Path) -> LayoutTable:
    """Read a table that `as_csv` wrote.

    Raises:
        ValueError: a column is missing, a value is no number, or a row stands twice.
        OSError: it cannot be read.
    """
    try:
        rows = list(_rows(path))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    keys = [(row.layout, row.seed) for row in rows]
    if not rows or len(set(keys)) < len(keys) or len({len(row.layout) for row in rows}) > 1:
        raise ValueError(f"{path}: no rows, a row twice, or layouts of different lengths")
    return LayoutTable(tuple(sorted(rows, key=lambda row: (row.layout, row.seed))))


def _rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = [f.name for f in fields(Row)]
        if reader.fieldnames != names:
            raise ValueError(f"{path}: expected the columns {', '.join(names)}")
        for number, given in enumerate(reader, start=2):
            try:
                row = _row(given)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            yield row


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
