"""A run in one archive: its text files, their hashes, and the commands that made it."""

import json
import os
import shlex
import stat
import zipfile
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from model import load_architecture
from pipeline.compare import EXPERIMENT as COMPARED
from pipeline.experiment import load_experiment
from pipeline.pareto import EXPERIMENT as PARETO
from pipeline.pareto import SUMMARY
from pipeline.run_files import MODEL_FOLDER, phase_folders, read_result, retrain_folder
from utils.archives import ArchiveError, opened_archive
from utils.files import named, read_object, write_whole
from utils.validation import first_problem

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


MANIFEST, FOLDER, WEIGHTS = "manifest.json", "run/", ".safetensors"
# Settings, results and tables. Figures and pages are drawn from them.
_TEXT = (".yaml", ".json", ".jsonl", ".csv", ".npz", ".log", ".model")
# Of no use without the run: what trackers wrote, logs of workers, what a replay unpacked.
_LEFT_OUT = {"tensorboard", "wandb", "jobs", "replay"}
_MOST_BYTES = 2**36
# The first time that a zip can hold: the same run gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


class Manifest(BaseModel):
    """Contents of an archive: a run's commands, and the SHA-256 of its files and weights."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: str = Field(max_length=200)
    commands: tuple[Command, ...] = Field(min_length=1)
    files: dict[str, str]
    weights: dict[str, str]

    @model_validator(mode="after")
    def _commands_read_its_files(self) -> "Manifest":
        for command in self.commands:
            for name in (command.experiment, command.architecture):
                if name is not None and name not in self.files:
                    raise ValueError(f"commands need {name!r:.200}, which the archive lacks")
        return self


def write_archive(run: Path, out: Path, *, weights: bool) -> Manifest:
    """Write the archive of a run whole; with its weights where they are asked for.

    Raises:
        ValueError: a phase is not done, or `out` is there already or lies in the run.
        OSError: a file cannot be read or written.
    """
    if not run.is_dir():
        raise ValueError(f"{run}: no run directory")
    if out.exists():
        raise ValueError(f"{out}: is there already; give another name, or remove it")
    if out.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{out}: lies in the run {run}, and would be packed too; put it elsewhere")
    paths = {path.relative_to(run).as_posix(): path for path in sorted(_files(run))}
    hashes = {name: _sha256(path) for name, path in paths.items()}
    manifest = Manifest(
        name=run.resolve().name,
        commands=tuple(commands_of(run)),
        files={name: text for name, text in hashes.items() if not name.endswith(WEIGHTS)},
        weights={name: text for name, text in hashes.items() if name.endswith(WEIGHTS)},
    )
    held = paths if weights else {name: paths[name] for name in manifest.files}
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    with named(out, keep_names=True):
        try:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(_info(MANIFEST), manifest.model_dump_json(indent=1) + "\n")
                for name, path in held.items():
                    archive.writestr(_info(FOLDER + name), path.read_bytes())
            os.replace(temporary, out)
        finally:
            temporary.unlink(missing_ok=True)
    return manifest


def _files(run: Path) -> Iterator[Path]:
    for path in run.rglob("*"):
        parts = path.relative_to(run).parts
        hidden = any(part[0] == "." for part in parts)
        if path.suffix not in (*_TEXT, WEIGHTS) or hidden or _LEFT_OUT & {*parts}:
            continue
        if path.is_file() and not path.is_symlink():
            yield path


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def unpack(path: Path, folder: Path) -> Manifest:
    """Write the files of an archive below a folder, each with the hash that the manifest says.

    ArchiveError (a ValueError), with one line that names the archive: it is damaged or hostile, or
    does not hold what its manifest says.
    """
    with opened_archive(path, _MOST_BYTES) as archive:
        if MANIFEST not in archive.namelist():
            raise ArchiveError(f"{path}: no archive of tools.pack")
        content = archive.read(MANIFEST)
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            raise ArchiveError(f"{path}: {MANIFEST}: {first_problem(error):.400}") from None
        hashes = manifest.files | manifest.weights
        for name in archive.namelist():
            if name == MANIFEST:
                continue
            short, file = name.removeprefix(FOLDER), archive.read(name)
            if not name.startswith(FOLDER) or hashes.get(short) != sha256(file).hexdigest():
                raise ArchiveError(f"{path}: {name!r:.200} is not a file that was packed")
            (folder / short).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / short, file)
    if missing := [name for name in manifest.files if not (folder / name).is_file()]:
        raise ArchiveError(f"{path}: lacks {missing[0]!r:.200}")
    write_whole(folder / MANIFEST, content)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an archive that was unpacked."""
    return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
