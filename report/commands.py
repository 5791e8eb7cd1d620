"""Commands of a run as shell lines, the machine that they ran on, and those that are left."""

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from report import html
from report.comparison import Comparison
from report.layouts import CHOSEN, OTHERS
from report.run_files import read_json, seed_folders, seed_of

_ENOUGH_SEEDS = 3
Command = tuple[str, ...]
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
    environments = _environments(searches), _environments(trained)
    known = [*environments[0], *environments[1]]
    facts = {name: str(known[0][name]) for name in _FACTS if known and known[0].get(name)}
    for name, folders in {"search seeds": searches, "training seeds": trained}.items():
        if folders:
            facts[name] = ", ".join(map(str, sorted({*map(seed_of, folders)})))
    body = html.render(
        "commands.html.j2",
        made=[*_checkout(known), *_remake(run_folder, comparison, *environments)],
        left=left,
        facts=facts,
        experiment=experiment.relative_to(run_folder) if experiment else None,
        settings=experiment.read_text(encoding="utf-8") if experiment else "",
    )
    return html.Section("commands", "The commands that remake it", body)


def _environments(folders: Iterable[Path]) -> list[dict[str, Any]]:
    paths = (folder / "environment.json" for folder in folders)
    return [read_json(path) for path in paths if path.exists()]


def _remake(
    run_folder: Path,
    comparison: Comparison | None,
    searches: Sequence[dict[str, Any]],
    trainings: Sequence[dict[str, Any]],
) -> list[str]:
    """Search, derivation, retraining and comparison, as far as environment.json knows them."""
    searched = _recorded(searches)
    trained = [command for command in _recorded(trainings) if _JOBS not in command]
    if not (searched or trained):
        return []
    run = _run_of([*searched, *trained]) or _shown(run_folder)
    lines = list(searched)
    if chosen := _chosen(run_folder):
        # Not architectures/experiment.yaml: every opponent of compare.py writes there too.
        used = f"{OTHERS}/{chosen}.yaml"
        own = (f"{run}/{used}", "--run", run) if (run_folder / used).exists() else (run,)
        lines.append(("derive.py", *own))
    lines += sorted(trained, key=lambda command: command[0] == "compare.py")
    if comparison is not None and not any(command[0] == "compare.py" for command in trained):
        lines.append(("compare.py", run))
    return [shlex.join(["python", *command]) for command in lines]


def _run_of(commands: Sequence[Command]) -> str | None:
    """The folder that the recorded commands name: the run may have been moved since."""
    for command in commands:
        if "--run" in command[:-1]:
            return command[command.index("--run") + 1]
    return None


def _recorded(environments: Iterable[dict[str, Any]]) -> list[Command]:
    """The commands that were recorded, each once."""
    commands = (known.get("command") for known in environments)
    return [*dict.fromkeys(tuple(command) for command in commands if command)]


def _checkout(environments: Iterable[dict[str, Any]]) -> list[str]:
    """Check-out of the version of the program, where all of the run is of one, and of a commit."""
    commits = {known.get("commit") for known in environments}
    commit = commits.pop() if len(commits) == 1 else None
    return [f"git checkout {commit}"] if commit and commit.isalnum() else []
