"""What a trial's run directory says: its objectives, its curve, why it failed."""

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assembly.results import read_result
from model import load_architecture
from training.files import read_object
from training.metrics import read_rows

_TAIL_BYTES = 20_000
_ATTEMPT = "--- attempt"  # begins the line that a trial's process writes before anything else


@dataclass(frozen=True)
class Found:
    """What one run of a trial came to.

    Attributes:
        objectives: by name.
        facts: layout, sizes and where it went on, for the table.
        architecture: the JSON text of the derived model.
    """

    objectives: dict[str, float]
    facts: dict[str, Any]
    architecture: str


def read_outcome(run: Path, seed: int, objectives: Sequence[str]) -> Found:
    """Read what search, derivation and retraining of one seed wrote.

    Raises:
        ValueError: a file is damaged, or there are no bits per byte.
        OSError: a file is missing.
    """
    architecture = load_architecture(run / "architecture.json")
    assert architecture.costs is not None, "derive.py writes costs"
    values = {
        "flops": architecture.costs.flops_per_token,
        "parameters": float(architecture.costs.parameters),
    }
    onehot = search_curve(run, seed, "onehot")
    if onehot or "onehot" in objectives:  # a search whose alpha stands still has no such net
        values["onehot"] = _last(onehot, run)
    if "retrained" in objectives:
        result = read_result(run / "retrain" / architecture.name / f"seed-{seed}" / "result.json")
        values["retrained"] = _bits(result["valid"]["bits_per_byte"])
    return Found(
        objectives=values,
        facts={
            "layout": architecture.letters(),
            "parameters": architecture.costs.parameters,
            "flops_per_token": architecture.costs.flops_per_token,
            "went_on_from": _resumes(run, seed),
        },
        architecture=architecture.to_json(),
    )


def search_curve(run: Path, seed: int, net: str) -> dict[int, float]:
    """Bits per byte of validation by step of the search, as far as it is."""
    path = run / "search" / f"seed-{seed}" / "metrics.jsonl"
    return {
        row["step"]: _bits(row.get("bits_per_byte"))
        for row in read_rows(path)
        if row.get("kind") == "valid" and row.get("net") == net
    }


def reason_of(code: int, log: Path) -> str:
    """Why a trial's process failed, in one line."""
    last = last_words(log)
    if code == -signal.SIGKILL:
        return "killed from outside (SIGKILL), as the system does where memory runs out"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}: {last}"
    if re.search(r"\bMemoryError\b|out of memory|can't allocate memory|alloc_cpu", last):
        return f"out of memory: {last}"
    return f"exit code {code}: {last}"


def _resumes(run: Path, seed: int) -> list[str]:
    """From which steps the phases of a run went on."""
    found = []
    for path in sorted(run.glob(f"*/**/seed-{seed}/environment.json")):
        phase = path.relative_to(run).parts[0]
        entries: Any = read_object(path, "remove it").get("resumed", [])
        found += [f"{phase} step {entry['step']}" for entry in entries]
    return found


def _last(curve: Mapping[int, float], run: Path) -> float:
    if not curve:
        raise ValueError(f"{run}: the search wrote no validation of the one-hot net")
    return curve[max(curve)]


def _bits(value: float | None) -> float:
    if value is None:
        raise ValueError(
            "sweep.objectives: no bits per byte, because the tokenizer may lose text; "
            "use a lossless one (bpe, unigram, bytes)"
        )
    return value


def last_words(log: Path) -> str:
    """The last line of the last attempt that says something; of a long error, its first one."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begins = [place for place, line in enumerate(lines) if line.startswith(_ATTEMPT)]
    lines = lines[begins[-1] + 1 :] if begins else lines
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    words = errors[-1] if errors else (lines[-1] if lines else "no word in its log")
    return words[:300]
