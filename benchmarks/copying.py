"""Where models differ: on tokens that they could copy from their memory, or on all others.

A target can be copied where its pair, the token before it and itself, stands among the last tokens.
Where that pair is rare in the training text, the weights hardly know it and only the context tells
it (Arora et al. 2023, arXiv 2312.04927, section 3, call such targets AR hits).

    python -m benchmarks.copying measure configs/headline.yaml --models RUN/model ... --json FILE
    python -m benchmarks.copying report --json FILE [--seeds N,N]

measure: nats of the test text by each model, over the targets of a group; of a layout, number of
steps and seed that the file has already no model is read again. report: means over
seeds, all or some.

B batch   T tokens of a stream   P pairs
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.keys import check_key
from benchmarks.layout_rows import Commands
from data import EvaluationStreams
from model import Architecture, Candidate, LanguageModel, load_model
from pipeline import cli
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from pipeline.run_files import read_model_folder, result_of_model
from training.run_dir import commit
from utils.files import read_object, write_whole

RARE_BELOW = 10  # a pair that stands less often in the training text is rare
GROUPS = ("copied, rare", "copied, common", "others")
Ids = NDArray[np.int64]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, measure=measure, report=report)
    commands.add_experiment("measure", "runs/copying")
    commands.named["measure"].add_argument(
        "--models", nargs="+", type=Path, required=True, metavar="FOLDER"
    )
    cli.add_seeds(commands.named["report"], "of the models (default: all)")
    for each in commands.named.values():
        each.add_argument("--json", type=Path, required=True)
    return commands.run(argv)


def measure(arguments: argparse.Namespace) -> None:
    """Read the test text with every model and write nats by group.

    Raises:
        ValueError: a model is of another experiment than the given one, or the file is of another
            text or window.
    """
    experiment = load_experiment(arguments.experiment, arguments.set)
    plan = set_up(experiment, arguments.run)
    window = experiment.model.memory
    streams = plan.streams("test")
    group_BT = groups_of(streams, np.asarray(plan.prepared.tokens["train"]), window)
    targets = [int((group_BT == group).sum()) for group in range(len(GROUPS))]
    ways = {"window": window, "rare_below": RARE_BELOW, "targets": targets}
    known: dict[str, Any] = {"models": {}}
    if arguments.json.exists():
        known = check_key(arguments.json, ways, "give another --json")
    content: dict[str, Any] = {**known, **ways, "commit": commit()}
    for folder in arguments.models:
        saved, result = read_model_folder(folder), training_of(folder)
        check_sizes(saved.architecture, experiment.model.d_model, plan.candidates)
        letters = saved.architecture.letters().replace(" ", "").rstrip("i")
        name, seed = f"{letters}, {result['steps']} steps", str(result["seed"])
        if saved.tokenizer.digest != plan.prepared.tokenizer.digest:
            raise ValueError(f"{folder}: has another tokenizer than {arguments.experiment}")
        if seed in content["models"].get(name, {}):
            continue
        nats = nats_by_group(load_model(folder), streams, group_BT)
        content["models"].setdefault(name, {})[seed] = nats
        write_whole(arguments.json, json.dumps(content, indent=1) + "\n")
        print(f"{name}, seed {seed}: " + "  ".join(f"{value:.4f}" for value in nats), flush=True)


def training_of(folder: Path) -> dict[str, Any]:
    """What the training of a model came to."""
    path = result_of_model(folder)
    if path is None:
        raise ValueError(f"{folder}: has no result.json beside it; give a model that retrain wrote")
    return read_object(path)


def check_sizes(architecture: Architecture, d_model: int, candidates: Sequence[Candidate]) -> None:
    """ValueError where a model is narrower, say: it would count as its layout's own."""
    others = [slot.label for slot in architecture.blocks if slot not in candidates]
    if others or architecture.d_model != d_model:
        what = f"{others[0]} has other options" if others else f"d_model is {architecture.d_model}"
        raise ValueError(
            f"{architecture.name}: {what} than in the experiment (d_model {d_model}); give its own "
            "models alone"
        )


def groups_of(streams: EvaluationStreams, train_N: Ids, window: int) -> NDArray[np.int8]:
    """The group of every target of the streams, batch after batch; -1 where it does not count."""
    batches = list(streams)
    input_BT, target_BT, score_BT = (
        torch.cat([getattr(batch, name) for batch in batches], dim=1).numpy()
        for name in ("input_BT", "target_BT", "score_BT")
    )
    is_copied_BT = np.stack(
        [in_memory(*pair, window) for pair in zip(input_BT, target_BT, strict=True)]
    )
    is_rare_BT = pair_counts(train_N, input_BT, target_BT) < RARE_BELOW
    group_BT = np.where(is_copied_BT, np.where(is_rare_BT, 0, 1), 2)
    return np.where(score_BT, group_BT, -1).astype(np.int8)


def in_memory(input_T: Ids, target_T: Ids, window: int) -> NDArray[np.bool_]:
    """Whether the pair that ends with a target stands among the last `window` inputs before it."""
    last: dict[tuple[int, int], int] = {}
    is_copied_T = np.zeros(len(input_T), dtype=bool)
    for at, pair in enumerate(zip(input_T.tolist(), target_T.tolist(), strict=True)):
        # The earlier pair is the inputs `place` and `place + 1`, and the last input is `at`.
        place = last.get(pair)
        is_copied_T[at] = place is not None and place > at - window
        last[pair] = at
    return is_copied_T


def pair_counts(train_N: Ids, first_BT: Ids, second_BT: Ids) -> Ids:
    """How often each pair stands in the training text."""
    base = 1 + max(int(ids.max()) for ids in (train_N, first_BT, second_BT))
    pair_P, count_P = np.unique(
        train_N[:-1].astype(np.int64) * base + train_N[1:], return_counts=True
    )
    wanted_BT = first_BT * base + second_BT
    place_BT = np.searchsorted(pair_P, wanted_BT).clip(max=len(pair_P) - 1)
    return np.where(pair_P[place_BT] == wanted_BT, count_P[place_BT], 0)


@torch.inference_mode()
def nats_by_group(
    model: LanguageModel, streams: EvaluationStreams, group_BT: NDArray[np.int8]
) -> list[float]:
    """Mean nats of the targets of each group; that of a group without targets is 0."""
    model.eval()
    state, parts = model.initial_state(streams.streams), list[torch.Tensor]()
    for batch in streams:
        h_BTD, state, _ = model(batch.input_BT, state)
        parts.append(model.nll(h_BTD, batch.target_BT).double())
    nats_BT = torch.cat(parts, dim=1).numpy()
    of_groups = (nats_BT[group_BT == group] for group in range(len(GROUPS)))
    return [float(nats.mean()) if nats.size else 0.0 for nats in of_groups]


def report(arguments: argparse.Namespace) -> None:
    """Print the table."""
    content = json.loads(arguments.json.read_text(encoding="utf-8"))
    print("\n".join(lines_of(content, arguments.seeds)))


def lines_of(content: Mapping[str, Any], seeds: Sequence[int] | None = None) -> Iterator[str]:
    """The groups' shares of the targets, then mean nats of every layout's models of the seeds."""
    total = sum(content["targets"])
    yield f"{'':28} n" + "".join(f"{group:>18}" for group in GROUPS)
    yield f"{'share of the targets':30}" + "".join(
        f"{count / total:18.1%}" for count in content["targets"]
    )
    for name, by_seed in content["models"].items():
        models = [values for seed, values in by_seed.items() if seeds is None or int(seed) in seeds]
        if models:
            means = (fmean(values) for values in zip(*models, strict=True))
            yield f"{name:28}{len(models):2}" + "".join(f"{mean:18.4f}" for mean in means)


if __name__ == "__main__":
    sys.exit(main())
