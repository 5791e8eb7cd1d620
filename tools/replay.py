"""Reproduce a packed run and report whether the results are equal.

The commands of the archive run in their order, with its experiments, seeds and threads. First the
differences of this machine are listed (program, packages, processor, text); if there are any, equal
results cannot be expected, and only --force continues. pi.npz and weights are compared byte for
byte, and all values except times. The same command resumes an interrupted replay.
Replay only archives of people you trust: an experiment may name any file or address as its text.

    python -m tools.replay quickstart.zip
    python -m tools.replay quickstart.zip --check
    python -m tools.replay quickstart.zip --run runs/again --set data.files.train=my/train.txt

The exit code is 0 if all is equal, 1 if something differs.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli
from tools.pack import FILES, FOLDER, MANIFEST, WEIGHTS
from utils.files import sha256_of
from utils.text import visible

if TYPE_CHECKING:
    from training.signals import StopRequest

_POLL_S = 0.2
_PROGRAM = Path(__file__).resolve().parents[1]
# Options of the verbs that say what is computed; all else of a command is its experiment.
_OPTIONS = {
    "search": {"--seeds", "--workers"},
    "derive": {"--workers"},
    "retrain": {"--architecture", "--layout", "--seeds", "--workers"},
    "compare": {"--workers"},
}
# Results, in the order in which a run writes them: the first difference is then a cause.
_PHASES = ("search/", "architecture", "retrain/", "model/", "comparison.")
_RESULTS = (".npz", ".csv", ".json", ".jsonl", "/model.safetensors")
_OF_THE_MACHINE = ("environment.json", "key.json")
# What was measured, or says with which commit.
_TIMES = {
    *("elapsed_s", "tokens_per_s", "latency_ms", "latency_interval_ms", "train_step_ms"),
    *("relative_latency", "latency_note", "latency_key", "times", "times_reference", "equal"),
    *("saving", "verdict", "remarks", "commit", "cost"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("replay", __doc__)
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="what tools.pack wrote")
    parser.add_argument(
        "--run", type=Path, metavar="DIR", help="a new run directory (default: runs/ARCHIVE-replay)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="override a key of every experiment, e.g. the path of its text; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="read archive and text, list what differs, then stop"
    )
    parser.add_argument("--force", action="store_true", help="continue even if something differs")
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        return replay(arguments)


def replay(arguments: argparse.Namespace) -> int:
    """Say what differs here, run the commands, and compare."""
    from utils.files import folder_made_whole

    path, settings = arguments.archive, arguments.set
    with tempfile.TemporaryDirectory() as folder:
        hashes = unpack(path, Path(folder))
        commands = read_commands(Path(folder), hashes)
        expected = expectations(Path(folder), settings)
    for line in expected:
        print(f"differs: {line}", flush=True)
    if arguments.check:
        print(*(visible(command["command"]) for command in commands), sep="\n")
        print(f"{path}: complete; nothing was run")
        return 0
    if expected and not arguments.force:
        raise ValueError(
            f"{path}: the same numbers cannot be expected here ({len(expected)} differences, "
            "above); --force runs it anyway"
        )
    run = cli.check_run(arguments.run or Path("runs") / f"{path.stem}-replay")
    files = run / FILES
    if not files.exists():
        if run.exists() and any(run.iterdir()):
            raise ValueError(f"{run}: is not empty; a replay needs a folder of its own, give --run")
        with folder_made_whole(files) as work:
            unpack(path, work)
    elif json.loads((files / MANIFEST).read_bytes()) != hashes:
        raise ValueError(f"{run}: a replay of another archive; give another --run")
    remake(commands, run, settings)
    found, seen = differences(hashes, run)
    print("", *found, sep="\n")
    verdict = f"{len(found)} differ; the first line is the first of them" if found else "equal"
    print(f"{run}: of {seen} files {verdict}, times excepted")
    return cli.DIFFERENT if found else 0


def unpack(path: Path, folder: Path) -> dict[str, str]:
    """Write the files of an archive below a folder; return the hashes of its run by name.

    ValueError, with one line that names the archive: it is damaged or hostile, or does not hold
    what its manifest says.
    """
    from utils.files import write_whole

    try:
        with zipfile.ZipFile(path) as archive:
            hashes: dict[str, str] = json.loads(archive.read(MANIFEST))
            for name, digest in hashes.items():
                if {"..", ""} & {*re.split(r"[/\\:]", name)}:
                    raise ValueError(f"holds the unsafe name {name!r:.200}")
                if name.endswith(WEIGHTS):
                    continue
                content = archive.read(FOLDER + name)
                if sha256(content).hexdigest() != digest:
                    raise ValueError(f"{name!r:.200} is not the file that was packed")
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_whole(folder / name, content)
            write_whole(folder / MANIFEST, json.dumps(hashes))
            for number, command in enumerate(read_commands(folder, hashes)):
                write_whole(folder / f"{number}.yaml", json.dumps(command["experiment"]))
    except OSError:
        raise
    except Exception as error:  # whatever a reader meets in a file of something else
        raise ValueError(
            f"{path}: not a complete archive of tools.pack ({visible(str(error))})"
        ) from None
    return hashes


def read_commands(files: Path, hashes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Commands of unpacked files; ValueError where one is more than a verb with its options."""
    from pipeline.run_files import COMMANDS

    commands = [json.loads(line) for line in (files / COMMANDS).read_text("utf-8").splitlines()]
    for command in commands:
        options, file = command["options"], command["options"].get("--architecture")
        if (
            not options.keys() <= _OPTIONS[command["verb"]]
            or not {command["threads"], command["ranks"]} <= set(range(1, 4097))
            or not all(isinstance(text, str) for text in [*options.values(), command["command"]])
            or (file is not None and file not in hashes)
        ):
            raise ValueError(f"its command {command['command']!r:.200} may not be run")
    return commands


def arguments_of(
    number: int, command: Mapping[str, Any], run: Path, settings: Sequence[str]
) -> list[str]:
    """Script and arguments of a command, with torchrun where several processes ran it."""
    files, options = run / FILES, dict(command["options"])
    if "--architecture" in options:
        options["--architecture"] = str(files / options["--architecture"])
    given = [str(_PROGRAM / f"{command['verb']}.py"), str(files / f"{number}.yaml")]
    given += ["--run", str(run), *(part for text in settings for part in ("--set", text))]
    given += [f"{name}={value}" if value else name for name, value in options.items()]
    if command["ranks"] == 1:
        return given
    several = ["-m", "torch.distributed.run", "--standalone"]
    several += ["--nproc_per_node", str(command["ranks"]), "--"]
    return [*several, *given, "--set", f"run.threads={command['threads']}"]


def remake(commands: Sequence[Mapping[str, Any]], run: Path, settings: Sequence[str]) -> None:
    """Run the commands, each in a process of its own; what is done already they find done.

    Ends this process, with the command's exit code, where a command fails.
    """
    from training.signals import Stopped, StopRequest
    from utils.screen import announce, say

    with StopRequest().listening() as stop:
        for number, command in enumerate(commands):
            line = visible(command["command"])
            announce(f"\n{line}")
            arguments = arguments_of(number, command, run, settings)
            code = _run(arguments, str(command["threads"]), stop)
            if stop.number is not None:
                raise Stopped(stop.number)
            if code:
                say(f"{line}\nended with exit code {code}; the replay stops here")
                # Of a process that a signal killed, as a shell has it.
                raise SystemExit(code if code > 0 else 128 - code)


def _run(arguments: Sequence[str], threads: str, stop: "StopRequest") -> int:
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    command = [sys.executable, *arguments]
    # A session of its own: Ctrl-C reaches this process alone, which hands it on once.
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        while process.poll() is None and stop.number is None:
            time.sleep(_POLL_S)
        process.terminate()
        return process.wait()


def expectations(files: Path, settings: Sequence[str]) -> list[str]:
    """Reasons against the same numbers here from unpacked files; empty where there are none.

    The text of the first command is read, and may be downloaded, since its hash is asked for.
    """
    from data import prepare
    from pipeline.compare import facts_in
    from pipeline.devices import find_device
    from pipeline.experiment import load_experiment
    from pipeline.run_files import phase_folders, run_folders
    from training.run_dir import environment
    from utils.files import read_object
    from utils.screen import say

    experiment = load_experiment(files / "0.yaml", settings, Path.cwd())
    here = facts_in(json.loads(environment(find_device(experiment.run.device), {})))
    say(f"{experiment.data.corpus}: reading the text")
    text = prepare(experiment.data, Path.cwd(), progress=say, is_run=run_folders(Path()))
    here |= {"corpus": text.corpus.digest, "tokenizer": text.tokenizer.digest}
    found = list[str]()
    for folder in phase_folders(files):
        before = facts_in(read_object(folder / "environment.json"))
        identity = read_object(folder / "identity.json")
        before |= {name: identity[name] for name in ("corpus", "tokenizer")}
        found += [
            f"{name} was {was}, is {here[name]}"
            for name, was in before.items()
            # The commands set these.
            if name not in ("threads", "ranks")
            and (here[name] != was or (name == "commit" and was.endswith("-changed")))
        ]
    return [visible(line) for line in dict.fromkeys(found)]


def differences(hashes: Mapping[str, str], run: Path) -> tuple[list[str], int]:
    """Names of the results that came out otherwise, the earliest first, and how many were seen.

    A layout that the commands do not derive again is no difference.
    """
    found, seen = list[str](), 0
    for name in in_order(hashes):
        path, there = run / name, run / FILES / name
        if not path.is_file():
            if name.startswith(("search/", "retrain/", "comparison.")):
                found.append(f"{name}: is missing here")
            continue
        seen += 1
        if sha256_of(path) == hashes[name]:
            continue
        if not name.endswith((".json", ".jsonl", ".csv")) or _values(path) != _values(there):
            found.append(name)
    return found, seen


def in_order(names: Collection[str]) -> list[str]:
    """The results among a run's files, in the order in which a run writes them."""
    results = [name for name in sorted(names) if name.endswith(_RESULTS)]
    kept = [name for name in results if not name.endswith(_OF_THE_MACHINE)]
    return [name for phase in _PHASES for name in kept if name.startswith(phase)]


def _values(path: Path) -> Any:
    """The content of a table or JSON file, times excepted."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return _without_times(list(csv.DictReader(text.splitlines())))
    if path.suffix == ".jsonl":
        return _without_times([json.loads(line) for line in text.splitlines()])
    return _without_times(json.loads(text))


def _without_times(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_times(of) for key, of in content.items() if key not in _TIMES}
    return [_without_times(of) for of in content] if isinstance(content, list) else content


if __name__ == "__main__":
    sys.exit(main())
