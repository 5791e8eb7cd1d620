"""Stand-ins for search.py and its like, run by a real process: they fail in many ways."""

from pathlib import Path

import pytest

SCRIPTS = {
    "says": "print('said', *arguments); return 0",
    "refuses": "print('x.yaml:1: model.slots: must be at least 1'); return 2",
    "raises": "raise RuntimeError('the matrix is not there')",
    "kills": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "hangs": "import time; print('hanging', flush=True); time.sleep(600)",
    "deaf": (
        "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (15, 6)]; "
        "print('hears nothing', flush=True); time.sleep(600)"
    ),
    "eats": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); "
        "return len(bytearray(2**33))"
    ),
    "saves": (
        "import pathlib, signal, sys, time; place = pathlib.Path(arguments[-1]); "
        "signal.signal(15, lambda *_: (place.write_text('saved'), sys.exit(143))); "
        "print('ready', flush=True); time.sleep(600)"
    ),
}


def plant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes find the stand-ins."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in SCRIPTS.items():
        lines = "\n    ".join(body.split("; "))
        (folder / f"{name}.py").write_text(f"def main(arguments):\n    {lines}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
