"""A table of layouts trained alone: every network of a small space, by one layout, all alike."""

import csv
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path

from model import BLOCKS, Network, default_candidates
from nas.derivation.base import Networks
from utils.files import csv_of, read_object


@dataclass(frozen=True, order=True)
class Row:
    """One training of one layout, given as letters.

    Nats are per token, at the best step of validation; FLOPs and latency are of a forward pass.
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
    """All rows, in order of layout and seed; of each network one layout alone."""

    rows: tuple[Row, ...]
    tie_slots: int | None = None

    def __post_init__(self) -> None:
        assert len(self._layouts) == len(self.layouts), "a network twice: see `each_network_once`"

    @property
    def layouts(self) -> list[str]:
        """Each layout once, in order."""
        return sorted({row.layout for row in self.rows})

    @cached_property
    def _layouts(self) -> dict[Network, str]:
        networks = networks_of(self.layouts, self.tie_slots)
        return {network: layout for layout, network in networks.items()}

    def layout_of(self, layout: str) -> str | None:
        """The layout under which the table has the network of this one; None where it has not."""
        if len(layout) != len(self.layouts[0]) or not set(layout) <= set(_letters()):
            return None
        return self._layouts.get(networks_of([layout], self.tie_slots)[layout])

    @property
    def seeds(self) -> list[int]:
        """The seeds, in order."""
        return sorted({row.seed for row in self.rows})

    def nats(self, split: str) -> dict[str, list[float]]:
        """A split's nats by layout, in the order of the seeds."""
        nats: dict[str, list[float]] = {layout: [] for layout in self.layouts}
        for row in sorted(self.rows):
            nats[row.layout].append(row.valid_nats if split == "valid" else row.test_nats)
        return nats

    def check_whole(self, name: Path) -> None:
        """Raise ValueError where it has less than all networks of its letters with two seeds."""
        trained = {(row.layout, row.seed) for row in self.rows}
        letters = "".join(sorted(set("".join(self.layouts))))
        every = all_layouts(letters, len(self.layouts[0]), self.tie_slots)
        wanted = list(itertools.product(every, self.seeds))
        missing = [key for key in wanted if (self.layout_of(key[0]), key[1]) not in trained]
        if missing or len(self.seeds) < 2:
            example = f", such as {missing[0][0]} with seed {missing[0][1]}" if missing else ""
            raise ValueError(
                f"{name}: {len(trained)} of {len(wanted)} trainings{example}, with "
                f"{len(self.seeds)} seeds; it must be whole and have 2 seeds or more: go on with "
                "`python -m tools.layoutbench make`"
            )

    def pooled_deviation(self, split: str) -> float:
        """The standard deviation of one training over seeds, pooled over all layouts."""
        groups = [nats for nats in self.nats(split).values() if len(nats) > 1]
        freedom = sum(len(nats) - 1 for nats in groups)
        squares = sum((len(nats) - 1) * statistics.variance(nats) for nats in groups)
        return math.sqrt(squares / freedom)


def all_layouts(alphabet: str, length: int, tie_slots: int | None = None) -> list[str]:
    """Every network of so many slots, by the first of its layouts."""
    every = ["".join(letters) for letters in itertools.product(sorted(alphabet), repeat=length)]
    first: dict[Network, str] = {}
    for layout, network in networks_of(every, tie_slots).items():
        first.setdefault(network, layout)
    return list(first.values())


def networks_of(layouts: Iterable[str], tie_slots: int | None) -> dict[str, Network]:
    """The network of each layout; ValueError where a letter stands for no kind of block."""
    letters, networks = _letters(), Networks(default_candidates(), tie_slots)
    network_of = {}
    for layout in layouts:
        if unknown := set(layout) - set(letters):
            raise ValueError(
                f"layout {layout!r}: {min(unknown)!r} stands for no kind of block; the letters are "
                f"{', '.join(letters)}"
            )
        network_of[layout] = networks.of(tuple(letters.index(letter) for letter in layout))
    return network_of


def _letters() -> list[str]:
    return [BLOCKS[candidate.kind].letter for candidate in default_candidates()]


def each_network_once(rows: Iterable[Row], tie_slots: int | None) -> list[Row]:
    """The rows, each network under the first of its layouts, with one training of each seed.

    Trainings of one network by one seed are the same training.
    """
    ordered = sorted(rows, key=lambda row: (row.layout, row.seed))
    networks = networks_of({row.layout for row in ordered}, tie_slots)
    name: dict[Network, str] = {}
    first: dict[tuple[str, int], Row] = {}
    for row in ordered:
        layout = name.setdefault(networks[row.layout], row.layout)
        first.setdefault((layout, row.seed), replace(row, layout=layout))
    return sorted(first.values(), key=lambda row: (row.layout, row.seed))


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV, in order of layout and seed."""
    ordered = sorted(rows, key=lambda row: (row.layout, row.seed))
    return csv_of(map(asdict, ordered), [field.name for field in fields(Row)])


def read_table(path: Path) -> LayoutTable:
    """Read a table that `as_csv` wrote; one of an older version may hold a network twice.

    The JSON file beside it says which slots share weights; where there is none, none do. ValueError
    where either is damaged.
    """
    try:
        rows = list(_rows(path))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    keys = [(row.layout, row.seed) for row in rows]
    if not rows or len(set(keys)) < len(keys) or len({len(row.layout) for row in rows}) > 1:
        raise ValueError(f"{path}: no rows, a row twice, or layouts of different lengths")
    tie_slots = _tie_slots(path.with_suffix(".json"))
    try:
        return LayoutTable(tuple(each_network_once(rows, tie_slots)), tie_slots)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _tie_slots(path: Path) -> int | None:
    if not path.exists():
        return None
    remedy = "repair it, or make a table of your own and give --table"
    content = read_object(path, f"it says what the table's rows belong to: {remedy}")
    model = content.get("model")
    period = model.get("tie_slots") if isinstance(model, dict) else None
    # Taken for anything else, it would merge networks that differ, or tell equal ones apart.
    if period is not None and (type(period) is not int or period < 1):
        raise ValueError(
            f"{path}: model.tie_slots: expected null or a whole number from 1, found "
            f"{period!r:.40}; {remedy}"
        )
    return period


def _rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names = [f.name for f in fields(Row)]
        if reader.fieldnames != names:
            raise ValueError(f"{path}: expected the columns {', '.join(names)}")
        for number, cells in enumerate(reader, start=2):
            try:
                row = _row(cells)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            yield row


def _row(cells: Mapping[str, str]) -> Row:
    numbers = {name: float(cells[name]) for name in ("flops_per_token", "valid_nats", "test_nats")}
    if not all(math.isfinite(value) for value in numbers.values()):
        raise ValueError("a number is not finite")
    return Row(
        layout=cells["layout"],
        seed=int(cells["seed"]),
        parameters=int(cells["parameters"]),
        latency_ms=float(cells["latency_ms"]) if cells["latency_ms"] else None,
        **numbers,
    )
