"""Put a run into one archive, or compare a reproduced run with an archive.

The archive is a zip file of experiments, commands, results and hashes of weights. The same run
gives the same bytes. --check says what differs on this machine (program, packages, processor,
text), and which results do: pi.npz and weights byte for byte, and all values except times.

    python -m tools.pack runs/quickstart
    python -m tools.pack runs/quickstart results/quickstart.zip
    python -m tools.pack runs/again --check quickstart.zip

The exit code of --check is 0 if all is equal, 1 if something differs.
"""

import csv
import io
import json
import sys
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import cli

MANIFEST, FOLDER, WEIGHTS = "manifest.json", "run/", ".safetensors"
# Settings, results and tables; figures and pages are drawn from them.
_TEXT = (".yaml", ".json", ".jsonl", ".csv", ".npz", ".log", ".model")
_LEFT_OUT = {"tensorboard", "wandb", "jobs"}
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
    parser = cli.tool_parser("pack", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="the archive (default: RUN.zip)"
    )
    parser.add_argument(
        "--check", type=Path, metavar="ARCHIVE", help="compare RUN with an archive, write nothing"
    )
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        run = arguments.run
        if arguments.check is not None:
            return check(run, arguments.check)
        # Not with_suffix: a run may be called tau0.1.
        out = arguments.out or run.absolute().with_name(f"{run.absolute().name}.zip")
        print(write_archive(run, out))
        print(f"archive: {arguments.out or run.with_name(f'{run.name}.zip')}")
    return 0


def write_archive(run: Path, out: Path) -> str:
    """Write the archive of a run; return its commands and sizes.

    ValueError where a phase is not done, or `out` is there or inside of the run.
    """
    from pipeline.run_files import COMMANDS, unfinished
    from training.run_dir import read_rows
    from utils.files import sha256_of, write_whole

    if not run.is_dir():
        raise ValueError(f"{run}: no run directory")
    commands = [row["command"] for row in read_rows(run / COMMANDS)]
    if not commands:
        raise ValueError(f"{run}: no command of search.py, derive.py or retrain.py made it")
    for folder in unfinished(run):
        raise ValueError(f"{folder}: not done; resume its command, or move it away")
    if out.exists():
        raise ValueError(f"{out}: exists already; give another name, or remove it")
    if out.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{out}: is inside the run {run}, which is packed; put it elsewhere")
    hashes = {path.relative_to(run).as_posix(): sha256_of(path) for path in sorted(_files(run))}
    held = [name for name in hashes if not name.endswith(WEIGHTS)]
    buffer = io.BytesIO()
    contents = {MANIFEST: (json.dumps(hashes, indent=1) + "\n").encode()}
    contents |= {FOLDER + name: (run / name).read_bytes() for name in held}
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in contents.items():
            # All are of 1980, a ZipInfo's own time: the same run gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    write_whole(out, buffer.getvalue())
    sizes = f"{len(held)} files, {len(hashes) - len(held)} of weights by their hashes"
    return "\n".join([*commands, f"{sizes}; {out.stat().st_size:,} bytes"])


def check(run: Path, path: Path) -> int:
    """Print what differs between a run and an archive; the exit code."""
    from pipeline.run_files import COMMANDS
    from utils.text import visible

    try:
        with zipfile.ZipFile(path) as archive:
            hashes = json.loads(archive.read(MANIFEST))
            lines = archive.read(FOLDER + COMMANDS).splitlines()
            commands = [visible(json.loads(line)["command"]) for line in lines]
            found = [visible(line) for line in differences(archive, hashes, run)]
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        why = visible(str(error))
        raise ValueError(f"{path}: not a complete archive of tools.pack ({why})") from None
    if any(line.endswith(_MISSING) for line in found):
        print(f"reproduce a run by these commands, with --run {run}:", *commands, sep="\n")
    first = "; the first result is the cause of the others" if found else ""
    print(*found, f"{run}: {len(found) or 'nothing'} differs, times excepted{first}", sep="\n")
    return cli.DIFFERENT if found else 0


_MISSING = ": is missing here"


def differences(archive: zipfile.ZipFile, hashes: Mapping[str, str], run: Path) -> list[str]:
    """Facts of the machine that differ, and results, the earliest first.

    A layout that the commands do not derive again is no difference.
    """
    from utils.files import sha256_of

    found = dict.fromkeys(_facts(archive, hashes, run))
    for name in in_order(hashes):
        path = run / name
        if not path.is_file():
            if name.startswith(("search/", "retrain/", "comparison.")):
                found[f"{name}{_MISSING}"] = None
        elif sha256_of(path) != hashes[name] and (
            not name.endswith((".json", ".jsonl", ".csv"))
            or _values(name, path.read_bytes()) != _values(name, archive.read(FOLDER + name))
        ):
            found[name] = None
    return [*found]


def _facts(archive: zipfile.ZipFile, hashes: Mapping[str, str], run: Path) -> Iterator[str]:
    """Whatever is another one here: program, packages, processor, threads, text."""
    from pipeline.compare import FACTS, facts_in

    names = (*FACTS, "corpus", "tokenizer")
    for name in hashes:
        if name.endswith(("/environment.json", "/identity.json")) and (run / name).is_file():
            contents = archive.read(FOLDER + name), (run / name).read_bytes()
            was, now = (facts_in(json.loads(one), names) for one in contents)
            for key in (key for key in names if was[key] != now[key]):
                yield f"{key} was {was[key]}, is {now[key]}"


def in_order(names: Collection[str]) -> list[str]:
    """The results among a run's files, in the order in which a run writes them."""
    results = [name for name in sorted(names) if name.endswith(_RESULTS)]
    kept = [name for name in results if not name.endswith(_OF_THE_MACHINE)]
    return [name for phase in _PHASES for name in kept if name.startswith(phase)]


def _values(name: str, content: bytes) -> Any:
    """The content of a table or JSON file, times excepted."""
    text = content.decode()
    if name.endswith(".csv"):
        return _without_times(list(csv.DictReader(text.splitlines())))
    if name.endswith(".jsonl"):
        return _without_times([json.loads(line) for line in text.splitlines()])
    return _without_times(json.loads(text))


def _without_times(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_times(of) for key, of in content.items() if key not in _TIMES}
    return [_without_times(of) for of in content] if isinstance(content, list) else content


def _files(run: Path) -> Iterator[Path]:
    for path in run.rglob("*"):
        parts = path.relative_to(run).parts
        hidden = any(part[0] == "." for part in parts)
        if path.suffix not in (*_TEXT, WEIGHTS) or hidden or _LEFT_OUT & {*parts}:
            continue
        if path.is_file() and not path.is_symlink():
            yield path


if __name__ == "__main__":
    sys.exit(main())
