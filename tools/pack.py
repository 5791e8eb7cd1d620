"""Put a run into one archive, or compare a reproduced run with an archive.

The archive is a zip file of experiments, commands, results and hashes of weights. The same run
gives the same bytes. --check says what differs in a reproduced run: first program, packages,
processor, text and keys of the experiment, then results, each with its first difference. pi.npz
and weights are compared byte for byte, and all values except times.

    python -m tools.pack runs/quickstart
    python -m tools.pack runs/quickstart results/quickstart.zip
    python -m tools.pack runs/again --check quickstart.zip

The exit code of --check is 0 if all results are equal, 1 if one differs or is missing.
"""

import csv
import hashlib
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
_PHASES = ("search/", "trainings/", "shrink.", "architecture", "retrain/", "model/", "comparison.")
_RESULTS = (".npz", ".csv", ".json", ".jsonl", "/model.safetensors")
# Not every command derives a layout again.
_DUE = ("search/", "trainings/", "retrain/", "comparison.")
_OF_THE_MACHINE = ("environment.json", "key.json")
# What was measured, or says with which commit.
_TIMES = {
    *("elapsed_s", "tokens_per_s", "latency_ms", "latency_interval_ms", "train_step_ms"),
    *("relative_latency", "latency_note", "latency_key", "times", "times_reference", "matched"),
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
    from utils.files import read_rows, sha256_of, write_whole

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
    """Print what differs between a run and an archive; the exit code, which results decide."""
    from utils.text import visible

    contents, commands = read_archive(path)
    due = [name for name in in_order(contents) if name.startswith(_DUE) or (run / name).is_file()]
    found = [line for name in due if (line := difference(name, contents[name], run / name))]
    lines = [*dict.fromkeys(facts(contents, run)), *found]
    if any(not (run / name).is_file() for name in due):
        lines = [f"reproduce a run by these commands, with --run {run}:", *commands, *lines]
    for line in lines:
        print(visible(line))
    print(f"{run}: {len(found) or 'none'} of {len(due)} results differ, times excepted")
    return cli.DIFFERENT if found else 0


def read_archive(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """Contents of a packed run by file, of weights their hashes, and its commands.

    ValueError, with one line that names the archive: it is damaged, or something else.
    """
    from pipeline.run_files import COMMANDS

    try:
        with zipfile.ZipFile(path) as archive:
            hashes = json.loads(archive.read(MANIFEST))
            contents = {
                name: digest.encode() if name.endswith(WEIGHTS) else archive.read(FOLDER + name)
                for name, digest in hashes.items()
            }
        for name, content in contents.items():
            if not name.endswith(WEIGHTS) and hashlib.sha256(content).hexdigest() != hashes[name]:
                raise ValueError(f"{name} has not the hash of {MANIFEST}")
        rows = [json.loads(line) for line in contents[COMMANDS].splitlines()]
        return contents, [row["command"] for row in rows]
    except OSError:
        raise
    except Exception as error:  # whatever a reader meets in a file of something else
        raise ValueError(f"{path}: not a complete archive of tools.pack ({error})") from None


def facts(contents: Mapping[str, bytes], run: Path) -> Iterator[str]:
    """What explains other results: program, packages, machine, text, keys of the experiment."""
    from pipeline.compare import FACTS, facts_in
    from utils.files import unlike
    from utils.strict_yaml import read_yaml

    names = (*FACTS, "corpus", "tokenizer")
    for name in (name for name in contents if (run / name).is_file()):
        pair = contents[name], (run / name).read_bytes()
        if name.endswith(("/environment.json", "/identity.json")):
            was, now = (facts_in(json.loads(content), names) for content in pair)
        elif name.endswith("/experiment.yaml") and pair[0] != pair[1]:
            was, now = (read_yaml(content.decode()).value for content in pair)
        else:
            continue
        yield from (f"{'.'.join(place)} {words}" for place, words in unlike(was, now))


def difference(name: str, was: bytes, path: Path) -> str:
    """The first difference of a result, times excepted; empty where there is none."""
    from utils.files import sha256_of, unlike

    if not path.is_file():
        return f"{name}: is missing here"
    now = sha256_of(path).encode() if name.endswith(WEIGHTS) else path.read_bytes()
    if now == was:
        return ""
    if not name.endswith((".json", ".jsonl", ".csv")):
        return f"{name}: other bytes"
    try:
        found = [*unlike(_values(name, was), _values(name, now))]
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read ({error})") from None
    lines = (f"{name}: {', '.join(at)} {words}" for at, words in found if not _TIMES & {*at})
    return next(lines, "")


def in_order(names: Collection[str]) -> list[str]:
    """The results among a run's files, in the order in which a run writes them."""
    results = [name for name in sorted(names) if name.endswith(_RESULTS)]
    kept = [name for name in results if not name.endswith(_OF_THE_MACHINE)]
    return [name for phase in _PHASES for name in kept if name.startswith(phase)]


def _values(name: str, content: bytes) -> Any:
    """The content of a table by line, or of a JSON file."""
    text = content.decode()
    if name.endswith(".csv"):
        return {f"line {at}": row for at, row in enumerate(csv.DictReader(text.splitlines()), 2)}
    if name.endswith(".jsonl"):
        return {f"line {at}": json.loads(row) for at, row in enumerate(text.splitlines(), 1)}
    return json.loads(text)


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
