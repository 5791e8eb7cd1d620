"""Commands of a run as shell lines, the machine that they ran on, and those that are left."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import html
from report.comparison import Comparison
from report.layouts import CHOSEN, OTHERS
from report.run_files import read_json, seed_folders, seed_of

_ENOUGH_SEEDS = 3
_ORDER = {"derive.py": 1, "retrain.py": 2, "compare.py": 3}  # behind search.py
_JOBS = "--architecture"  # only trainings that another command started are given one
_FACTS = ("corpus", "processor", "device", "threads", "torch", "python", "commit")


def next_commands(run_folder: Path, comparison: Comparison | None) -> list[str]:
    """Commands that are left to do with the run, the next one first."""
    folder = _shown(run_folder)
    shown = shlex.quote(folder)
    searched, chosen = seed_folders(run_folder / "search"), _chosen(run_folder)
    trained = [run_folder / "retrain" / chosen] if chosen else run_folder.glob("retrain/*")
    done = {
        "search": bool(searched or chosen),
        "derive": bool(chosen),
        "retrain": any(any(one.glob("seed-*/result.json")) for one in trained),
        "compare": comparison is not None,
    }
    commands = [f"python {verb}.py {shown}" for verb, finished in done.items() if not finished]
    if commands or comparison is None:
        return commands
    if int(comparison.rows["n"].min()) < _ENOUGH_SEEDS:
        commands.append(f"python compare.py {shown} --set 'compare.seeds=[0,1,2]'")
    if searched:
        # The unit of replication is the search run.
        seed = seed_of(searched[-1]) + 1
        file = shlex.quote(f"{folder}/search/{searched[-1].name}/experiment.yaml")
        commands.append(f"python search.py {file} --run {shown} --set run.seed={seed}")
    return commands


def _chosen(run_folder: Path) -> str:
    """The name of the chosen architecture; empty where there is none yet."""
    path = run_folder / CHOSEN
    return str(read_json(path)["name"]) if path.exists() else ""


def _shown(run_folder: Path) -> str:
    relative = os.path.relpath(run_folder)
    return str(run_folder if relative.startswith("..") else Path(relative))


def commands_section(
    run_folder: Path, comparison: Comparison | None, left: Sequence[str]
) -> html.Section:
    """The recorded commands of the run, those that are `left`, and what they ran on."""
    searches = seed_folders(run_folder / "search")
    trained = [seed for one in sorted(run_folder.glob("retrain/*")) for seed in seed_folders(one)]
    experiments = (folder / "experiment.yaml" for folder in [*searches, *trained])
    experiment = next((path for path in experiments if path.exists()), None)
    paths = (folder / "environment.json" for folder in [*searches, *trained])
    known = [read_json(path) for path in paths if path.exists()]
    facts = {name: str(known[0][name]) for name in _FACTS if known and known[0].get(name)}
    for name, folders in {"search seeds": searches, "training seeds": trained}.items():
        if folders:
            facts[name] = ", ".join(map(str, sorted({*map(seed_of, folders)})))
    body = html.render(
        "commands.html.j2",
        made=_made(run_folder, comparison, known),
        left=left,
        facts=facts,
        experiment=experiment.relative_to(run_folder) if experiment else None,
        settings=experiment.read_text(encoding="utf-8") if experiment else "",
    )
    return html.Section("commands", "The commands that remake it", body)


def _made(
    run_folder: Path, comparison: Comparison | None, known: Sequence[dict[str, Any]]
) -> list[str]:
    """Search, derivation, retraining and comparison, as far as environment.json knows them.

    Before them the check-out of the program, where all of the run is of one commit.
    """
    commits = {one.get("commit") for one in known}
    commit = commits.pop() if len(commits) == 1 else None
    checkout = [f"git checkout {commit}"] if commit and commit.isalnum() else []
    recorded = [tuple(one["command"]) for one in known if one.get("command")]
    lines = [*dict.fromkeys(command for command in recorded if _JOBS not in command)]
    if not lines:
        return checkout
    # The run may have been moved since.
    runs = (command[command.index("--run") + 1] for command in lines if "--run" in command[:-1])
    run = next(runs, _shown(run_folder))
    if chosen := _chosen(run_folder):
        # Not architectures/experiment.yaml: every opponent of compare.py writes there too.
        used = f"{OTHERS}/{chosen}.yaml"
        own = (f"{run}/{used}", "--run", run) if (run_folder / used).exists() else (run,)
        lines.append(("derive.py", *own))
    if comparison is not None and not any(command[0] == "compare.py" for command in lines):
        lines.append(("compare.py", run))
    lines.sort(key=lambda command: _ORDER.get(command[0], 0))
    return [*checkout, *(shlex.join(["python", *command]) for command in lines)]
