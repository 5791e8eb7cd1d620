"""The archive that tools.pack writes: a manifest, and files of a run; read with every check."""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.run_commands import Command
from utils.archives import (
    ArchiveError,
    check_total,
    is_unsafe,
    opened_sealed,
    read_member,
)
from utils.files import MAX_BYTES, MAX_JSON_BYTES
from utils.validation import first_problem

MANIFEST, FOLDER = "manifest.json", "run/"
LOCKS = ("requirements.lock", "requirements-extras.lock")
# What one member, and all but the weights together, may unpack to.
MOST_FILE_BYTES, MOST_BYTES = 2**28, 2**30
MOST_WEIGHT_BYTES = 2**40
WEIGHTS = ".safetensors"
Digest = Field(pattern="^[0-9a-f]{64}$")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PackedFile(_Part):
    """A file of the run: its size and hash, and for weights a short hash of each tensor.

    `held`: the archive has it. `remade`: the commands make it again, times excepted.
    """

    size: int = Field(ge=0)
    sha256: str = Digest
    held: bool
    remade: bool
    tensors: dict[str, str] | None = None


class PackedPhase(_Part):
    """A search or a training: what its numbers depend on beside the program's settings.

    `resumed_on` holds what had changed when it went on, by the step.
    """

    facts: dict[str, str]
    inputs: dict[str, str]
    experiment: str
    resumed_on: dict[str, dict[str, str]]


class Manifest(_Part):
    """What an archive says of a run; `notes` are for people."""

    version: Literal[1]
    name: str = Field(max_length=200)
    commands: tuple[Command, ...] = Field(min_length=1, max_length=10_000)
    lines: tuple[str, ...]
    phases: dict[str, PackedPhase]
    files: dict[str, PackedFile]
    locks: dict[str, str]
    notes: tuple[str, ...]

    @model_validator(mode="after")
    def _files_fit(self) -> "Manifest":
        for name in self.files:
            if is_unsafe(name) or not name or name != Path(name).as_posix() or "\\" in name:
                raise ValueError(f"files: the unsafe name {name!r:.200}")
        needed = [one.experiment for one in self.commands] + [
            one.architecture for one in self.commands if one.architecture is not None
        ]
        needed += [phase.experiment for phase in self.phases.values()]
        for name in needed:
            if name not in self.files or not self.files[name].held:
                raise ValueError(f"commands: need {name!r:.200}, which the archive does not hold")
        return self


@dataclass(frozen=True)
class Pack:
    """An open archive whose manifest fits its members."""

    path: Path
    manifest: Manifest
    archive: zipfile.ZipFile

    def read(self, name: str) -> bytes:
        """A held file of the run; ArchiveError where it is not the one of the manifest."""
        entry = self.manifest.files[name]
        limit = MAX_BYTES if name.endswith(WEIGHTS) else MOST_FILE_BYTES
        content = read_member(self.archive, FOLDER + name, min(limit, entry.size))
        if len(content) != entry.size or sha256(content).hexdigest() != entry.sha256:
            raise ArchiveError(f"{name} is not the file that was packed")
        return content


@contextmanager
def opened_pack(path: Path) -> Iterator[Pack]:
    """Open an archive and look whether it is whole.

    ArchiveError (a ValueError), with one line that names the archive: it is damaged or hostile,
    lacks a member or has one too many, a member is another than was packed, or the manifest is not
    one of this version.
    """
    with opened_sealed(path) as archive:
        manifest = _manifest(read_member(archive, MANIFEST, MAX_JSON_BYTES))
        held = {FOLDER + name for name, entry in manifest.files.items() if entry.held}
        expected, there = held | {MANIFEST, *manifest.locks}, set(archive.namelist())
        for words, names in (("lacks", expected - there), ("holds besides", there - expected)):
            if names:
                raise ArchiveError(f"{words} {min(names):.200}")
        small = [name for name in expected if not name.endswith(WEIGHTS)]
        check_total(archive, small, MOST_BYTES)
        check_total(archive, sorted(expected), MOST_WEIGHT_BYTES)
        pack = Pack(path, manifest, archive)
        for name, digest in manifest.locks.items():
            if sha256(read_member(archive, name, MOST_FILE_BYTES)).hexdigest() != digest:
                raise ArchiveError(f"{name} is not the file that was packed")
        for name, entry in manifest.files.items():
            if entry.held and not name.endswith(WEIGHTS):
                pack.read(name)
        yield pack


def _manifest(content: bytes) -> Manifest:
    try:
        version = json.loads(content).get("version")
        if version != 1:
            raise ArchiveError(f"{MANIFEST}: version {version!r:.40}; this program reads 1")
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise ArchiveError(f"{MANIFEST}: {first_problem(error):.400}") from None
    except (ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"{MANIFEST}: not a JSON object ({error})") from None


def manifest_text(manifest: Manifest) -> str:
    """The manifest as it stands in an archive."""
    content: dict[str, Any] = manifest.model_dump(mode="json")
    return json.dumps(content, indent=1) + "\n"
