"""A packed run made again in a fresh folder, and compared with what the archive says of it."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

from data import prepare
from pipeline.compare import facts_in, resumed_on
from pipeline.devices import find_device
from pipeline.experiment import Experiment, load_experiment
from pipeline.run_archive import Command, Manifest, read_manifest, unpack
from pipeline.run_files import phase_folders, run_folders
from training.run_dir import environment
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import folder_made_whole, read_object
from utils.screen import announce, say
from utils.text import shorten, visible

ROOT = Path(__file__).resolve().parents[1]
# Below the run that is made: what was unpacked.
FILES = "replay"
_POLL_S = 0.2
# Settings that say where something lies, and not what is computed.
_PLACES = ("data.files", "data.tree.folder", "data.addresses", "data.tokenizer.model")
# Results, in the order in which a run writes them: the first difference is then a cause.
_RESULTS = (
    *("search/*/identity.json", "search/*/metrics.jsonl", "search/*/pi.npz", "search/*.csv"),
    *("search/caveats.json", "architecture.json", "architectures/*.json", "architectures/*.csv"),
    *("retrain/*/identity.json", "retrain/*/metrics.jsonl", "retrain/*/result.json"),
    *("retrain/*/model/*", "model/*", "pareto.csv", "pareto.json"),
    *("comparison.csv", "comparison.json"),
)
# What was measured, or says with which commit.
_TIMES = {
    *("elapsed_s", "tokens_per_s", "latency_ms", "latency_interval_ms", "train_step_ms"),
    *("relative_latency", "latency_note", "latency_key", "times", "times_reference", "equal"),
    *("verdict", "remarks", "commit"),
}


class Ended(Exception):
    """A command of the replay ended with another exit code than 0."""

    def __init__(self, line: str, code: int) -> None:
        super().__init__(f"{line}\nended with exit code {code}; the replay goes no further")
        self.code = code


def begin(archive: Path, manifest: Manifest, run: Path) -> None:
    """Unpack an archive into the folder of its replay, or go on with a replay of the same archive.

    Raises:
        ValueError: the folder holds something else.
    """
    files = run / FILES
    if files.exists():
        if read_manifest(files) != manifest:
            raise ValueError(f"{run}: a replay of another archive; give another --run")
        return
    if run.exists() and any(run.iterdir()):
        raise ValueError(f"{run}: is not empty; a replay needs a folder of its own, give --run")
    with folder_made_whole(files) as work:
        unpack(archive, work)


def expectations(files: Path, settings: Sequence[str]) -> list[str]:
    """Reasons against the same numbers here from unpacked files; empty where there are none.

    The text of every phase is read, and may be downloaded, since its hash is asked for.

    Raises:
        ValueError: an experiment of the archive, or a setting, is not valid here.
    """
    found, texts = list[str](), dict[str, dict[str, str]]()
    for folder in phase_folders(files):
        experiment = load_experiment(folder / "experiment.yaml", settings, Path.cwd())
        recorded = read_object(folder / "environment.json", "pack the run again")
        found += _changed_facts(recorded, experiment)
        found += _changed_inputs(folder, experiment, texts)
        facts, name = facts_in(recorded), folder.relative_to(files).as_posix()
        found += [
            f"{name}: from step {step} on {fact} was {value}"
            for step, later in resumed_on(recorded)
            for fact, value in later.items()
            if facts[fact] != value
        ]
    found += [
        f"--set {shorten(text, 200)}: is another experiment"
        for text in settings
        if not text.startswith(_PLACES)
    ]
    return [visible(line) for line in dict.fromkeys(found)]


def _changed_facts(recorded: Mapping[str, Any], experiment: Experiment) -> Iterator[str]:
    before = facts_in(recorded)
    now = facts_in(json.loads(environment(find_device(experiment.run.device), {})))
    # What the commands set.
    now |= {name: before[name] for name in ("threads", "ranks")}
    for name, was in before.items():
        if now[name] != was or (name == "commit" and was.endswith("-changed")):
            yield f"{name} was {was}, is {now[name]}"
    if int(before["threads"]) > usable_cores():
        yield f"threads were {before['threads']}, and there are {usable_cores()} cores"


def _changed_inputs(
    folder: Path, experiment: Experiment, texts: dict[str, dict[str, str]]
) -> Iterator[str]:
    key = experiment.data.model_dump_json()
    if key not in texts:
        say(f"{experiment.data.corpus}: reading the text")
        prepared = prepare(experiment.data, Path.cwd(), progress=say, is_run=run_folders(Path()))
        texts[key] = {"corpus": prepared.corpus_digest, "tokenizer": prepared.tokenizer.digest}
    identity = read_object(folder / "identity.json", "pack the run again")
    for name, here in texts[key].items():
        if (was := str(identity[name])) != here:
            yield f"{name} hash was {was[:12]}, is {here[:12]}"


def remake(manifest: Manifest, run: Path, settings: Sequence[str]) -> None:
    """Run the commands, each in a process of its own; what is done already they find done.

    Raises:
        Stopped: a signal came; the command has saved its state.
        Ended: a command failed, and has said why.
    """
    with StopRequest().listening() as stop:
        for command in manifest.commands:
            line = visible(command.line(run / FILES, run))
            announce(f"\n{line}")
            code = _run(_argv(command, run, settings), stop)
            if stop.number is not None:
                raise Stopped(stop.number)
            if code:
                # Of a process that a signal killed, as a shell has it.
                raise Ended(line, code if code > 0 else 128 - code)


def _argv(command: Command, run: Path, settings: Sequence[str]) -> list[str]:
    script = [str(ROOT / f"{command.verb}.py"), *command.arguments(run / FILES, run, settings)]
    if command.ranks == 1:
        return script
    several = ["-m", "torch.distributed.run", "--standalone"]
    return [*several, "--nproc_per_node", str(command.ranks), "--", *script]


def _run(arguments: Sequence[str], stop: StopRequest) -> int:
    # A session of its own: Ctrl-C reaches this process alone, which hands it on once.
    process = subprocess.Popen([sys.executable, *arguments], start_new_session=True)
    told = False
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if stop.number is not None and not told:
                os.killpg(process.pid, signal.SIGTERM)
                told = True


def differences(manifest: Manifest, run: Path) -> tuple[list[str], int]:
    """One line for each result that came out otherwise, the earliest first, and how many were seen.

    A layout that the commands do not derive again is no difference.
    """
    found, seen = list[str](), 0
    for name in in_order([*manifest.files, *manifest.weights]):
        path = run / name
        if not path.is_file() and not name.startswith(("search/", "retrain/", "comparison.")):
            continue
        seen += 1
        if not path.is_file():
            found.append(f"{name}: is missing here")
        elif (place := _difference(name, manifest, run)) is not None:
            found.append(f"{name}: {place}")
    return found, seen


def in_order(names: Sequence[str]) -> list[str]:
    """The results among a run's files, in the order in which a run writes them."""
    places = dict[str, int]()
    for name in names:
        fitting = (at for at, pattern in enumerate(_RESULTS) if fnmatchcase(name, pattern))
        if (at := next(fitting, None)) is not None:
            places[name] = at
    return sorted(places, key=lambda name: (places[name], len(name), name))


def _difference(name: str, manifest: Manifest, run: Path) -> str | None:
    here = (run / name).read_bytes()
    if sha256(here).hexdigest() == (manifest.files | manifest.weights)[name]:
        return None
    if not name.endswith((".json", ".jsonl", ".csv")):
        return "its bytes are others"
    return first_difference(name, (run / FILES / name).read_bytes(), here)


def first_difference(name: str, there: bytes, here: bytes) -> str | None:
    """First place where two tables or JSON files differ, times excepted, or None."""
    one, other = (dict(_values(_content(name, raw), "")) for raw in (there, here))
    for place in [*one, *(place for place in other if place not in one)]:
        pair = one.get(place, "nothing"), other.get(place, "nothing")
        if pair[0] != pair[1]:
            shown = [shorten(visible(text), 80) for text in (place, *pair)]
            return f"{shown[0]}: {shown[1]} there, {shown[2]} here"
    return None


def _content(name: str, raw: bytes) -> Any:
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in raw.splitlines()]
    if not name.endswith(".csv"):
        return json.loads(raw)
    rows = list(csv.DictReader(io.StringIO(raw.decode())))
    measured = {"cost"} if name == "pareto.csv" else set()
    return [{key: text for key, text in row.items() if key not in measured} for row in rows]


def _values(content: Any, place: str) -> Iterator[tuple[str, str]]:
    """Each value of a file as JSON, by the dotted place where it stands; rows count from 1."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in _TIMES:
                yield from _values(value, f"{place}.{key}" if place else key)
    elif isinstance(content, list):
        for at, value in enumerate(content, 1):
            yield from _values(value, f"{place}[{at}]" if place else f"row {at}")
    else:
        yield place, json.dumps(content)
