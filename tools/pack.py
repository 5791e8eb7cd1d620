"""Put a run into one archive: its experiments, commands, results, and hashes of its weights.

The archive is a zip file that records how the run was made and what it found. The same run gives
the same bytes. tools.replay reproduces the run from it.

    python -m tools.pack runs/quickstart
    python -m tools.pack runs/quickstart results/quickstart.zip
"""

import io
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline import cli

MANIFEST, FOLDER, WEIGHTS = "manifest.json", "run/", ".safetensors"
# Settings, results and tables; figures and pages are drawn from them.
_TEXT = (".yaml", ".json", ".jsonl", ".csv", ".npz", ".log", ".model")
# Below a run that was made again: what was unpacked.
FILES = "replay"
_LEFT_OUT = {"tensorboard", "wandb", "jobs", FILES}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("pack", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="the archive (default: RUN.zip)"
    )
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        run = arguments.run
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
