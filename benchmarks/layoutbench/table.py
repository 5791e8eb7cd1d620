"""A table of layouts trained alone: every network of a small space, by one layout, all alike."""

import csv
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from model import BLOCKS, Network, default_candidates
from nas.derivation.base import Networks


@dataclass(frozen=True, order=True)
class Row:
    """One training of one layout, in letters; nats per token at the best step of validation."""

    layout: str
    seed: int
    flops_per_token: float
    valid_nats: float
    test_nats: float


@dataclass(frozen=True)
class LayoutTable:
    """All rows, in order of layout and seed; of each network one layout alone."""

    rows: tuple[Row, ...]
    tie_blocks: int | None = None

    def __post_init__(self) -> None:
        assert len(self._layouts) == len(self.layouts), "a network twice"

    @property
    def layouts(self) -> list[str]:
        """Each layout once, in order."""
        return sorted({row.layout for row in self.rows})

    @cached_property
    def _layouts(self) -> dict[Network, str]:
        networks = networks_of(self.layouts, self.tie_blocks)
        return {network: layout for layout, network in networks.items()}

    def layout_of(self, layout: str) -> str | None:
        """The layout under which the table has the network of this one; None where it has not."""
        if len(layout) != len(self.layouts[0]) or not set(layout) <= set(_letters()):
            return None
        return self._layouts.get(networks_of([layout], self.tie_blocks)[layout])

    def among(self, other: "LayoutTable") -> "LayoutTable":
        """The rows of networks that another table has too."""
        return replace(self, rows=tuple(row for row in self.rows if other.layout_of(row.layout)))

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

    def mean_nats(self, split: str) -> Mapping[str, float]:
        """Each layout's mean over seeds."""
        return {layout: statistics.fmean(nats) for layout, nats in self.nats(split).items()}

    def pooled_deviation(self, split: str) -> float:
        """The standard deviation of one training over seeds, pooled over all layouts."""
        groups = [nats for nats in self.nats(split).values() if len(nats) > 1]
        freedom = sum(len(nats) - 1 for nats in groups)
        squares = sum((len(nats) - 1) * statistics.variance(nats) for nats in groups)
        return math.sqrt(squares / freedom)


def all_layouts(alphabet: str, length: int, tie_blocks: int | None = None) -> list[str]:
    """Every network of so many slots, by the first of its layouts."""
    every = ["".join(letters) for letters in itertools.product(sorted(alphabet), repeat=length)]
    first: dict[Network, str] = {}
    for layout, network in networks_of(every, tie_blocks).items():
        first.setdefault(network, layout)
    return list(first.values())


def networks_of(layouts: Iterable[str], tie_blocks: int | None) -> dict[str, Network]:
    """The network of each layout; ValueError where a letter stands for no kind of block."""
    letters, networks = _letters(), Networks(default_candidates(), tie_blocks)
    return {
        layout: networks.of(tuple(letters.index(letter) for letter in layout)) for layout in layouts
    }


def _letters() -> list[str]:
    return [BLOCKS[candidate.kind].letter for candidate in default_candidates()]


def read_table(path: Path) -> LayoutTable:
    """Read the rows of a CSV; the JSON file beside it, if any, says which slots share weights."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            Row(
                cells["layout"],
                int(cells["seed"]),
                *(float(cells[name]) for name in ("flops_per_token", "valid_nats", "test_nats")),
            )
            for cells in csv.DictReader(file)
        ]
    beside, tie_blocks = path.with_suffix(".json"), None
    if beside.exists():
        content = json.loads(beside.read_text(encoding="utf-8"))
        tie_blocks = content.get("model", {}).get("tie_blocks")
    return LayoutTable(tuple(sorted(rows)), tie_blocks)
