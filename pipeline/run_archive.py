"""A run in one archive: its text files, their hashes and the commands that made it; made again."""

import csv
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data import prepare
from model import load_architecture
from pipeline.compare import EXPERIMENT as COMPARED
from pipeline.compare import facts_in
from pipeline.devices import find_device
from pipeline.experiment import load_experiment
from pipeline.pareto import EXPERIMENT as PARETO
from pipeline.pareto import SUMMARY
from pipeline.run_files import phase_folders, run_folders
from training.run_dir import environment
from training.signals import Stopped, StopRequest
from utils.files import folder_made_whole, named, read_object, write_whole
from utils.screen import announce, say
from utils.text import shorten, visible
from utils.validation import first_problem

CHOSEN, COMPARISON = "architecture.json", "comparison.json"
MANIFEST, FOLDER, WEIGHTS = "manifest.json", "run/", ".safetensors"
# Below a run that is made again: what was unpacked.
FILES = "replay"
# Settings, results and tables; figures and pages are drawn from them.
_TEXT = (".yaml", ".json", ".jsonl", ".csv", ".npz", ".log", ".model")
_LEFT_OUT = {"tensorboard", "wandb", "jobs", FILES}
_MOST_BYTES = 2**36
# The first time that a zip can hold: the same run gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)
_PROGRAM = Path(__file__).resolve().parents[1]
_POLL_S = 0.2
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
# Settings that say where something lies, and not what is computed.
_PLACES = ("data.files", "data.tree.folder", "data.addresses", "data.tokenizer.model")
# Results, in the order in which a run writes them: the first difference is then a cause.
_RESULTS = (
    *("search/*/identity.json", "search/*/metrics.jsonl", "search/*/pi.npz", "search/*.csv"),
    *("architecture.json", "architectures/*.json", "architectures/*.csv"),
    *("retrain/*/identity.json", "retrain/*/metrics.jsonl", "retrain/*/result.json"),
    *("retrain/*/model/*", "model/*", "pareto.csv", "pareto.json"),
    *("comparison.csv", "comparison.json"),
)
# What was measured, or says with which commit.
_TIMES = {
    *("elapsed_s", "tokens_per_s", "latency_ms", "latency_interval_ms", "train_step_ms"),
    *("relative_latency", "latency_note", "latency_key", "times", "times_reference", "equal"),
    *("verdict", "remarks", "commit", "cost"),
}


class Command(BaseModel):
    """One command: a verb, files below the run that it reads, and on what it ran.

    `pareto` is the cost of a front, or nothing for a comparison with the front's layouts.
    """

    model_config = _STRICT
    verb: Literal["search", "derive", "retrain", "compare"]
    experiment: str
    architecture: str | None = None
    pareto: str | None = Field(default=None, pattern="^[a-z_]{0,40}$")
    threads: int | None = Field(default=None, ge=1, le=4096)
    ranks: int = Field(default=1, ge=1, le=4096)

    def arguments(self, files: Path, run: Path, settings: Sequence[str] = ()) -> list[str]:
        """Arguments behind the verb, where the run's own files lie in `files`."""
        given = [str(files / self.experiment), "--run", str(run)]
        if self.pareto is not None:
            given += ["--pareto", *filter(None, [self.pareto])]
        if self.architecture is not None:
            given += ["--architecture", str(files / self.architecture)]
        threads = [] if self.threads is None else [f"run.threads={self.threads}"]
        return given + [part for text in [*threads, *settings] for part in ("--set", text)]

    def line(self, files: Path, run: Path) -> str:
        """The command for a person."""
        several = ["torchrun", "--nproc_per_node", str(self.ranks), "--"]
        program = several if self.ranks > 1 else ["python"]
        return shlex.join([*program, f"{self.verb}.py", *self.arguments(files, run)])


class Manifest(BaseModel):
    """Contents of an archive: a run's commands, and the SHA-256 of its files and weights."""

    model_config = _STRICT
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


def commands_of(run: Path) -> list[Command]:
    """The commands in the order that made the run; ValueError where a phase is not done."""
    phases = phase_folders(run)
    searches = [folder for folder in phases if folder.parent.name == "search"]
    found = [_command(run, folder, "pi.csv", verb="search") for folder in searches]
    # A derivation scores layouts on as many threads as the first phase had.
    threads = _threads(phases[0]) if phases else None
    if (run / SUMMARY).exists():
        cost = read_object(run / SUMMARY)["cost"]
        found.append(Command(verb="derive", experiment=PARETO, pareto=cost, threads=threads))
    chosen = load_architecture(run / CHOSEN).name if (run / CHOSEN).exists() else None
    if chosen is not None:
        experiment = f"architectures/{chosen}.yaml"
        found.append(Command(verb="derive", experiment=experiment, threads=threads))
    comparison = _comparison(run, chosen)
    found += _retrainings(run, phases[len(searches) :], chosen, compared=bool(comparison))
    found += comparison
    if not found:
        raise ValueError(
            f"{run}: no search, layout or training of a run in it; a sweep's trials are runs, and "
            "each can be packed"
        )
    return found


def _threads(folder: Path) -> int | None:
    threads: int | None = read_object(folder / "environment.json").get("threads")
    return threads


def _command(run: Path, folder: Path, last: str, **parts: Any) -> Command:
    """The command of a phase, which ends with writing `last`, with its threads and processes."""
    if not (folder / last).exists():
        raise ValueError(f"{folder}: not done; go on with {parts['verb']}.py, or move it away")
    ranks = read_object(folder / "environment.json").get("ranks", 1)
    experiment = (folder / "experiment.yaml").relative_to(run).as_posix()
    return Command(experiment=experiment, threads=_threads(folder), ranks=ranks, **parts)


def _retrainings(
    run: Path, folders: Sequence[Path], chosen: str | None, *, compared: bool
) -> Iterator[Command]:
    """The chosen layout's by retrain.py, then those of layouts that no comparison trains."""
    names, seeds = set[str](), set[int]()
    if compared:
        names = set(read_object(run / COMPARISON)["results"])
        seeds = set(load_experiment(run / COMPARED).compare.seeds)
    carried = run / "model" / "result.json"
    first = str(read_object(carried)["seed"]) if carried.exists() else None
    of_the_model = run / "retrain" / str(chosen) / f"seed-{first}"
    for folder in sorted(folders, key=lambda folder: folder != of_the_model):
        if folder == of_the_model:
            yield _command(run, folder, "result.json", verb="retrain")
        elif folder.parent.name not in names or int(folder.name[len("seed-") :]) not in seeds:
            file = (folder / CHOSEN).relative_to(run).as_posix()
            yield _command(run, folder, "result.json", verb="retrain", architecture=file)


def _comparison(run: Path, chosen: str | None) -> list[Command]:
    if not (run / COMPARISON).exists():
        return []
    content = read_object(run / COMPARISON)
    first, *_ = names = list(content["results"])
    if first != chosen:
        raise ValueError(
            f"{run / COMPARISON}: compares {first}, but {chosen} was chosen since; compare again"
        )
    # The last one was trained by it: of the chosen one retrain.py may have had other threads.
    seed = load_experiment(run / COMPARED).compare.seeds[0]
    threads = _threads(run / "retrain" / names[-1] / f"seed-{seed}")
    front = any(row.get("role") == "front" for row in content["rows"])
    pareto = "" if front else None
    return [Command(verb="compare", experiment=COMPARED, pareto=pareto, threads=threads)]


def write_archive(run: Path, out: Path, *, weights: bool) -> Manifest:
    """Write the archive of a run whole; ValueError where a phase is not done, or `out` is there."""
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

    ValueError, with one line that names the archive: it is damaged or hostile, or does not hold
    what its manifest says.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = Manifest.model_validate_json(archive.read(MANIFEST))
            if (size := sum(info.file_size for info in archive.infolist())) > _MOST_BYTES:
                raise ValueError(f"unpacks to {size:,} bytes, more than {_MOST_BYTES:,}")
            for name, digest in (manifest.files | manifest.weights).items():
                if {"..", ""} & {*re.split(r"[/\\:]", name)}:
                    raise ValueError(f"holds the unsafe name {name!r:.200}")
                if name in manifest.weights and FOLDER + name not in archive.namelist():
                    continue
                content = archive.read(FOLDER + name)
                if sha256(content).hexdigest() != digest:
                    raise ValueError(f"{name!r:.200} is not the file that was packed")
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(folder / name, content)
    except ValidationError as error:
        raise ValueError(f"{path}: {MANIFEST}: {first_problem(error):.400}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: no whole archive of tools.pack ({error})") from None
    write_whole(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
    return manifest


def begin(archive: Path, manifest: Manifest, run: Path) -> None:
    """Unpack an archive into the folder of its replay, or go on with a replay of the same one."""
    files = run / FILES
    if files.exists():
        if Manifest.model_validate_json((files / MANIFEST).read_bytes()) != manifest:
            raise ValueError(f"{run}: a replay of another archive; give another --run")
        return
    if run.exists() and any(run.iterdir()):
        raise ValueError(f"{run}: is not empty; a replay needs a folder of its own, give --run")
    with folder_made_whole(files) as work:
        unpack(archive, work)


def expectations(files: Path, settings: Sequence[str]) -> list[str]:
    """Reasons against the same numbers here from unpacked files; empty where there are none.

    The text of every phase is read, and may be downloaded, since its hash is asked for.
    """
    found, texts = list[str](), dict[str, dict[str, str]]()
    for folder in phase_folders(files):
        experiment = load_experiment(folder / "experiment.yaml", settings, Path.cwd())
        before = facts_in(read_object(folder / "environment.json"))
        now = facts_in(json.loads(environment(find_device(experiment.run.device), {})))
        # What the commands set.
        now |= {name: before[name] for name in ("threads", "ranks")}
        found += [
            f"{name} was {was}, is {now[name]}"
            for name, was in before.items()
            if now[name] != was or (name == "commit" and was.endswith("-changed"))
        ]
        key = experiment.data.model_dump_json()
        if key not in texts:
            say(f"{experiment.data.corpus}: reading the text")
            ready = prepare(experiment.data, Path.cwd(), progress=say, is_run=run_folders(Path()))
            texts[key] = {"corpus": ready.corpus_digest, "tokenizer": ready.tokenizer.digest}
        identity = read_object(folder / "identity.json")
        found += [
            f"{name} hash was {identity[name][:12]}, is {here[:12]}"
            for name, here in texts[key].items()
            if identity[name] != here
        ]
    found += [
        f"--set {shorten(text, 200)}: is another experiment"
        for text in settings
        if not text.startswith(_PLACES)
    ]
    return [visible(line) for line in dict.fromkeys(found)]


def remake(manifest: Manifest, run: Path, settings: Sequence[str]) -> None:
    """Run the commands, each in a process of its own; what is done already they find done.

    Ends this process, with the command's exit code, where a command fails.
    """
    with StopRequest().listening() as stop:
        for command in manifest.commands:
            line = visible(command.line(run / FILES, run))
            announce(f"\n{line}")
            script = [str(_PROGRAM / f"{command.verb}.py")]
            script += command.arguments(run / FILES, run, settings)
            several = ["-m", "torch.distributed.run", "--standalone"]
            several += ["--nproc_per_node", str(command.ranks), "--"]
            code = _run(several + script if command.ranks > 1 else script, stop)
            if stop.number is not None:
                raise Stopped(stop.number)
            if code:
                say(f"{line}\nended with exit code {code}; the replay goes no further")
                # Of a process that a signal killed, as a shell has it.
                raise SystemExit(code if code > 0 else 128 - code)


def _run(arguments: Sequence[str], stop: StopRequest) -> int:
    # A session of its own: Ctrl-C reaches this process alone, which hands it on once.
    with subprocess.Popen([sys.executable, *arguments], start_new_session=True) as process:
        while process.poll() is None and stop.number is None:
            time.sleep(_POLL_S)
        process.terminate()
        return process.wait()


def differences(manifest: Manifest, run: Path) -> tuple[list[str], int]:
    """Names of the results that came out otherwise, the earliest first, and how many were seen.

    A layout that the commands do not derive again is no difference.
    """
    hashes, found, seen = manifest.files | manifest.weights, list[str](), 0
    for name in in_order([*hashes]):
        path, there = run / name, run / FILES / name
        if not path.is_file():
            if name.startswith(("search/", "retrain/", "comparison.")):
                found.append(f"{name}: is missing here")
            continue
        seen += 1
        if _sha256(path) == hashes[name]:
            continue
        if not name.endswith((".json", ".jsonl", ".csv")) or _values(path) != _values(there):
            found.append(name)
    return found, seen


def in_order(names: Sequence[str]) -> list[str]:
    """The results among a run's files, in the order in which a run writes them."""
    places = dict[str, int]()
    for name in names:
        fitting = (at for at, pattern in enumerate(_RESULTS) if fnmatchcase(name, pattern))
        if (at := next(fitting, None)) is not None:
            places[name] = at
    return sorted(places, key=lambda name: (places[name], len(name), name))


def _values(path: Path) -> Any:
    """The content of a table or JSON file, times excepted."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return _without_times(list(csv.DictReader(text.splitlines())))
    if path.suffix == ".jsonl":
        return _without_times([json.loads(line) for line in text.splitlines()])
    return _without_times(json.loads(text))


def _without_times(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_times(of) for key, of in content.items() if key not in _TIMES}
    return [_without_times(of) for of in content] if isinstance(content, list) else content
