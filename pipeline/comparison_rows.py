"""The rows of a comparison: means over seeds, and what each has of the others' costs."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from nas.opponents.equal_cost import is_equal
from nas.statistics.intervals import at_cost, paired_differences, paired_interval
from pipeline.contestants import Contestant
from training.evaluation import Evaluation

Row = dict[str, Any]
Results = Sequence[Mapping[str, Any]]
COLUMNS = (
    "name",
    "role",
    "layout",
    "n",
    "parameters",
    "flops_per_token",
    "latency_ms",
    "train_step_ms",
    "relative_latency",
    "nats_per_token",
    "perplexity",
    "relative_perplexity",
    "bits_per_byte",
    "word_perplexity",
    "valid_nats_per_token",
    "equal",
)
# What a row may have as much of as the chosen layout, by the word in the column `equal`.
_EQUALS = {
    "parameters": "parameters",
    "FLOPs": "flops_per_token",
    "latency": "latency_ms",
    "training": "train_step_ms",
}


def rows_of(
    entries: Sequence[Contestant],
    results: Mapping[str, Results],
    latency_ms: Mapping[str, float],
    train_step_ms: Mapping[str, float],
) -> list[Row]:
    """One row for each contestant, the chosen layout first."""
    rows = []
    for entry in entries:
        name = entry.architecture.name
        times = {"latency_ms": latency_ms.get(name), "train_step_ms": train_step_ms.get(name)}
        rows.append(_row(entry, results[name]) | times)
    base = rows[reference_of(entries)]
    return [row | _beside(row, base) | {"equal": _equal(row, rows[0])} for row in rows]


def reference_of(entries: Sequence[Contestant]) -> int:
    """The place of the row that others are multiples of: `interleaved`, or else the first one."""
    places = (at for at, entry in enumerate(entries) if "interleaved" in entry.kinds)
    return next(places, 0)


def saved(rows: Sequence[Row], reference: Row, nats: Mapping[str, Sequence[float]]) -> list[str]:
    """What the chosen layout costs and gives up beside the reference; none where that is itself.

    By latency, or where none was measured by FLOPs.
    """
    chosen, name, key = rows[0], "latency", "latency_ms"
    if chosen["name"] == reference["name"]:
        return []
    if chosen[key] is None or reference[key] is None:
        name, key = "FLOPs", "flops_per_token"
    share = chosen[key] / reference[key]
    ones, others = nats[chosen["name"]], nats[reference["name"]]
    return [at_cost(share, name, reference["name"], ones, others)]


def intervals_of(chosen: str, nats: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """95% intervals over the seeds, and what is shown, by layout; nothing of a single seed.

    `nats_per_token`: of the mean, as [low, high]. Of all but the chosen layout also
    `chosen_less_it`: the chosen layout's nats less this one's, paired by seed, as [mean, low,
    high]; `p`: of that difference, by Holm's method over all of them; and by it `shown`: what the
    chosen layout is beside this one, `better`, `worse` or `nothing`.
    """
    if len(nats[chosen]) < 2:
        return {}
    intervals = dict[str, dict[str, Any]]()
    for name, of_seeds in nats.items():
        mean, half = paired_interval(of_seeds)
        intervals[name] = {"nats_per_token": [mean - half, mean + half]}
    others = {name: of_seeds for name, of_seeds in nats.items() if name != chosen}
    for name, found in paired_differences(nats[chosen], others).items():
        less = [found.mean, *found.interval]
        intervals[name] |= {"chosen_less_it": less, "p": found.p, "shown": found.shown}
    return intervals


def _row(entry: Contestant, results: Results) -> Row:
    """Means over seeds of nats and bits per byte; perplexity is exp of the mean nats."""

    def mean(split: str, measure: str) -> float:
        return statistics.fmean(result[split][measure] for result in results)

    test = results[0]["test"]
    nats = mean("test", "nats_per_token")
    total = Evaluation(
        nats=nats * test["tokens"],
        tokens=test["tokens"],
        bytes=test["bytes"],
        words=test.get("words"),
    )
    return {
        "name": entry.architecture.name,
        "role": entry.role,
        "layout": entry.architecture.letters(),
        "n": len(results),
        "parameters": results[0]["parameters"],
        "flops_per_token": results[0]["flops_per_token"],
        "nats_per_token": nats,
        "perplexity": total.perplexity,
        "bits_per_byte": total.bits_per_byte,
        "word_perplexity": total.word_perplexity,
        "valid_nats_per_token": mean("valid", "nats_per_token"),
    }


def _beside(row: Row, base: Row) -> Row:
    def times(key: str) -> float | None:
        return None if None in (row[key], base[key]) else row[key] / base[key]

    return {
        "relative_latency": times("latency_ms"),
        "relative_perplexity": times("perplexity"),
    }


def _equal(row: Row, chosen: Row) -> str:
    """What a row has as much of as the chosen layout, but for the tolerance."""
    return " ".join(
        word
        for word, key in _EQUALS.items()
        if None not in (row[key], chosen[key]) and is_equal(row[key] / chosen[key])
    )
