"""Files of a run: its folders and their names, the commands that made it, saved models."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from data import Tokenizer, load_tokenizer
from model.architecture import MODEL, check_model_folder
from pipeline.cli import INTERPRETER_IN_FILES, is_run_folder, resume_command
from utils.files import append_line, read_object, read_rows, why_not_ours, write_whole

if TYPE_CHECKING:
    from model import Architecture
    from pipeline.experiment import Experiment

# What made the run, a line each.
COMMANDS = "commands.jsonl"
MOST_NAME = 60
# What a model folder of ours may hold; what holds more is not replaced.
MODEL_FILES = frozenset({*MODEL, "tokenizer.model", "result.json"})
# How a text is cut where the model's own test does not say.
CUT = {"streams": 8, "segment": 64, "context": 0}
_CHECKPOINT = re.compile(r"(last|best-\d+)\.safetensors")


def short_text(text: str) -> str:
    """The text; of a long one its beginning and its hash, so that a file may be called so."""
    if len(text) <= MOST_NAME:
        return text
    return f"{text[: MOST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def layout_name(layout: str) -> str:
    """A layout as part of a file name: letters without blanks, a long one with its hash."""
    words = layout.split()
    return short_text(("" if all(len(word) == 1 for word in words) else "-").join(words))


def search_folder(run: Path, seed: int) -> Path:
    """Where the search of a seed writes."""
    return run / "search" / f"seed-{seed}"


def retrain_folder(run: Path, name: str, seed: int) -> Path:
    """Where the retraining of an architecture, by its name, with a seed writes."""
    return run / "retrain" / name / f"seed-{seed}"


def chosen_architecture(run_dir: Path) -> "Architecture":
    """The architecture that derive.py chose; ValueError where there is none."""
    from model import load_architecture

    path = run_dir / "architecture.json"
    if not path.exists():
        raise ValueError(
            f"{path}: not found; run derive.py {run_dir} first (with --method "
            "trained or interleaved it needs no search)"
        )
    return load_architecture(path)


def phase_folders(run: Path) -> list[Path]:
    """The folders of the searches and trainings that a run has, by name."""
    return [path.parent for path in sorted(run.glob("search/seed-*/identity.json"))] + [
        path.parent for path in sorted(run.glob("retrain/*/seed-*/identity.json"))
    ]


def unfinished(run: Path) -> list[Path]:
    """The folders of its searches and trainings that have not come to their end."""
    ends = {"search": "pi.csv", "retrain": "result.json"}
    phases = ((path, path.relative_to(run).parts[0]) for path in phase_folders(run))
    return [path for path, phase in phases if not (path / ends[phase]).exists()]


def record_command(run: Path, experiment: "Experiment") -> None:
    """Add the command of this process, and its experiment, to those that made the run.

    One that is given again at once, as after Ctrl-C, stands there once.
    """
    row = {
        "command": resume_command(INTERPRETER_IN_FILES),
        "experiment": experiment.model_dump(mode="json", exclude={"sweep"}),
    }
    path = run / COMMANDS
    if (rows := read_rows(path))[-1:] != [row]:
        if path.exists() and not path.read_bytes().endswith(b"\n"):
            # Behind a line that a full disk has torn a further one would be lost with it.
            write_whole(path, "".join(json.dumps(each) + "\n" for each in rows))
        append_line(path, json.dumps(row))


def run_folders(run_dir: Path) -> Callable[[Path], bool]:
    """Whether a folder is a run folder: this command's, also before it is written, or another."""
    here = run_dir.resolve()
    return lambda folder: folder == here or folder.resolve() == here or is_run_folder(folder)


@dataclass(frozen=True)
class Saved:
    """A model folder; `cut` as in its own test, tokens of the shorter of test and validation."""

    folder: Path
    architecture: "Architecture"
    tokenizer: Tokenizer
    cut: dict[str, int]
    scored_tokens: int | None


def read_model_folder(folder: Path) -> Saved:
    """Read all of a model folder but the weights; ValueError where they do not fit together."""
    from model import load_architecture

    check_model_folder(folder)
    architecture = load_architecture(folder / "architecture.json")
    tokenizer = load_tokenizer(folder)
    own = (tokenizer.digest, tokenizer.vocabulary_size)
    if own != (architecture.tokenizer.digest, architecture.vocabulary_size):
        raise ValueError(
            f"{folder}: the tokenizer (digest {own[0][:12]}, {own[1]} ids) is not the one that the "
            "model was trained with; copy the whole folder again"
        )
    path = result_of_model(folder)
    result = {} if path is None else read_object(path)
    cut = {**CUT, **result.get("evaluation", {})}
    scored = [result[split]["tokens"] for split in ("valid", "test") if split in result]
    return Saved(folder, architecture, tokenizer, cut, min(scored, default=None))


def result_of_model(folder: Path) -> Path | None:
    """The result.json in or above a model folder; None where there is none."""
    paths = (folder / "result.json", folder.parent / "result.json")
    return next((path for path in paths if path.is_file()), None)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a training that is done; its model stays."""
    for path in folder.iterdir():
        if _CHECKPOINT.fullmatch(path.name):
            path.unlink(missing_ok=True)


def remove_weights(run: Path) -> None:
    """Remove checkpoints and models of a run that is done; several processes may do so at once.

    What no training wrote stays.
    """
    phases = phase_folders(run)
    for phase in phases:
        remove_checkpoints(phase)
    for model in (folder / "model" for folder in (run, *phases)):
        if why_not_ours(model, MODEL_FILES) is None:
            shutil.rmtree(model, ignore_errors=True)
