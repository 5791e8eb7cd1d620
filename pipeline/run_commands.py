"""The commands that make a run, read from what it left in its folder.

Not from what was typed: a phase keeps its whole experiment, and of several commands that came to
one result the last one counts.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model import load_architecture
from pipeline.compare import EXPERIMENT as COMPARED
from pipeline.experiment import load_experiment
from pipeline.pareto import EXPERIMENT as PARETO
from pipeline.pareto import SUMMARY
from pipeline.run_files import MODEL_FOLDER, phase_folders, read_result, retrain_folder
from utils.files import read_object
from utils.validation import first_problem

_LAST_WRITTEN = "architectures/experiment.yaml"
_REMEDY = "repair it, or run the command that writes it again"


class Command(BaseModel):
    """One command: a verb, its experiment as a file below the run, and on what it ran.

    `architecture` is a file below the run as `experiment` is; `cost` is that of a front, and
    `front` says that a comparison has its layouts too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    verb: Literal["search", "derive", "retrain", "compare"]
    experiment: str = Field(max_length=1000)
    seeds: tuple[int, ...] = Field(default=(), max_length=1000)
    architecture: str | None = Field(default=None, max_length=1000)
    cost: str | None = Field(default=None, pattern="^[a-z_]{1,40}$")
    front: bool = False
    threads: int | None = Field(default=None, ge=1, le=4096)
    ranks: int = Field(default=1, ge=1, le=4096)

    def arguments(self, files: Path, run: Path, settings: Sequence[str] = ()) -> list[str]:
        """What stands behind the verb, where the run's own files lie in `files`."""
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
    """The commands in the order in which they made the run.

    Raises:
        ValueError: a phase is not done, a file is damaged, or files do not fit together.
    """
    found = [*_searches(run), *_derivations(run), *_retrainings(run), *_comparison(run)]
    if not found:
        raise ValueError(
            f"{run}: no search, layout or training of a run in it; a sweep's trials are runs, and "
            "each can be packed"
        )
    return found


def environment_of(folder: Path) -> dict[str, Any]:
    """What a phase ran on; ValueError where the file is damaged or not there."""
    path = folder / "environment.json"
    if not path.is_file():
        raise ValueError(f"{path}: not found, so nothing says on what the phase ran")
    return read_object(path, _REMEDY)


def _command(run: Path, folder: Path, **parts: Any) -> Command:
    """The command of a phase by its own experiment, on as many threads and processes as it had."""
    facts = environment_of(folder)
    experiment = (folder / "experiment.yaml").relative_to(run).as_posix()
    try:
        return Command(
            experiment=experiment,
            threads=facts.get("threads"),
            ranks=facts.get("ranks", 1),
            **parts,
        )
    except ValidationError as error:
        raise ValueError(f"{folder / 'environment.json'}: {first_problem(error)}") from None


def _seed(folder: Path) -> int:
    digits = folder.name.removeprefix("seed-")
    if not digits.isdecimal():
        raise ValueError(f"{folder}: no folder of a seed; move it away")
    return int(digits)


def _searches(run: Path) -> Iterator[Command]:
    """One command for each set of seeds that were searched together, then those that are left."""
    folders = {_seed(path.parent): path.parent for path in run.glob("search/seed-*/identity.json")}
    for folder in folders.values():
        if not (folder / "pi.csv").exists():
            raise ValueError(f"{folder}: not done; go on with search.py, or move it away")
    left, joint = sorted(folders), run / "search" / "caveats.json"
    entries: Any = read_object(joint, _REMEDY).get("together") if joint.exists() else []
    for entry in entries if isinstance(entries, list) else []:
        seeds: Any = entry.get("searches") if isinstance(entry, dict) else None
        if not isinstance(seeds, list) or not seeds or not set(seeds) <= folders.keys():
            raise ValueError(f"{joint}: does not fit the searches beside it; {_REMEDY}")
        # Each with the threads it had, before the command of all, which finds them done.
        if len({environment_of(folders[seed]).get("threads") for seed in seeds}) > 1:
            yield from (_search(run, folders[seed]) for seed in seeds)
        yield _search(run, folders[seeds[0]], seeds if len(seeds) > 1 else ())
        left = [seed for seed in left if seed not in seeds]
    yield from (_search(run, folders[seed]) for seed in left)


def _search(run: Path, folder: Path, seeds: Sequence[int] = ()) -> Command:
    return _command(run, folder, verb="search", seeds=tuple(seeds))


def _threads(run: Path) -> int | None:
    """Those of the first phase: a derivation scores layouts on as many as its process has.

    What it trains says nothing of them: each of its trainings has one thread at any setting.
    """
    folders = phase_folders(run)
    return environment_of(folders[0]).get("threads") if folders else None


def _derivations(run: Path) -> Iterator[Command]:
    if (run / SUMMARY).exists():
        cost = read_object(run / SUMMARY, _REMEDY).get("cost")
        experiment = _kept(run, PARETO)
        yield Command(verb="derive", experiment=experiment, cost=cost, threads=_threads(run))
    if (run / "architecture.json").exists():
        name = load_architecture(run / "architecture.json").name
        own = f"architectures/{name}.yaml"
        experiment = _kept(run, own)
        method = load_experiment(run / experiment).derive.method
        if experiment != own and not name.startswith(method):
            raise ValueError(
                f"{run}: nothing says how {name} was derived (it was by an older version, and "
                f"{_LAST_WRITTEN} has derive.method {method}); derive it again, as before"
            )
        yield Command(verb="derive", experiment=experiment, threads=_threads(run))


def _kept(run: Path, name: str) -> str:
    """The experiment of a command that has no folder; older versions kept one for all."""
    found = name if (run / name).exists() else _LAST_WRITTEN
    if not (run / found).exists():
        raise ValueError(f"{run / found}: not found, so nothing says how the run was made")
    return found


def compared_names(run: Path) -> list[str]:
    """The networks of the comparison, the chosen one first; none where there is no comparison.

    Raises:
        ValueError: it is damaged, or of another layout than the one that is chosen now.
    """
    path = run / "comparison.json"
    if not path.exists():
        return []
    results: Any = read_object(path, _REMEDY).get("results")
    if not isinstance(results, dict) or not results:
        raise ValueError(f"{path}: results: expected one for each network; {_REMEDY}")
    chosen = load_architecture(run / "architecture.json").name
    if (first := next(iter(results))) != chosen:
        raise ValueError(f"{path}: compares {first}, but {chosen} was chosen since; compare again")
    return list(results)


def _retrainings(run: Path) -> Iterator[Command]:
    """Of the chosen layout by retrain.py, then of layouts that no comparison trains."""
    compared = compared_names(run)
    seeds = set[int]()
    if compared:
        seeds = set(load_experiment(run / _kept(run, COMPARED)).compare.seeds)
    carried = _carried(run)
    if carried is not None:
        yield _command(run, carried, verb="retrain")
    for folder in phase_folders(run):
        if folder.parent.parent.name != "retrain" or folder == carried:
            continue
        if not (folder / "result.json").exists():
            raise ValueError(f"{folder}: not done; go on with retrain.py, or move it away")
        if folder.parent.name not in compared or _seed(folder) not in seeds:
            file = (folder / "architecture.json").relative_to(run).as_posix()
            yield _command(run, folder, verb="retrain", architecture=file)


def _carried(run: Path) -> Path | None:
    """The training whose model is RUN/model, where that is of the chosen layout."""
    path = run / MODEL_FOLDER / "result.json"
    if not path.exists() or not (run / "architecture.json").exists():
        return None
    result = read_result(path)
    folder = retrain_folder(run, result["name"], result["seed"])
    chosen = load_architecture(run / "architecture.json").name
    known = folder in phase_folders(run)
    return folder if known and result["name"] == chosen else None


def _comparison(run: Path) -> Iterator[Command]:
    names = compared_names(run)
    if not names:
        return
    experiment = _kept(run, COMPARED)
    seed = load_experiment(run / experiment).compare.seeds[0]
    # The last one that was trained by it: of the chosen one retrain.py may have had others.
    facts = environment_of(retrain_folder(run, names[-1], seed))
    rows = read_object(run / "comparison.json", _REMEDY).get("rows")
    front = '"role": "front"' in json.dumps(rows)
    threads = facts.get("threads")
    yield Command(verb="compare", experiment=experiment, front=front, threads=threads)
