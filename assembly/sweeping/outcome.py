"""What a trial's run directory says: its objectives, its curve, why it failed."""

import math
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assembly.results import read_result
from model import load_architecture
from training.metrics import read_rows
from utils.files import read_object, words_of

METRICS = "metrics.jsonl"
CHOSEN = "architecture.json"
NO_BITS = (
    "sweep.objectives: no bits per byte, because the tokenizer may lose text; use a lossless one "
    "(kind bpe, unigram or bytes, without lower_case)"
)
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


def search_folder(run: Path, seed: int) -> Path:
    """Where the search of a run writes."""
    return run / "search" / f"seed-{seed}"


def phase_folders(run: Path, seed: int) -> list[Path]:
    """Where the phases of a run write; that of the retraining once its architecture is chosen."""
    folders = [search_folder(run, seed)]
    # Not chosen yet; or damaged, which is for the phases to say.
    with suppress(OSError, ValueError):
        name = load_architecture(run / CHOSEN).name
        folders.append(run / "retrain" / name / f"seed-{seed}")
    return folders


def read_outcome(run: Path, seed: int, objectives: Sequence[str]) -> Found:
    """Read what search, derivation and retraining of one seed wrote.

    Raises:
        ValueError: a file is damaged, or there are no bits per byte.
        OSError: a file is missing.
    """
    chosen = run / CHOSEN
    architecture = load_architecture(chosen)
    if architecture.costs is None:
        raise ValueError(f"{chosen}: costs: missing; derive.py writes them, run the trial again")
    values = {
        "flops": architecture.costs.flops_per_token,
        "parameters": float(architecture.costs.parameters),
    }
    onehot = search_curve(run, seed, "onehot")
    if onehot or "onehot" in objectives:  # a search whose alpha stands still has no such net
        values["onehot"] = _last(onehot, run)
    if "retrained" in objectives:
        path = run / "retrain" / architecture.name / f"seed-{seed}" / "result.json"
        values["retrained"] = _bits(read_result(path)["valid"], path)
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
    """Bits per byte of validation by step of the search, as far as it is.

    Raises:
        ValueError: a row is damaged, or there are no bits per byte.
        OSError: the file is there and cannot be read.
    """
    path = search_folder(run, seed) / METRICS
    return {
        row["step"]: _bits(row, path)
        for row in read_rows(path)
        if row.get("kind") == "valid" and row.get("net") == net
    }


def reason_of(code: int, log: Path) -> str:
    """Why a trial's process failed, in one line."""
    last = last_words(log)
    if code == -signal.SIGKILL:
        return "killed from outside (SIGKILL), as the system does where memory runs out"
    if code < 0:
        return f"ended by {signal_name(-code)}: {last}"
    if re.search(r"\bMemoryError\b|out of memory|can't allocate memory|alloc_cpu", last):
        return f"out of memory: {last}"
    return f"exit code {code}: {last}"


def signal_name(number: int) -> str:
    """What a signal is called; not every number has a name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _resumes(run: Path, seed: int) -> list[str]:
    """From which steps the phases of a run went on."""
    resumes = []
    for folder in phase_folders(run, seed):
        path = folder / "environment.json"
        if not path.exists():  # nothing was searched, or retrained
            continue
        phase = path.relative_to(run).parts[0]
        entries: Any = read_object(path, "remove it").get("resumed", [])
        try:
            resumes += [f"{phase} step {int(entry['step'])}" for entry in entries]
        except (TypeError, KeyError, ValueError, OverflowError):
            raise ValueError(f"{path}: resumed: damaged; remove it") from None
    return resumes


def _last(curve: Mapping[int, float], run: Path) -> float:
    if not curve:
        raise ValueError(f"{run}: the search wrote no validation of the one-hot net")
    return curve[max(curve)]


def _bits(scores: Mapping[str, Any], path: Path) -> float:
    """The bits per byte of a validation."""
    bits = scores.get("bits_per_byte", math.nan)
    if bits is None:
        raise ValueError(NO_BITS)
    # Not isfinite: an integer of JSON may be too large for it.
    if not isinstance(bits, int | float) or not 0 <= bits <= sys.float_info.max:
        raise ValueError(f"{path}: bits_per_byte: damaged; run the trial again")
    return float(bits)


def last_words(log: Path) -> str:
    """The last line of the last attempt that says something; of a long error, its first one."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return words_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begins = [place for place, line in enumerate(lines) if line.startswith(_ATTEMPT)]
    lines = lines[begins[-1] + 1 :] if begins else lines
    errors = [line for line in lines if re.match(r"[A-Za-z_.]*(Error|Exception)\b", line)]
    words = errors[-1] if errors else (lines[-1] if lines else "no word in its log")
    return words[:300]
