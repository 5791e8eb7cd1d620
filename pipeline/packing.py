"""A run as one archive: what it was, what it found, and how it is made again."""

import os
from collections.abc import Iterator, Sequence
from hashlib import file_digest
from pathlib import Path

from safetensors import SafetensorError, safe_open

from model.saving import tensors_digest
from nas.costs.workloads import WORKLOADS
from pipeline.conditions import facts_in, resumed_on
from pipeline.experiment import Experiment, load_experiment
from pipeline.pack_file import (
    FOLDER,
    LOCKS,
    MANIFEST,
    MOST_BYTES,
    MOST_FILE_BYTES,
    WEIGHTS,
    Manifest,
    PackedFile,
    PackedPhase,
    manifest_text,
)
from pipeline.pareto import SUMMARY
from pipeline.run_commands import (
    Command,
    commands_of,
    compared_names,
    environment_of,
)
from pipeline.run_difference import is_compared
from pipeline.run_files import phase_folders
from training.checkpoints import PREVIOUS, REFUSED
from utils.archives import seal, write_sealed
from utils.files import MAX_JSON_BYTES, check_is_file, read_object

ROOT = Path(__file__).resolve().parents[1]
# What is held: settings, results and tables. Figures and pages are drawn from them.
_HELD = (".yaml", ".json", ".jsonl", ".csv", ".npz", ".log", ".model")
# Of no use without the run: what trackers wrote, logs of workers, what a replay unpacked.
_TRACKED, _LEFT_OUT = {"tensorboard", "wandb"}, {"jobs", "replay"}
_TENSOR_DIGITS = 16


def write_pack(run: Path, out: Path, *, weights: bool) -> Manifest:
    """Write the archive of a run whole; with its weights where they are asked for.

    Raises:
        ValueError: a phase is not done, a file is damaged or no file, or `out` is something else.
        OSError: a file cannot be read or written.
    """
    if not run.is_dir():
        raise ValueError(f"{run}: no run directory")
    if out.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{out}: lies in the run {run}, and would be packed too; put it elsewhere")
    if not out.parent.is_dir():
        raise ValueError(f"{out}: there is no folder {out.parent}; make it first")
    if out.exists():
        try:
            seal(out)
        except ValueError:
            raise ValueError(
                f"{out}: is there and no archive of a run; give another name"
            ) from None
    manifest = manifest_of(run, weights=weights)
    members: dict[str, bytes | Path] = {name: ROOT / name for name in manifest.locks}
    members |= {FOLDER + name: run / name for name, one in manifest.files.items() if one.held}
    text = manifest_text(manifest).encode()
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"{run}: {len(manifest.files):,} files are too many for one archive")
    write_sealed(out, members | {MANIFEST: text})
    return manifest


def manifest_of(run: Path, *, weights: bool) -> Manifest:
    """What the archive of a run says; raises what `write_pack` does."""
    commands = commands_of(run)
    files = {path.relative_to(run).as_posix(): path for path in _files(run)}
    remade = _remade(run, commands)
    entries = {
        name: _entry(path, weights=weights, remade=is_compared(name) and _is_under(name, remade))
        for name, path in sorted(files.items())
    }
    held = sum(one.size for name, one in entries.items() if one.held and not name.endswith(WEIGHTS))
    if held > MOST_BYTES:
        raise ValueError(
            f"{run}: its tables and logs have {held:,} bytes, more than {MOST_BYTES:,}"
        )
    name = run.resolve().name
    return Manifest(
        version=1,
        name=name,
        commands=tuple(commands),
        lines=tuple(command.line(Path("run"), Path("runs") / name) for command in commands),
        phases={
            folder.relative_to(run).as_posix(): _phase(run, folder) for folder in phase_folders(run)
        },
        files=entries,
        locks={lock: _sha256(ROOT / lock) for lock in LOCKS if (ROOT / lock).exists()},
        notes=tuple(_notes(run, commands)),
    )


def _files(run: Path) -> Iterator[Path]:
    """The regular files of a run, without what is of no use elsewhere."""
    for folder, subfolders, names in os.walk(run):
        skipped = _TRACKED | _LEFT_OUT if Path(folder) == run else _TRACKED
        subfolders[:] = [name for name in subfolders if name[0] != "." and name not in skipped]
        for name in [*subfolders, *names]:
            if (Path(folder) / name).is_symlink():
                raise ValueError(f"{Path(folder) / name}: is a link; put the file itself there")
        for name in names:
            if name[0] != "." and name not in ("lock", PREVIOUS, REFUSED):
                check_is_file(Path(folder) / name)
                yield Path(folder) / name


def _entry(path: Path, *, weights: bool, remade: bool) -> PackedFile:
    size, is_weights = path.stat().st_size, path.suffix == WEIGHTS
    held = (is_weights and weights) or path.suffix in _HELD
    if held and not is_weights and size > MOST_FILE_BYTES:
        raise ValueError(f"{path}: {size:,} bytes are more than the {MOST_FILE_BYTES:,} of a table")
    tensors = tensor_digests(path) if is_weights else None
    return PackedFile(size=size, sha256=_sha256(path), held=held, remade=remade, tensors=tensors)


def tensor_digests(path: Path) -> dict[str, str]:
    """A short hash of each tensor's type, shape and bytes; ValueError for a damaged file."""
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
            return {
                name: tensors_digest({name: file.get_tensor(name)})[:_TENSOR_DIGITS]
                for name in names
            }
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged ({error}); remove it or train again") from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _phase(run: Path, folder: Path) -> PackedPhase:
    environment = environment_of(folder)
    identity = read_object(folder / "identity.json", "start the phase again, which mends it")
    facts = facts_in(environment)
    return PackedPhase(
        facts=facts,
        inputs={name: str(identity.get(name)) for name in ("corpus", "tokenizer")},
        experiment=(folder / "experiment.yaml").relative_to(run).as_posix(),
        resumed_on={
            step: changed
            for step, later in resumed_on(environment)
            if (changed := dict(later.items() - facts.items()))
        },
    )


def _remade(run: Path, commands: Sequence[Command]) -> set[str]:
    """The files and folders that the commands make anew."""
    verbs = {command.verb for command in commands}
    made = {folder.relative_to(run).as_posix() for folder in phase_folders(run)}
    names = {folder.parent.name for folder in phase_folders(run)} & set(compared_names(run))
    if (run / SUMMARY).exists():
        front = read_object(run / SUMMARY, "derive the front again").get("front")
        names |= {str(name) for name in (front if isinstance(front, list) else [])}
        made |= {"pareto.csv", "pareto.json"}
    if "derive" in verbs and (run / "architecture.json").exists():
        made.add("architecture.json")
        names.add(str(read_object(run / "architecture.json", "derive again").get("name")))
    if "compare" in verbs:
        made |= {"comparison.csv", "comparison.json"}
    if any(one.verb == "retrain" and one.architecture is None for one in commands):
        made.add("model")
    return made | {f"architectures/{name}" for name in names}


def _is_under(name: str, made: set[str]) -> bool:
    path = Path(name)
    places = [path.with_suffix("").as_posix(), *(place.as_posix() for place in path.parents)]
    return name in made or any(place in made for place in places)


def _notes(run: Path, commands: Sequence[Command]) -> Iterator[str]:
    """What may make the run come out otherwise although nothing is different."""
    experiments = [load_experiment(run / command.experiment) for command in commands]
    if any(_measures(one, command) for one, command in zip(experiments, commands, strict=True)):
        yield (
            "times measured on the machine have a part in the choice of the layout or of its "
            "opponents, and may choose another one"
        )


def _measures(experiment: Experiment, command: Command) -> bool:
    limits, cost = experiment.derive.budget.amounts, experiment.search.cost
    by_time = {
        "search": cost.target is not None and cost.name in WORKLOADS,
        "derive": bool(WORKLOADS.keys() & {*limits, command.cost or ""}),
        "compare": experiment.compare.equal in WORKLOADS or bool(WORKLOADS.keys() & {*limits}),
    }
    return by_time.get(command.verb, False)
