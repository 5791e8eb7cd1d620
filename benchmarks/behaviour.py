"""Whether a change leaves every result as it was: tiny experiments through all verbs, hashed.

Each line is a result and the SHA-256 of what it says: of the tensors of weights, checkpoints and
pi.npz (not of the files' headers), of tables and results without times, latencies and paths. With
--against the same commands run in a fresh checkout of another commit too, with this interpreter on
this machine, and what differs is printed; then the exit code is 1.

    python -m benchmarks.behaviour
    python -m benchmarks.behaviour --against main
    python -m benchmarks.behaviour --json before.json    # ... a change ...
    python -m benchmarks.behaviour --against before.json
    python -m benchmarks.behaviour --only tied sweep --against HEAD~1
"""

import argparse
import csv
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from utils.files import write_whole

ROOT = Path(__file__).resolve().parents[1]

BASE = """\
run: {log_every: 4, validate_every: 8, checkpoint_every: 6, threads: 1, device: cpu, figures: false}
data:
  corpus: files
  files: {train: FOLDER/train.txt, valid: FOLDER/valid.txt, test: FOLDER/test.txt}
  tokenizer: {kind: bytes}
  batch: 4
  segment: 16
  evaluation_streams: 5
model:
  n_blocks: 4
  d_model: 16
  n_heads: 2
  d_ffn: 24
  memory: 8
  dropout: 0.1
  softmax: {cutoffs: [20, 60], factor: 2}
search:
  steps: 20
  alpha: {warmup_fraction: 0.25}
  optimiser: {lr: 0.003, warmup_steps: 3}
retrain:
  steps: 16
  optimiser: {lr: 0.003, warmup_steps: 3}
compare:
  baselines: [interleaved, par, sandwich, random]
"""
SWEEP = """
sweep:
  trials: 4
  sampler: {kind: random}
  space:
    search.tau.start: {low: 0.5, high: 2.0, log: true}
    model.n_blocks: {low: 2, high: 4}
"""


@dataclass(frozen=True)
class Case:
    """An experiment and what is done with it.

    Attributes:
        settings: what differs from the base.
        commands: script or module and its arguments, without the experiment and the run.
        more: text put behind the experiment.
    """

    settings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("search.py",)
    more: str = ""


METHODS = "top_k", "sampled", "beam", "evolution", "interleaved", "par", "sandwich", "random"
ALPHA, MODEL, OPTIMISER = "search.alpha.", "model.", "retrain.optimiser."
KINDS = (
    *("attention", "dense", "identity", "short_conv", "gated_delta", "linear_attention"),
    *("adaptive_span", "all_attention", "persistent", "routing", "mixture_of_experts"),
    "product_key_memory",
)
RETRAIN = "retrain.py --layout 'a d i a'"
CASES = {
    "whole": Case(
        commands=(
            "search.py --seeds 0,1",
            *(f"derive.py --method {method}" for method in METHODS),
            "derive.py --seeds 0,1",
            "derive.py",
            "retrain.py",
            "compare.py",
            "compare.py --set compare.seeds=[0,1]",
            f"{RETRAIN} --set run.seed=3",
        ),
    ),
    **{
        estimator: Case((f"search.estimator={estimator}",))
        for estimator in ("soft", "straight_through", "single_path", "two_path", "dirichlet")
    },
    "spos": Case(("search.estimator=spos", f"{ALPHA}estimator=dirichlet")),
    "shared": Case(("search.estimator=soft", f"{ALPHA}data=shared")),
    "split": Case(("search.estimator=soft", f"{ALPHA}data=split", f"{ALPHA}share=0.25")),
    "held": Case(("search.estimator=two_path", "search.resample_every=3", f"{ALPHA}every=2")),
    "stairs": Case(
        ("search.tau.schedule=step", "search.tau.stairs=3", "search.tau.start=2", f"{ALPHA}lr=0.1")
    ),
    "tied": Case(
        (f"{MODEL}tie_blocks=2", f"{MODEL}clamp=6", f"{MODEL}window=7", f"{MODEL}activation=gelu"),
        ("search.py", "derive.py", "retrain.py"),
    ),
    "bpe": Case(
        (
            "data.tokenizer.kind=bpe",
            "data.tokenizer.vocabulary=300",
            "data.random_offset=true",
            "data.context_tokens=4",
            "search.steps=null",
            "search.epochs=0.4",
        ),
        ("search.py", "derive.py --method top_k", "retrain.py"),
    ),
    "unigram": Case(
        ("data.tokenizer.kind=unigram", "data.tokenizer.vocabulary=300", f"{MODEL}softmax={{}}"),
        (RETRAIN,),
    ),
    "micro": Case(
        ("run.micro_batches=2", "run.recompute=true", "run.precision=bfloat16"),
        ("search.py", RETRAIN),
    ),
    "sgd": Case((f"{OPTIMISER}kind=sgd", f"{OPTIMISER}momentum=0.9"), (RETRAIN,)),
    "lamb": Case((f"{OPTIMISER}kind=lamb", f"{OPTIMISER}schedule=linear"), (RETRAIN,)),
    "fine_tune": Case(
        ("retrain.fine_tune={steps: 6, lr: 1e-4}", f"{OPTIMISER}clip_value=0.1"), (RETRAIN,)
    ),
    "budget": Case(
        ("derive.budget.flops=0.9x", "derive.fill=d_ffn"),
        ("search.py", "derive.py", "derive.py --method top_k", "derive.py --method random"),
    ),
    "cost": Case(
        ("search.cost={name: flops, target: 0.8x}", "derive.average=0.5"),
        ("search.py", "derive.py"),
    ),
    "kinds": Case(
        (
            f"{MODEL}candidates=[{', '.join(KINDS)}]",
            f"{MODEL}token_shift=true",
        ),
        ("search.py", "derive.py", "retrain.py"),
    ),
    "trained": Case(
        ("derive.probes={finalists: 1, final_seeds: 1, most: 12}", "derive.top=2"),
        (
            "search.py",
            "derive.py --method trained",
            "derive.py --method predictor --workers 2",
            "compare.py --workers 2",
        ),
    ),
    "sweep": Case(commands=("sweep.py",), more=SWEEP),
    "rank": Case(
        commands=("search.py", "-m 'benchmarks.layoutbench rank' --steps 4 --free 3 --equal 0")
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 where something differs, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", metavar="COMMIT", help="or a --json file: compare with it (default: nothing)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="written too (default: none)")
    parser.add_argument(
        "--only", nargs="+", choices=CASES, metavar="CASE", help="these cases (default: all)"
    )
    parser.add_argument("--workers", type=int, default=2, help="cases at a time (default: 2)")
    arguments = parser.parse_args(argv)
    names = arguments.only or [*CASES]
    now = hashes_of(ROOT, names, arguments.workers)
    for name, value in now.items():
        print(value[:16], name)
    if arguments.json is not None:
        write_whole(arguments.json, json.dumps(now, indent=1) + "\n")
    if arguments.against is None:
        return 0
    if Path(arguments.against).is_file():
        recorded = json.loads(Path(arguments.against).read_text(encoding="utf-8"))
        before = {
            key: value
            for key, value in recorded.items()
            if key.partition(": ")[0] in names
            and Path(key).name not in LEFT_OUT
            # Best weights of a step that only a checkpoint before the last one named.
            and (key in now or not Path(key).name.startswith("best-"))
        }
    else:
        with checkout(arguments.against) as tree:
            before = hashes_of(tree, names, arguments.workers)
    changes = differences(before, now)
    print("\n".join(changes) or f"all {len(now)} results are those of {arguments.against}")
    return bool(changes)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """A line for each result that is new, missing or another."""
    lines = [f"missing: {name}" for name in before if name not in now]
    lines += [f"new: {name}" for name in now if name not in before]
    return lines + [
        f"differs: {name}" for name in now if name in before and now[name] != before[name]
    ]


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A working tree of another commit, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def hashes_of(tree: Path, names: Sequence[str], workers: int) -> dict[str, str]:
    """The hash of each result of the cases, by case and file."""
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(lambda name: case_hashes(tree, name), names)
        return {key: value for part in parts for key, value in part.items()}


def case_hashes(tree: Path, name: str) -> dict[str, str]:
    """Run the commands of one case in a folder of its own and hash what they leave.

    Raises:
        RuntimeError: a command ended with another exit code than 0.
    """
    case, hashes = CASES[name], {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file = experiment_file(place, case)
        environment = {**os.environ, "PARNAS_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        for command in case.commands:
            script, *given = split(command)
            if script == "-m":
                script, *given = f"-m {given[0]}", *given[1:]
            line = [sys.executable, *script.split(), str(file), "--run", f"{folder}/run", *given]
            for setting in case.settings:
                line += ["--set", setting]
            done = subprocess.run(line, cwd=tree, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{name}: {command}: {done.stderr[-2000:]}")
        for path in sorted(place.glob("run/**/*")):
            content = content_of(path, folder)
            if content is not None:
                hashes[f"{name}: {path.relative_to(place / 'run')}"] = digest(content)
    return hashes


def split(command: str) -> list[str]:
    """A command line in parts; what stands in quotes is one."""
    return [part.strip("'") for part in re.findall(r"'[^']*'|\S+", command)]


def experiment_file(folder: Path, case: Case) -> Path:
    """The base with its texts, words of a small language."""
    draw = random.Random(0)
    words = [f"{a}{b}{c}" for a in "kstr" for b in "aeiou" for c in ("n", "l", "ndo", "rta")]
    for name, lines in {"train": 130, "valid": 20, "test": 25}.items():
        text = "".join(" ".join(draw.choices(words, k=8)) + ".\n" for _ in range(lines))
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    path = folder / "tiny.yaml"
    path.write_text(BASE.replace("FOLDER", str(folder)) + case.more, encoding="utf-8")
    return path


# What times, machines, paths and the commit decide, and what is only read by people.
TIMES = re.compile(
    r"(_s|_ms|tok/s|note|run)$|_ms\.|latency|elapsed|pid|host|machine|began|ended|commit|^key$|^study$|crc32"
)
LEFT_OUT = {"environment.json", "identity.json", "key.json", "lock", "commands.jsonl"}


def content_of(path: Path, folder: str) -> Any:
    """What a file says, without what changes from run to run; None: it is no result."""
    if path.name in LEFT_OUT or not path.is_file():
        return None
    match path.suffix:
        case ".safetensors":
            return tensors_of(load_file(path))
        case ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return tensors_of(dict(arrays))
        case ".json":
            return timeless(json.loads(path.read_text(encoding="utf-8")), folder)
        case ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
            return [timeless(json.loads(line), folder) for line in lines]
        case ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return [timeless(row, folder) for row in csv.DictReader(file)]
    return None


def tensors_of(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of each array its type, shape and the hash of its numbers."""
    return {
        name: [str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
        for name, array in arrays.items()
        if not TIMES.search(name)
    }


def timeless(value: Any, folder: str) -> Any:
    """JSON without times, with the folder's name taken out of its texts."""
    if isinstance(value, Mapping):
        return {key: timeless(v, folder) for key, v in value.items() if not TIMES.search(key)}
    if isinstance(value, list):
        return [timeless(item, folder) for item in value]
    return value.replace(folder, "FOLDER") if isinstance(value, str) else value


def digest(content: Any) -> str:
    """SHA-256 of JSON with sorted keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
