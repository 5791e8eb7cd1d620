"""Figures come last, and are files whatever screen there is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import ROOT, settings

pytestmark = pytest.mark.slow

SHORT = settings("search.steps=4", "search.optimiser.warmup_steps=1", "retrain.steps=2",
                 "retrain.optimiser.warmup_steps=1", "compare.baselines=[interleaved]")  # fmt: skip
SWEEP = settings("sweep={trials: 1, space: {search.tau.start: {low: 0.5, high: 1.0}}}")
VERBS = {"search": [], "derive": [], "retrain": [], "compare": [], "sweep": SWEEP}
BACKENDS = ["module://matplotlib_inline.backend_inline", "no such backend"]
ALL = """
import importlib, sys
verbs = {verbs!r}
for verb, options in verbs.items():
    run = ["--run", "runs/sweep"] if verb == "sweep" else []
    code = importlib.import_module(verb).main(["tiny.yaml", *run, *{short!r}, *options])
    if code:
        sys.exit(f"{{verb}}: {{code}}")
"""
# Before anything is prepared all of a verb's modules are there; what it reads is looked for first.
CHOSEN = """
import derive, sys
sys.exit(derive.main(["tiny.yaml", "--method", "interleaved", *{short!r}]))
"""
NONE = """
import importlib, sys
import pipeline.plan
class Here(Exception): pass
def stop(*_): raise Here
pipeline.plan.set_up = stop
sys.modules.pop("pipeline.sweep.run", None)
for verb, options in {verbs!r}.items():
    rule = ["--method", "interleaved"] if verb == "derive" else []
    try:
        importlib.import_module(verb).main(["tiny.yaml", *rule, *options])
    except Here:
        pass
    else:
        sys.exit(f"{{verb}} prepared nothing")
    if "matplotlib" in sys.modules:
        sys.exit(f"{{verb}} has loaded matplotlib before it draws")
"""


def done(code: str, folder: Path, **environment: str) -> str:
    """What a process of this code says, which must end with 0."""
    ended = subprocess.run(
        [sys.executable, "-c", code.format(verbs=VERBS, short=SHORT)],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_verb_draws_under_the_backend_of_a_notebook(
    experiment_file: Path, backend: str
) -> None:
    done(ALL, experiment_file.parent, MPLBACKEND=backend)
    runs = experiment_file.parent / "runs"
    for name in ("tiny/search/seed-0/figures/pi_lines.png", "tiny/report.html", "sweep/sweep.html"):
        assert (runs / name).stat().st_size > 1000


def test_no_verb_loads_matplotlib_before_it_draws(experiment_file: Path) -> None:
    done(CHOSEN, experiment_file.parent)
    done(NONE, experiment_file.parent)
