"""A packed run made again in a fresh folder, and compared with what the archive says of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from data import prepare
from pipeline.conditions import facts_in
from pipeline.devices import find_device
from pipeline.experiment import Experiment, load_experiment
from pipeline.pack_file import WEIGHTS, Pack, PackedPhase
from pipeline.packing import tensor_digests
from pipeline.run_commands import Command
from pipeline.run_difference import (
    Difference,
    first_difference,
    in_order,
    tensor_difference,
)
from pipeline.run_files import run_folders
from training.endings import Stopped
from training.run_dir import environment
from training.signals import StopRequest
from utils.cores import usable_cores
from utils.files import read_object, write_whole
from utils.screen import announce, say
from utils.text import shorten, visible

ROOT = Path(__file__).resolve().parents[1]
# Below the run that is made: what was unpacked, and how far the replay is.
FILES, PROGRESS = "replay", "replay/progress.json"
_POLL_S = 0.2
# Settings that say where something lies, and not what is computed.
_PLACES = ("data.files", "data.tree.folder", "data.addresses", "data.tokenizer.model")


class Ended(Exception):
    """A command of the replay ended with another exit code than 0."""

    def __init__(self, line: str, code: int) -> None:
        super().__init__(f"{line}\nended with exit code {code}; the replay goes no further")
        self.code = code


def unpack(pack: Pack, folder: Path) -> None:
    """Write the files that the commands read below a folder; their names have been checked."""
    needed = {one.experiment for one in pack.manifest.commands}
    needed |= {one.architecture for one in pack.manifest.commands if one.architecture is not None}
    needed |= {phase.experiment for phase in pack.manifest.phases.values()}
    for name in sorted(needed):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{path}: lies elsewhere by a link; remove {folder}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, pack.read(name))


def expectations(pack: Pack, settings: Sequence[str]) -> list[str]:
    """Why the same numbers cannot be expected here; empty where they can.

    The text of every phase is read, and may be downloaded, since its hash is asked for.

    Raises:
        ValueError: an experiment of the archive, or a setting, is not valid here.
    """
    found = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        unpack(pack, Path(folder))
        texts = dict[str, dict[str, str]]()
        for name, phase in pack.manifest.phases.items():
            experiment = load_experiment(Path(folder) / phase.experiment, settings, Path.cwd())
            found += _changed_facts(phase, experiment)
            found += _changed_inputs(phase, experiment, texts)
            found += [
                f"{name}: from step {step} on {fact} was {value}"
                for step, facts in phase.resumed_on.items()
                for fact, value in facts.items()
            ]
    found += [
        f"--set {shorten(text, 200)}: is another experiment"
        for text in settings
        if not text.startswith(_PLACES)
    ]
    return [visible(line) for line in dict.fromkeys(found)]


def _changed_facts(phase: PackedPhase, experiment: Experiment) -> Iterator[str]:
    now = facts_in(json.loads(environment(find_device(experiment.run.device), {})))
    # What the commands set.
    now |= {name: phase.facts[name] for name in ("threads", "ranks") if name in phase.facts}
    for name, was in phase.facts.items():
        changed = name == "commit" and was.endswith("-changed")
        if now.get(name) != was or changed:
            yield f"{name} was {was}, is {now.get(name)}"
    threads = phase.facts.get("threads", "")
    if threads.isdecimal() and int(threads) > usable_cores():
        yield f"threads were {threads}, and there are {usable_cores()} cores"


def _changed_inputs(
    phase: PackedPhase, experiment: Experiment, texts: dict[str, dict[str, str]]
) -> Iterator[str]:
    key = experiment.data.model_dump_json()
    if key not in texts:
        say(f"{experiment.data.corpus}: reading the text")
        prepared = prepare(experiment.data, Path.cwd(), progress=say, is_run=run_folders(Path()))
        texts[key] = {"corpus": prepared.corpus_digest, "tokenizer": prepared.tokenizer.digest}
    for name, was in phase.inputs.items():
        if (here := texts[key].get(name)) != was:
            yield f"{name} hash was {was[:12]}, is {str(here)[:12]}"


def begin(pack: Pack, run: Path, settings: Sequence[str], seal: str) -> None:
    """Take a folder for the replay of an archive, or go on in it.

    Raises:
        ValueError: the folder holds something else.
    """
    mark = run / PROGRESS
    ours = {"archive": seal, "settings": list(settings)}
    if mark.exists():
        known = read_object(mark, f"remove {run}, or give another --run")
        if {name: known.get(name) for name in ours} != ours:
            raise ValueError(f"{run}: a replay of another archive or --set; give another --run")
        return
    if run.exists() and any(run.iterdir()):
        raise ValueError(f"{run}: is not empty; a replay needs a folder of its own, give --run")
    unpack(pack, run / FILES)
    write_whole(mark, json.dumps(ours | {"done": 0}, indent=1) + "\n")


def remake(pack: Pack, run: Path, settings: Sequence[str]) -> None:
    """Run the commands that are not done, each in a process of its own.

    Raises:
        Stopped: a signal came; the command has saved its state.
        Ended: a command failed, and has said why.
    """
    mark, commands = run / PROGRESS, pack.manifest.commands
    known: dict[str, Any] = read_object(mark, f"remove {run}, or give another --run")
    done = known.get("done")
    with StopRequest().listening() as stop:
        for number, command in enumerate(commands[done if isinstance(done, int) else 0 :]):
            announce(f"\n{visible(command.line(run / FILES, run))}")
            code = _run(command.verb, _argv(command, run, settings), stop)
            if stop.number is not None:
                raise Stopped(stop.number)
            if code:
                # Of a process that a signal killed, as a shell has it.
                raise Ended(command.line(run / FILES, run), code if code > 0 else 128 - code)
            count = (done if isinstance(done, int) else 0) + number + 1
            write_whole(mark, json.dumps(known | {"done": count}, indent=1) + "\n")


def _argv(command: Command, run: Path, settings: Sequence[str]) -> list[str]:
    script = [str(ROOT / f"{command.verb}.py"), *command.arguments(run / FILES, run, settings)]
    if command.ranks == 1:
        return script
    several = ["-m", "torch.distributed.run", "--standalone"]
    return [*several, "--nproc_per_node", str(command.ranks), "--", *script]


def _run(verb: str, arguments: Sequence[str], stop: StopRequest) -> int:
    # A session of its own: Ctrl-C reaches this process alone, which hands it on once.
    process = subprocess.Popen([sys.executable, *arguments], start_new_session=True)
    told = False
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if stop.number is not None and not told:
                say(f"asking {verb}.py to save its state")
                os.killpg(process.pid, signal.SIGTERM)
                told = True
        except BaseException:
            # A second Ctrl-C: nothing of it may go on alone.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


def differences(pack: Pack, run: Path) -> tuple[list[Difference], dict[str, int]]:
    """The first difference of every file that the commands made again, the earliest file first.

    Returns:
        The differences, and how many files of each kind were compared.
    """
    found, counts = list[Difference](), {"tables": 0, "pi.npz": 0, "weights": 0}
    for name in in_order([name for name, one in pack.manifest.files.items() if one.remade]):
        kind = "weights" if name.endswith(WEIGHTS) else "tables"
        counts["pi.npz" if name.endswith("/pi.npz") else kind] += 1
        path = run / name
        if not path.is_file():
            found.append(Difference(name, "the file", "is", "is not"))
        elif kind == "weights":
            found += _weights(pack, name, path)
        elif (one := first_difference(name, pack.read(name), path.read_bytes())) is not None:
            found.append(one)
    return found, counts


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _weights(pack: Pack, name: str, path: Path) -> Iterator[Difference]:
    entry = pack.manifest.files[name]
    found = tensor_difference(name, entry.tensors or {}, tensor_digests(path))
    if found is None:
        return
    if entry.held:
        tensor = found.place.removeprefix("tensor ")
        there, here = (
            load(content).get(tensor) for content in (pack.read(name), path.read_bytes())
        )
        if there is not None and here is not None and _alike(there, here):
            # By bytes: nan equals itself.
            bits = [one.contiguous().view(-1).view(torch.uint8) for one in (there, here)]
            place = int((bits[0] != bits[1]).int().argmax()) // there.element_size()
            values = [str(one.view(-1)[place].item()) for one in (there, here)]
            found = Difference(name, f"{found.place}, element {place}", *values)
    yield found
