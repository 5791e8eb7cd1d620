"""A phase's folder: whose it is, its lock, what it ran on, and its metrics.jsonl."""

import fcntl
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from utils.files import append_line, named, read_object, read_rows, unlike, write_whole

if TYPE_CHECKING:
    import torch

Identity = Mapping[str, Any]
_ROOT = Path(__file__).resolve().parent.parent
EXPERIMENT = "experiment.yaml"
# What a person calls a recorded fact.
WORDS = {"commit": "program"}


def identity_hash(identity: Identity) -> str:
    """Hash of the sections and inputs that make a phase what it is."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def claim(folder: Path, identity: Identity, files: Mapping[str, str]) -> None:
    """Take a folder for a phase, unless it is its own already, and save its text files there.

    Of its own the experiment alone is saved anew: what does not count for the identity, such as how
    to derive, may have been edited since. Only for who holds the folder's lock: two that claim at
    once would mix their files. ValueError: the folder holds another experiment; nothing is written.
    """
    if is_claimed(folder, identity):
        path, text = folder / EXPERIMENT, files.get(EXPERIMENT)
        if text is not None and not (path.exists() and path.read_text(encoding="utf-8") == text):
            write_whole(path, text)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        write_whole(folder / name, text)
    text = json.dumps(identity, indent=1, sort_keys=True) + "\n"
    write_whole(folder / "identity.json", text)


def is_claimed(folder: Path, identity: Identity) -> bool:
    """Whether a folder is this phase's own already; ValueError where it is another experiment's."""
    path = folder / "identity.json"
    if not path.exists():
        return False
    saved, now = read_object(path), json.loads(json.dumps(identity))
    if saved != now:
        raise ValueError(_difference(folder, saved, now))
    return True


@contextmanager
def locked(folder: Path, name: str = "lock", *, wait: bool = False) -> Iterator[None]:
    """Keep a second process out of an existing folder, for as long as this one lives at most.

    The file stays when it is released: who waited for a file that is removed would lock another
    one than who comes later. ValueError: another process has it, and this one does not `wait`.
    """
    path = folder / name
    with named(path):
        file = path.open("a")
    with file:
        try:
            # Not flock: this one reaches the other machines of a shared folder everywhere.
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ValueError(
                f"{folder}: another process is training here; wait for it or use another --run"
            ) from None
        yield


def _difference(folder: Path, saved: Any, now: Any) -> str:
    found = [(".".join(place), words) for place, words in unlike(saved, now)]
    keys = {key for key, _ in found}
    if "corpus" in keys <= {"corpus", "tokenizer"}:
        return (
            f"{folder}: was started with another text (its hash was {saved['corpus'][:12]}, is "
            f"{now['corpus'][:12]}); use that text again (python-stdlib is the library of the "
            f"Python that runs, here {platform.python_version()}; tree is every file that "
            "data.tree chooses), or another --run directory"
        )
    more = f", and {len(found) - 4} more" if len(found) > 4 else ""
    return (
        f"{folder}: holds another experiment ({'; '.join(map(' '.join, found[:4]))}{more}); "
        "repeat the --set of the first time, use another --run directory, or remove this one"
    )


def environment(device: "torch.device", extra: Mapping[str, Any]) -> str:
    """What a run ran on, as JSON: versions, device, threads, commit."""
    return json.dumps({**_facts(device), **extra}, indent=1) + "\n"


def record_resume(
    folder: Path, device: "torch.device", step: int, settings: Mapping[str, Any]
) -> list[str]:
    """Add to environment.json from which step, and on what, a run goes on.

    The settings are those outside the identity that change the last digits or dropout's numbers.
    Returns what differs from the start of the run; such a resume is no longer exact.
    """
    path = folder / "environment.json"
    recorded = read_object(path)
    now = {**_facts(device), **settings}
    recorded["resumed"] = [*recorded.get("resumed", []), {"step": step, **now}]
    write_whole(path, json.dumps(recorded, indent=1) + "\n")
    return [
        f"{WORDS.get(key, key)} was {recorded.get(key) or 'unknown'}, is {now[key] or 'unknown'}"
        for key in ("torch", "processor", "device", "threads", *settings, "commit")
        if recorded.get(key) != now[key]
    ]


def _facts(device: "torch.device") -> dict[str, Any]:
    packages = ("numpy", "sentencepiece", "safetensors", "pydantic", "optuna")
    return {
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        **machine(device),
        "commit": commit(),
    }


def machine(device: "torch.device") -> dict[str, Any]:
    """What the last digits of a number depend on, beside the program and its settings."""
    import torch

    return {
        "torch": torch.__version__,
        "processor": processor(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }


def processor() -> str:
    """The processor's name, as far as the machine tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def commit() -> str | None:
    """The commit of this program, marked where the code was changed since; None without git."""

    def git(*arguments: str) -> str:
        # `status` would lock the index to refresh it: killed meanwhile, it leaves the lock behind.
        here = str(Path(__file__).resolve().parent)
        command = ["git", "--no-optional-locks", "-C", here, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        dirty = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-changed" if dirty else head


@cache
def source_digest(parts: tuple[str, ...], root: Path = _ROOT) -> str:
    """SHA-256 of the Python files in these folders and files, as they were at the first call.

    Unlike a commit this tells two changed trees apart.
    """
    digest = hashlib.sha256()
    places = [root / part for part in parts]
    for path in sorted(p for at in places for p in ([at] if at.is_file() else at.rglob("*.py"))):
        content = path.read_bytes()
        # With the length, so that no text can move from one file to the next unseen.
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


class MetricsFile:
    """metrics.jsonl: one JSON object a line, cut back to the checkpoint's step on a resume.

    `path` is None in processes beside the first one, which write nothing.
    """

    def __init__(self, path: Path | None, step: int) -> None:
        self.path = path
        if path is not None:
            kept = [row for row in read_rows(path) if row["step"] <= step]
            write_whole(path, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row: dict[str, Any]) -> None:
        """Write one row and hand it to the system at once."""
        if self.path is not None:
            append_line(self.path, json.dumps(row))

    def sync(self) -> None:
        """Make the rows so far durable, before a checkpoint that relies on them."""
        if self.path is not None:
            with named(self.path), self.path.open("rb") as file:
                os.fsync(file.fileno())

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        return [] if self.path is None else read_rows(self.path)
