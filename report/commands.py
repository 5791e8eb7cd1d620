"""Commands of a run as shell lines, the machine that they ran on, and those that are left."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from report import html
from report.comparison import Comparison
from report.run_files import read_chosen, seed_folders, seed_of
from utils.files import read_object, read_rows

_ENOUGH_SEEDS = 3
_FACTS = ("corpus", "processor", "device", "threads", "torch", "python", "commit")


def next_commands(run_folder: Path, comparison: Comparison | None) -> list[str]:
    """Commands that are left to do with the run, the next one first."""
    folder = _shown(run_folder)
    shown = shlex.quote(folder)
    searched = [one for one in seed_folders(run_folder / "search") if (one / "pi.csv").exists()]
    made = read_chosen(run_folder)
    chosen, seeds = str(made.get("name", "")), [seed_of(one) for one in searched]
    trained = [run_folder / "retrain" / chosen] if chosen else run_folder.glob("retrain/*")
    several = f" --seeds {','.join(map(str, seeds))}" if len(seeds) > 1 else ""
    result = run_folder / "model" / "result.json"
    is_other = bool(chosen) and result.exists() and read_object(result)["name"] != chosen
    done = {
        "search": bool(searched or chosen),
        "derive": bool(chosen),
        "retrain": any(any(one.glob("seed-*/result.json")) for one in trained) and not is_other,
        "compare": comparison is not None,
    }
    commands = [
        f"python {verb}.py {shown}{several if verb == 'derive' else ''}"
        for verb, finished in done.items()
        if not finished
    ]
    if commands or comparison is None:
        return commands
    if int(comparison.rows["n"].max()) < _ENOUGH_SEEDS:
        commands.append(f"{_compared(run_folder) or f'python compare.py {shown}'} --seeds 0,1,2")
    read = made.get("provenance", {}).get("search_seed")
    # The unit of replication is the search run.
    if several and read and {*read.split(", ")} != {*map(str, seeds)}:
        commands.append(f"python derive.py {shown}{several}")
    elif searched and len(seeds) < _ENOUGH_SEEDS:
        seed = seeds[-1] + 1
        file = shlex.quote(f"{folder}/search/{searched[-1].name}/experiment.yaml")
        commands.append(f"python search.py {file} --run {shown} --set run.seed={seed}")
    return commands


def _compared(run_folder: Path) -> str:
    """The last comparison as it was given, but for its seeds; empty where there was none."""
    given = [row["command"] for row in read_rows(run_folder / "commands.jsonl")]
    last = next((one for one in reversed(given) if "compare.py" in one), "")
    words = shlex.split(last, comments=True)
    if "--seeds" in words:
        del words[(at := words.index("--seeds")) : at + 2]
    return shlex.join(words)


def _shown(run_folder: Path) -> str:
    relative = os.path.relpath(run_folder)
    return str(run_folder if relative.startswith("..") else Path(relative))


def commands_section(run_folder: Path, left: Sequence[str]) -> html.Section:
    """The commands that made the run, as they were given, those `left`, and what they ran on."""
    searches = seed_folders(run_folder / "search")
    trained = [seed for one in sorted(run_folder.glob("retrain/*")) for seed in seed_folders(one)]
    experiments = (folder / "experiment.yaml" for folder in [*searches, *trained])
    experiment = next((path for path in experiments if path.exists()), None)
    paths = (folder / "environment.json" for folder in [*searches, *trained])
    known = next((read_object(path) for path in paths if path.exists()), {})
    facts = {name: str(known[name]) for name in _FACTS if known.get(name)}
    for name, folders in {"search seeds": searches, "training seeds": trained}.items():
        if folders:
            facts[name] = ", ".join(map(str, sorted({*map(seed_of, folders)})))
    body = html.render(
        "commands.html.j2",
        made=[row["command"] for row in read_rows(run_folder / "commands.jsonl")],
        left=left,
        facts=facts,
        experiment=experiment.relative_to(run_folder) if experiment else None,
        settings=experiment.read_text(encoding="utf-8") if experiment else "",
    )
    return html.Section("commands", "The commands that reproduce it", body)
