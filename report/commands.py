"""Commands as exact shell lines: those that made a run, and the one that goes on with it."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import html
from report.comparison import Comparison
from report.run_files import read_json, seed_folders
from report.searches import seed_of
from utils.strict_yaml import YamlError, read_text, read_yaml

_ENOUGH_SEEDS = 3
Command = tuple[str, ...]
_JOBS = "--architecture"  # only trainings that another command started are given one


def next_commands(run_folder: Path, comparison: Comparison | None) -> list[str]:
    """What is left to do with the run, the next command first."""
    folder = _shown(run_folder)
    shown = shlex.quote(folder)
    done = {
        "search": bool(seed_folders(run_folder / "search")) or _has_layout(run_folder),
        "derive": _has_layout(run_folder),
        "retrain": _is_trained(run_folder),
        "compare": comparison is not None,
    }
    commands = [f"python {verb}.py {shown}" for verb, finished in done.items() if not finished]
    if commands or comparison is None:
        return commands
    if int(comparison.rows["n"].min()) < _ENOUGH_SEEDS:
        commands.append(f"python compare.py {shown} --set 'compare.seeds=[0,1,2]'")
    searched = seed_folders(run_folder / "search")
    if searched:
        # The unit of replication is the search run.
        seed = seed_of(searched[-1]) + 1
        file = shlex.quote(f"{folder}/search/{searched[-1].name}/experiment.yaml")
        commands.append(f"python search.py {file} --run {shown} --set run.seed={seed}")
    return commands


def _is_trained(run_folder: Path) -> bool:
    """Whether the chosen layout is, or any where none is chosen."""
    chosen = _chosen(run_folder)
    folders = [run_folder / "retrain" / chosen] if chosen else run_folder.glob("retrain/*")
    return any(any(folder.glob("seed-*/result.json")) for folder in folders)


def _chosen(run_folder: Path) -> str | None:
    """The name of the chosen architecture, where it is one of a folder."""
    path = run_folder / "architecture.json"
    name = str(read_json(path).get("name")) if path.exists() else None
    return name if name and Path(name).name == name else None


def _has_layout(run_folder: Path) -> bool:
    return (run_folder / "architecture.json").exists()


def _shown(run_folder: Path) -> str:
    relative = os.path.relpath(run_folder)
    return str(run_folder if relative.startswith("..") else Path(relative))


def commands_section(run_folder: Path, comparison: Comparison | None) -> html.Section:
    """The recorded commands of the run, and those that are left."""
    made, left = _remake(run_folder, comparison), next_commands(run_folder, comparison)
    parts = [html.commands(made, "the commands that made this run")]
    if made:
        parts.append(html.note("Recorded by the run, in their order, from a clone of the program."))
    if left:
        parts += [html.subtitle("How to go on"), html.commands(left, "how to go on")]
    if not (made or left):
        parts.append(html.paragraph("The files of the run name no command."))
    return html.Section("commands", "The commands that remake it", "".join(parts))


def _remake(run_folder: Path, comparison: Comparison | None) -> list[str]:
    """Check-out, search, derivation, retraining and comparison, as far as the files know them."""
    searches = seed_folders(run_folder / "search")
    folders = [seed for one in sorted(run_folder.glob("retrain/*")) for seed in seed_folders(one)]
    searched = _recorded(searches)
    trained = [command for command in _recorded(folders) if _JOBS not in command]
    if not (searched or trained):
        return []
    run = _run_of([*searched, *trained]) or _shown(run_folder)
    lines = list(searched)
    if _has_layout(run_folder):
        lines.append(("derive.py", *_derived_from(run_folder, run)))
    lines += sorted(trained, key=lambda command: command[0] == "compare.py")
    if comparison is not None and not any(command[0] == "compare.py" for command in trained):
        lines.append(("compare.py", run))
    commands = [shlex.join(["python", *command]) for command in lines]
    return [*_checkout([*searches, *folders]), *commands]


def _run_of(commands: Sequence[Command]) -> str | None:
    """The folder that the recorded commands name: the run may have been moved since."""
    for command in commands:
        if "--run" in command[:-1]:
            return command[command.index("--run") + 1]
    return None


def _derived_from(run_folder: Path, run: str) -> Command:
    """The arguments of derive.py: the run, with what the derivation's experiment has otherwise."""
    # Not architectures/experiment.yaml: every opponent of compare.py writes there too.
    used = run_folder / "architectures" / f"{_chosen(run_folder)}.yaml"
    saved = [folder / "experiment.yaml" for folder in seed_folders(run_folder / "search")[:1]]
    if not used.exists():
        return (run,)
    if not all(path.exists() for path in saved) or not saved:
        return (f"{run}/architectures/{used.name}", "--run", run)
    before, after = (_leaves(_experiment(path)) for path in (*saved, used))
    changed = [key for key in after if key not in before or after[key] != before[key]]
    settings = [f"{key}={_as_typed(after[key])}" for key in changed]
    return (run, *(word for setting in settings for word in ("--set", setting)))


def _experiment(path: Path) -> Any:
    try:
        return read_yaml(read_text(path)).value
    except YamlError as error:
        raise ValueError(f"{path}:{error.line}: {error.text}; run the command again") from None


def _leaves(section: Any, above: str = "") -> dict[str, Any]:
    """By dotted key what is no mapping, or an empty one."""
    if not isinstance(section, dict) or not section:
        return {above: section}
    return {
        key: value
        for name, inner in section.items()
        for key, value in _leaves(inner, f"{above}.{name}" if above else str(name)).items()
    }


def _as_typed(value: Any) -> str:
    """A value for --set: a text without quotes where YAML reads it as the same text."""
    bare = isinstance(value, str) and re.fullmatch(r"[\w.]+", value)
    return value if bare and read_yaml(value).value == value else json.dumps(value)


def _recorded(folders: Sequence[Path]) -> list[Command]:
    """The commands that environment.json of these folders names, each once."""
    commands = dict[Command, None]()
    for path in (folder / "environment.json" for folder in folders):
        command = read_json(path).get("command") if path.exists() else None
        if isinstance(command, list) and command and all(isinstance(one, str) for one in command):
            commands[tuple(command)] = None
    return list(commands)


def _checkout(folders: Sequence[Path]) -> list[str]:
    """Which version of the program it was, where all of the run is of one."""
    paths = [folder / "environment.json" for folder in folders]
    commits = {str(read_json(path).get("commit")) for path in paths if path.exists()}
    if len(commits) != 1 or not (commit := commits.pop()).isalnum() or commit == "None":
        return []
    return [f"git checkout {commit}"]
