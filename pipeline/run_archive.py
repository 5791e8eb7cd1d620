"""A run as one zip archive: its text files, a hash of each, and the commands that made it."""

import os
import stat
import zipfile
from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.run_commands import Command, commands_of
from utils.archives import ArchiveError, opened_archive
from utils.files import named, write_whole
from utils.validation import first_problem

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
