"""The commands that make a run, read from what it left in its folder.

Not from what was typed: a phase keeps its whole experiment, and of several commands that came to
one result the last one counts.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from model import load_architecture
from pipeline.compare import EXPERIMENT as COMPARED
from pipeline.experiment import load_experiment
from pipeline.pareto import EXPERIMENT as PARETO
from pipeline.pareto import SUMMARY
from pipeline.run_files import MODEL_FOLDER, phase_folders, read_result, retrain_folder
from utils.files import read_object

CHOSEN, COMPARISON, TOGETHER = "architecture.json", "comparison.json", "search/caveats.json"


class Command(BaseModel):
    """One command: a verb, its experiment as a file below the run, and on what it ran.

    `architecture` is a file below the run as `experiment` is; `cost` is that of a front, and
    `front` says that a comparison has its layouts too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    verb: Literal["search", "derive", "retrain", "compare"]
    experiment: str
    seeds: tuple[int, ...] = ()
    architecture: str | None = None
    cost: str | None = Field(default=None, pattern="^[a-z_]{1,40}$")
    front: bool = False
    threads: int | None = Field(default=None, ge=1, le=4096)
    ranks: int = Field(default=1, ge=1, le=4096)

    def arguments(self, files: Path, run: Path, settings: Sequence[str] = ()) -> list[str]:
        """Arguments behind the verb, where the run's own files lie in `files`."""
        given = [str(files / self.experiment), "--run", str(run)]
        if self.seeds:
            given += ["--seeds", ",".join(map(str, self.seeds))]
        if self.cost is not None:
            given += ["--pareto", self.cost]
        if self.front:
            given.append("--pareto")
        if self.architecture is not None:
            given += ["--architecture", str(files / self.architecture)]
        threads = [] if self.threads is None else [f"run.threads={self.threads}"]
        return given + [part for text in [*threads, *settings] for part in ("--set", text)]

    def line(self, files: Path, run: Path) -> str:
        """The command for a person."""
        several = ["torchrun", "--nproc_per_node", str(self.ranks), "--"]
        program = several if self.ranks > 1 else ["python"]
        return shlex.join([*program, f"{self.verb}.py", *self.arguments(files, run)])


def commands_of(run: Path) -> list[Command]:
    """The commands in the order that made the run; ValueError where a phase is not done."""
    found = [*_searches(run), *_derivations(run), *_retrainings(run), *_comparison(run)]
    if not found:
        raise ValueError(
            f"{run}: no search, layout or training of a run in it; a sweep's trials are runs, and "
            "each can be packed"
        )
    return found


def _read(path: Path) -> dict[str, Any]:
    return read_object(path, "run the command that writes it again")


def _command(run: Path, folder: Path, **parts: Any) -> Command:
    """The command of a phase by its own experiment, on as many threads and processes as it had."""
    facts = _read(folder / "environment.json")
    experiment = (folder / "experiment.yaml").relative_to(run).as_posix()
    threads, ranks = facts.get("threads"), facts.get("ranks", 1)
    return Command(experiment=experiment, threads=threads, ranks=ranks, **parts)


def _searches(run: Path) -> Iterator[Command]:
    """Each search with the threads it had, then those that were searched together."""
    for folder in phase_folders(run):
        if folder.parent.name == "search":
            if not (folder / "pi.csv").exists():
                raise ValueError(f"{folder}: not done; go on with search.py, or move it away")
            yield _command(run, folder, verb="search")
    entries = _read(run / TOGETHER)["together"] if (run / TOGETHER).exists() else []
    for seeds in (entry["searches"] for entry in entries):
        if len(seeds) > 1:
            folder = run / "search" / f"seed-{seeds[0]}"
            yield _command(run, folder, verb="search", seeds=tuple(seeds))


def _derivations(run: Path) -> Iterator[Command]:
    # Those of the first phase: a derivation scores layouts on as many as its process has.
    folders = phase_folders(run)
    threads = _read(folders[0] / "environment.json").get("threads") if folders else None
    if (run / SUMMARY).exists():
        cost = _read(run / SUMMARY)["cost"]
        yield Command(verb="derive", experiment=PARETO, cost=cost, threads=threads)
    if (run / CHOSEN).exists():
        name = load_architecture(run / CHOSEN).name
        yield Command(verb="derive", experiment=f"architectures/{name}.yaml", threads=threads)


def _compared(run: Path) -> list[str]:
    """The networks of the comparison, the chosen one first; none where there is no comparison."""
    if not (run / COMPARISON).exists():
        return []
    names = list(_read(run / COMPARISON)["results"])
    chosen = load_architecture(run / CHOSEN).name
    if names[0] != chosen:
        raise ValueError(
            f"{run / COMPARISON}: compares {names[0]}, but {chosen} was chosen since; compare again"
        )
    return names


def _retrainings(run: Path) -> Iterator[Command]:
    """The chosen layout's by retrain.py, then those of layouts that no comparison trains."""
    compared, seeds = _compared(run), set[int]()
    if compared:
        seeds = set(load_experiment(run / COMPARED).compare.seeds)
    carried = _carried(run)
    if carried is not None:
        yield _command(run, carried, verb="retrain")
    for folder in phase_folders(run):
        if folder.parent.parent.name != "retrain" or folder == carried:
            continue
        if not (folder / "result.json").exists():
            raise ValueError(f"{folder}: not done; go on with retrain.py, or move it away")
        seed = int(folder.name.removeprefix("seed-"))
        if folder.parent.name not in compared or seed not in seeds:
            file = (folder / CHOSEN).relative_to(run).as_posix()
            yield _command(run, folder, verb="retrain", architecture=file)


def _carried(run: Path) -> Path | None:
    """The training whose model is RUN/model, where that is of the chosen layout."""
    path = run / MODEL_FOLDER / "result.json"
    if not path.exists() or not (run / CHOSEN).exists():
        return None
    result = read_result(path)
    folder = retrain_folder(run, result["name"], result["seed"])
    known = folder in phase_folders(run)
    return folder if known and result["name"] == load_architecture(run / CHOSEN).name else None


def _comparison(run: Path) -> Iterator[Command]:
    names = _compared(run)
    if not names:
        return
    seed = load_experiment(run / COMPARED).compare.seeds[0]
    # The last one that was trained by it: of the chosen one retrain.py may have had others.
    threads = _read(retrain_folder(run, names[-1], seed) / "environment.json").get("threads")
    front = '"role": "front"' in json.dumps(_read(run / COMPARISON)["rows"])
    yield Command(verb="compare", experiment=COMPARED, front=front, threads=threads)
