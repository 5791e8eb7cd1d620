"""The memory forecast that is printed before step 0, against the measured peak.

Forecast and measurement of each configuration run in fresh processes of their own. The measuring
one first trains a tiny model, so that torch's own code and pools are loaded, and then notes its
resident memory: the start. It builds model, optimisers and streams and trains a few steps; with
single_path every candidate is drawn once in all slots, which is what the forecast is of (rows with
free draws show what a search takes meanwhile). What it took is its peak resident memory less the
start. The process has the allocator's settings of the product; with --fresh-pages tensors get pages
of their own that go back when they are freed, and the forecast is one without overhead.
oneDNN, which multiplies bfloat16 on a CPU, keeps few compiled kernels here
(ONEDNN_PRIMITIVE_CACHE_CAPACITY): they are no part of the forecast, which says so.
On CUDA it is torch.cuda.max_memory_allocated less the bytes at the start.

    python -m benchmarks.memory_forecast --json memory_forecast.json
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli

if TYPE_CHECKING:
    from nas.search.step import SearchStep
    from training.state import Batch, TrainState
    from training.step import WeightStep

VOCABULARY, CUTOFFS = 12_000, [250, 2500]
SMALL = {"d_model": 128, "d_ffn": 512, "memory": 16, "slots": 12, "batch": 32, "segment": 32}
LARGE = {"d_model": 256, "d_ffn": 1024, "memory": 128, "slots": 24, "batch": 8, "segment": 128}
SEARCH = {"d_model": 128, "d_ffn": 512, "memory": 64, "slots": 6, "batch": 16, "segment": 64}
WIDE = {**SEARCH, "slots": 16}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "interleaved, 12 slots": SMALL,
    "interleaved, 12 slots, recompute": {**SMALL, "recompute": True},
    "interleaved, 12 slots, 4 micro-batches": {**SMALL, "micro_batches": 4},
    "interleaved, 24 slots": LARGE,
    "interleaved, 24 slots, bfloat16": {**LARGE, "precision": "bfloat16"},
    "interleaved, 24 slots, recompute, 4 micro-batches": {
        **LARGE,
        "recompute": True,
        "micro_batches": 4,
    },
    "soft, 6 slots": {**SEARCH, "search": {"estimator": "soft"}},
    "soft, 16 slots": {**WIDE, "search": {"estimator": "soft"}},
    "soft, 16 slots, recompute": {**WIDE, "recompute": True, "search": {"estimator": "soft"}},
    "soft, 16 slots, shared, 4 micro-batches": {
        **WIDE,
        "micro_batches": 4,
        "search": {"estimator": "soft", "alpha": {"data": "shared"}},
    },
    "straight_through, 6 slots, split, bfloat16": {
        **SEARCH,
        "precision": "bfloat16",
        "search": {"estimator": "straight_through", "alpha": {"data": "split"}},
    },
    "single_path, 6 slots": {**SEARCH, "search": {"estimator": "single_path"}},
    "single_path, 16 slots": {**WIDE, "search": {"estimator": "single_path"}},
    "single_path, 16 slots, free draws": {
        **WIDE,
        "free": True,
        "search": {"estimator": "single_path"},
    },
    "single_path, alpha straight_through, 16 slots": {
        **WIDE,
        "search": {"estimator": "single_path", "alpha": {"estimator": "straight_through"}},
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--only", default="", help="configurations whose name has these words")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fresh-pages", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.child:
        what, name = arguments.child
        function = {"forecast": forecast_bytes, "measure": measured_bytes}[what]
        if not arguments.fresh_pages:
            from training.runtime import keep_freed_memory

            keep_freed_memory()
        print(json.dumps(function(CONFIGURATIONS[name], arguments.device)))
        return 0
    rows = []
    print("| configuration | forecast, MB | measured, MB | ratio | forecast took, s |")
    print("|---|---|---|---|---|")
    for name in (name for name in CONFIGURATIONS if arguments.only in name):
        row = {"name": name, **_child("forecast", name, arguments)}
        row |= _child("measure", name, arguments)
        if arguments.fresh_pages:
            row["forecast"] -= row["parts"]["overhead"]
        row["ratio"] = row["forecast"] / row["measured"]
        rows.append(row)
        print(
            f"| {name} | {row['forecast'] / 1e6:.1f} | {row['measured'] / 1e6:.1f} "
            f"| {row['ratio']:.2f} | {row['forecast_s']:.2f} |",
            flush=True,
        )
    from benchmarks.harness import write_result

    allocator = "fresh pages" if arguments.fresh_pages else "the product's"
    write_result(arguments.json, "memory_forecast", {"allocator": allocator, "rows": rows})
    return 0


def _child(what: str, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What a fresh process prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    if arguments.fresh_pages:
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    # In bfloat16 each shape of a product is a compiled kernel of 0.6 MB, of which 1024 are kept.
    environment["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = "8"
    command = [sys.executable, "-m", "benchmarks.memory_forecast", "--child", what, name]
    command += ["--fresh-pages"] * arguments.fresh_pages
    done = subprocess.run(
        [*command, "--device", arguments.device],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def forecast_bytes(sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """The forecast of a configuration and the seconds it took."""
    import time
    from dataclasses import asdict

    from nas.search.step import SearchStep
    from pipeline.memory import retrain_memory, search_memory

    step, state = build(sizes, device)
    began_s = time.process_time()
    if isinstance(step, SearchStep):
        found = search_memory(step, state, random_batch(sizes, 0))
    else:
        found = retrain_memory(step, state, random_batch(sizes, 0))
    took_s = time.process_time() - began_s
    return {"forecast": found.total, "parts": asdict(found), "forecast_s": took_s}


def measured_bytes(sizes: dict[str, Any], device: str) -> dict[str, Any]:
    """The peak of a few steps beyond the start."""
    import torch

    tiny = {**sizes, "d_model": 16, "d_ffn": 16, "slots": 2, "segment": 8, "memory": 8}
    train(*build(tiny, device), tiny)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated()
        train(*build(sizes, device), sizes)
        return {"measured": torch.cuda.max_memory_allocated() - start}
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    start = pages * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    train(*build(sizes, device), sizes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # A peak that importing reached already would hide this one.
    assert peak > before, "the configuration is too small to be measured"
    return {"measured": peak - start, "start": start}


def train(step: "SearchStep | WeightStep", state: "TrainState", sizes: dict[str, Any]) -> None:
    """A few steps; each candidate is drawn once in all slots where draws are hard and not free."""
    from dataclasses import replace

    import torch

    from nas.search.step import SearchStep

    def one_for_all(seed: int, draw: int, slots: int, count: int) -> torch.Tensor:
        noise_LC = torch.zeros(slots, count)
        noise_LC[:, -1 - draw % count] = 1e3
        return noise_LC

    if isinstance(step, SearchStep) and not sizes.get("free"):
        step = replace(step, noise=one_for_all)
    for index in range(12 if sizes.get("free") else 4):
        step(state, random_batch(sizes, index))
        state.step += 1


def random_batch(sizes: dict[str, Any], index: int) -> "Batch":
    """Uniform ids."""
    import torch

    from training.memory import ProbeBatch

    generator = torch.Generator().manual_seed(index)
    shape = (2, sizes["batch"], sizes["segment"])
    ids = torch.randint(VOCABULARY, shape, generator=generator)
    return ProbeBatch(ids[0], ids[1], first=index == 0)


@dataclass(frozen=True)
class RandomBatches:
    """Alpha's own text."""

    sizes: dict[str, Any]

    def batch(self, index: int) -> "Batch":
        """Uniform ids."""
        return random_batch(self.sizes, 10_000 + index)


def build(sizes: dict[str, Any], device: str) -> "tuple[SearchStep | WeightStep, TrainState]":
    """The real step of a configuration and its state."""
    import torch

    from model import LanguageModel, ModelConfig, SoftmaxConfig
    from nas.search.config import SearchConfig
    from nas.search.plan import SearchPlan
    from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
    from training.optim import build_optimiser, rate_of
    from training.state import TrainState
    from training.step import Forward, WeightStep

    options = {key: sizes[key] for key in ("d_model", "d_ffn", "memory", "slots")}
    config = ModelConfig.model_validate({**options, "n_heads": 4, "dropout": 0.1})
    settings = {"steps": 100, **sizes.get("search", {})}
    settings["alpha"] = {"warmup_fraction": 0.0, **settings.get("alpha", {})}
    search = SearchConfig.model_validate({**settings, "resample_every": 1})
    held = config.completed_candidates()
    slots = [held] * config.slots
    if "search" not in sizes:
        slots = [(held[slot % 2],) for slot in range(config.slots)]
    model = LanguageModel(
        slots,
        d_model=config.d_model,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(cutoffs=CUTOFFS, factor=2),
        dropout=config.dropouts(),
    ).to(device)
    forward = Forward(
        torch.device(device),
        sizes.get("precision", "float32"),
        sizes.get("micro_batches", 1),
        sizes.get("recompute", False),
    )
    weight_step = WeightStep(forward, search.optimiser, rate_of(search.optimiser, 100))
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, search.optimiser)},
        streams={"weights": model.initial_state(sizes["batch"])},
        loss_sum=torch.zeros((), dtype=torch.float64, device=device),
    )
    if "search" not in sizes:
        return weight_step, state
    plan = SearchPlan(search, 100, config.memory, sizes["segment"])
    state.parameters["alpha"] = build_alpha(config.slots, len(held))
    state.optimisers["alpha"] = build_alpha_optimiser(state.parameters["alpha"], plan)
    if search.alpha.data != "split":
        return SearchStep(plan, weight_step, 0), state
    state.streams["alpha"] = model.initial_state(sizes["batch"])
    return SearchStep(plan, weight_step, 0, RandomBatches(sizes)), state


if __name__ == "__main__":
    sys.exit(main())
