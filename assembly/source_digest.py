"""Which version of the program makes a number, by its sources; a changed tree has no commit."""

import hashlib
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# All that a score by a SuperNet's weights passes through.
_PACKAGES = ("assembly", "data", "model", "nas", "training")


@cache
def source_digest(root: Path = _ROOT) -> str:
    """SHA-256 of the Python files that decide a score, as they were at the first call.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        content = path.read_bytes()
        # With the length, so that no text can move from one file to the next unseen.
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
