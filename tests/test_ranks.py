"""Several processes: the same as one, the same on all, and what happens when one is lost."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import TCPStore

import compare
import derive
import search
import sweep
from data import EvaluationStreams
from model import BLOCKS
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from tests import tiny
from tests.conftest import write_experiment
from tests.ranks_task import run_phases
from tests.runs import (
    RETRAIN,
    ROOT,
    SEARCH,
    assert_same,
    killed_after,
    last_step,
    refused,
    rows,
    settings,
)
from training.checkpoint import shard_for_rank
from training.distributed import ALONE, Ranks, join
from training.evaluation import Evaluation, evaluate, evaluate_shared
from training.launch import Launch, is_first_to_say, launched

ESTIMATORS = ("soft", "straight_through", "single_path")
DATA = ("shared", "split", "next_batch")
EXACT = [
    *("model.dropout=0", "search.optimiser.kind=sgd", "search.optimiser.lr=0.3"),
    *("retrain.optimiser.kind=sgd", "retrain.optimiser.lr=0.3", "run.log_every=1"),
    *("search.steps=26", "retrain.steps=26", "run.validate_every=13"),
]
ODD = ["data.batch=5", "run.micro_batches=2"]
# A balance loss is taken over the tokens of a process: it differs on purpose.
SMALL_OPTIONS: dict[str, dict[str, Any]] = {
    "adaptive_span": {"span": 6, "ramp": 3},
    "all_attention": {"n_vectors": 8},
    "routing": {"clusters": 2, "keys": 4},
    "mixture_of_experts": {"d_ffn": 12, "n_experts": 3, "balance_loss": 0.0},
    "product_key_memory": {"n_keys": 6, "k": 3, "heads": 2},
    "persistent": {"n_vectors": 8},
}
EVERY_KIND = [{"kind": kind, **SMALL_OPTIONS.get(kind, {})} for kind in BLOCKS]


def torchrun(*arguments: str, world: int = 2) -> None:
    """Run a script in several processes; nothing may go wrong."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(world), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]


# --- without other processes ----------------------------------------------------------------------


def variables(rank: int, world: int, port: int = 29500) -> dict[str, str]:
    names = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    return {
        **{name: str(value) for name, value in names.items()},
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }


def test_without_the_variables_of_torchrun_there_is_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in variables(0, 2):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched() is None
    assert join() is ALONE
    assert not torch.distributed.is_initialized()
    assert is_first_to_say("anything", lost=True)
    for name, value in variables(1, 2).items():
        monkeypatch.setenv(name, value)
    assert launched() == Launch(rank=1, world=2, local_rank=1, local_world=2, machines=1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launched() is None


def test_on_gpus_the_host_waits_for_nccl_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the user wants it otherwise: torch would abort a host behind a kernel that hangs."""
    asked = list[tuple[str, str]]()
    monkeypatch.setattr(os, "environ", {**os.environ, **variables(1, 2)})
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.distributed.new_group", lambda timeout: None)
    monkeypatch.setattr(
        "torch.distributed.init_process_group",
        lambda kinds, timeout: asked.append((kinds, os.environ["TORCH_NCCL_BLOCKING_WAIT"])),
    )
    assert join().rank == 1
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"
    join()
    assert asked == [("cpu:gloo,cuda:nccl", "1"), ("cpu:gloo,cuda:nccl", "0")]


def test_rows_are_shared_out_without_gap_and_evenly() -> None:
    for count, world in ((4, 2), (5, 2), (7, 3), (3, 3), (2, 3)):
        shares = [Ranks(rank, world).rows(count) for rank in range(world)]
        assert [row for share in shares for row in range(count)[share]] == list(range(count))
        sizes = [Ranks(rank, world).count(count) for rank in range(world)]
        assert max(sizes) - min(sizes) <= 1


def test_a_rank_takes_its_rows_and_its_own_generator_out_of_a_checkpoint() -> None:
    def tensors() -> dict[str, Tensor]:
        return {
            "model.x": torch.arange(4),
            "stream.weights.seen": torch.arange(5),
            "random.cpu": torch.tensor([[0], [1]]),
            "random.cuda": torch.tensor([[2], [3]]),
        }

    first, second = (shard_for_rank(tensors(), Ranks(rank, 2)) for rank in (0, 1))
    assert set(first) == set(second) == set(tensors())
    assert first["stream.weights.seen"].tolist() == [0, 1]
    assert second["stream.weights.seen"].tolist() == [2, 3, 4]
    assert [int(first["random.cpu"]), int(second["random.cpu"])] == [0, 1]
    assert [int(first["random.cuda"]), int(second["random.cuda"])] == [2, 3]
    assert len(second["model.x"]) == 4
    states = [torch.Generator().manual_seed(seed).get_state() for seed in (1, 2)]
    torch.set_rng_state(
        shard_for_rank({"random.cpu": torch.stack(states)}, Ranks(1, 2))["random.cpu"]
    )
    assert torch.equal(torch.get_rng_state(), states[1])
    third = shard_for_rank(tensors(), Ranks(2, 3))
    assert set(third) == {"model.x", "stream.weights.seen"}
    alone = shard_for_rank(tensors(), ALONE)
    assert set(alone) == set(first)
    assert len(alone["stream.weights.seen"]) == 5


@pytest.mark.parametrize("streams", [1, 3, 5])
def test_an_evaluation_in_parts_is_that_of_the_whole(streams: int) -> None:
    tokens = np.random.default_rng(0).integers(tiny.VOCABULARY, size=41).astype(np.uint16)
    text = EvaluationStreams(tokens, streams=streams, segment=4, context=3, words=9)
    net = tiny.language_model([tiny.candidates("attention")] * 2)
    length_V = torch.arange(tiny.VOCABULARY)

    def score(own: EvaluationStreams) -> Evaluation:
        return evaluate(net, own, byte_length_V=length_V, device=torch.device("cpu"))

    whole = evaluate_shared(ALONE, text, score)
    for world in (2, 3):
        shares = [Ranks(rank, world).rows(text.streams) for rank in range(world)]
        parts = [score(text.part(share)) for share in shares if share.start < share.stop]
        assert sum(part.tokens for part in parts) == whole.tokens == 40
        assert sum(part.bytes or 0 for part in parts) == whole.bytes
        assert sum(part.nats for part in parts) == pytest.approx(whole.nats, rel=1e-12)


@pytest.mark.parametrize("script", [compare, sweep, derive])
def test_scripts_of_one_process_say_so_under_torchrun(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in variables(0, 2).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pipeline.cli.is_first_to_say", lambda text, lost: True)
    monkeypatch.setattr("os._exit", lambda code: sys.exit(code))
    said = refused(script, capsys, "runs/none")
    assert "py: is one process, but torchrun has started 2" in said


def test_more_processes_than_streams_are_refused(experiment_file: Path, tmp_path: Path) -> None:
    experiment = load_experiment(experiment_file, [])
    with pytest.raises(ValueError, match=r"data\.batch: 4 streams cannot be shared out to 5 proc"):
        set_up(experiment, tmp_path, ranks=Ranks(1, 5, 1, 5))


# --- two processes --------------------------------------------------------------------------------


def test_two_processes_exchange_what_they_should() -> None:
    torchrun("-m", "tests.ranks_task")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARNAS_CACHE", str(made / "cache"))
        write_experiment(made)
        yield made


def job(folder: Path, name: str, *texts: str, **more: Any) -> dict[str, Any]:
    place = {"file": str(folder / "tiny.yaml"), "run": str(folder / name)}
    return {**place, "settings": list(texts), **more}


def run_on_two(folder: Path, jobs: list[dict[str, Any]]) -> None:
    (folder / "jobs.json").write_text(json.dumps(jobs))
    torchrun("-m", "tests.ranks_task", str(folder / "jobs.json"))


def parity_jobs(folder: Path, world: str) -> list[dict[str, Any]]:
    jobs = []
    for estimator, data in product(ESTIMATORS, DATA):
        # So that alpha moves far in so few steps.
        texts = [
            f"search.estimator={estimator}",
            f"search.alpha.data={data}",
            "search.alpha.lr=0.8",
        ]
        texts += [*EXACT, *(ODD if data == "next_batch" else []), "run.checkpoint_every=13"]
        jobs.append(job(folder, f"{world}/{estimator}-{data}", *texts))
    jobs += [job(folder, f"{world}/retrain", *EXACT, layout="a d a d")]
    kinds = [*EXACT, f"model.candidates={json.dumps(EVERY_KIND)}", f"model.n_blocks={len(BLOCKS)}"]
    # So many blocks in a row learn at a smaller rate.
    kinds += ["retrain.optimiser.lr=0.05", "search.optimiser.lr=0.05"]
    kinds += ["retrain.steps=20", "search.steps=20", "run.validate_every=10"]
    layout = " ".join(kind.letter for kind in BLOCKS.values())
    jobs += [job(folder, f"{world}/retrain-kinds", *kinds, layout=layout)]
    jobs += [job(folder, f"{world}/search-kinds", *kinds, "model.n_blocks=2")]
    return jobs


@pytest.fixture(scope="module")
def both(folder: Path) -> Path:
    """The same phases in one process and in two, and phases cut in one and ended in the other."""
    cut = [
        job(folder, "cut/same", cut=20),
        job(folder, "cut/same"),
        job(folder, "cut/two-one", *EXACT, cut=20),
    ]
    run_on_two(folder, [*parity_jobs(folder, "two"), job(folder, "two/same"), *cut])
    run_phases(parity_jobs(folder, "one"))
    run_phases([job(folder, "cut/two-one", *EXACT), job(folder, "cut/one-two", *EXACT, cut=20)])
    run_on_two(folder, [job(folder, "cut/one-two", *EXACT)])
    return folder


def of_both(test: Any) -> Any:
    """A slow test of `both`, in the process that has made it already."""
    return pytest.mark.slow(pytest.mark.xdist_group("ranks as one")(test))


def assert_close(one: Path, two: Path) -> None:
    """Rows and the last checkpoint to 1e-5, and not one byte the same throughout."""
    rows_one, rows_two = rows(one / "metrics.jsonl"), rows(two / "metrics.jsonl")
    assert [row.keys() for row in rows_one] == [row.keys() for row in rows_two]
    for mine, theirs in zip(rows_one, rows_two, strict=True):
        for key in mine.keys() - {"perplexity"}:
            wanted = mine[key]
            wanted = pytest.approx(wanted, abs=1e-5) if isinstance(wanted, float) else wanted
            assert theirs[key] == wanted, (mine["step"], key)
    tensors = [load_file(folder / "last.safetensors") for folder in (one, two)]
    mine, theirs = (
        {name: tensor for name, tensor in each.items() if not name.startswith("random")}
        for each in tensors
    )
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        assert torch.allclose(tensor.double(), theirs[name].double(), atol=1e-4), name


@of_both
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_two_processes_search_as_one(both: Path, estimator: str, data: str) -> None:
    one, two = (both / world / f"{estimator}-{data}" / SEARCH for world in ("one", "two"))
    assert_close(one, two)
    recorded = json.loads((two / "environment.json").read_text())
    assert recorded["ranks"] == 2
    assert (one / "identity.json").read_bytes() == (two / "identity.json").read_bytes()
    with np.load(one / "pi.npz") as arrays, np.load(two / "pi.npz") as others:
        assert np.allclose(arrays["alpha"], others["alpha"], atol=1e-4)
        assert np.ptp(arrays["alpha"][-1]) > 0.1


@of_both
def test_two_processes_retrain_as_one(both: Path) -> None:
    assert_close(both / "one/retrain" / RETRAIN, both / "two/retrain" / RETRAIN)


@of_both
@pytest.mark.parametrize("phase", ["retrain", "search"])
def test_two_processes_train_every_kind_as_one(both: Path, phase: str) -> None:
    runs = (both / world / f"{phase}-kinds" / phase for world in ("one", "two"))
    one, two = (path.parent for run in runs for path in run.rglob("metrics.jsonl"))
    assert_close(one, two)
    names = load_file(two / "last.safetensors").keys()
    trained = {kind for kind in BLOCKS if any(f".blocks.{kind}." in name for name in names)}
    assert trained == BLOCKS.keys() - {"identity"}


@of_both
def test_law_8_two_processes_cut_and_resumed_end_as_never_cut(both: Path) -> None:
    assert_same(both / "two/same" / SEARCH, both / "cut/same" / SEARCH)
    tensors = load_file(both / "two/same" / SEARCH / "last.safetensors")
    assert not torch.equal(*tensors["random.cpu"])
    log = (both / "cut/same" / SEARCH / "train.log").read_text()
    # Whoever edits this repository meanwhile changes the program, and only that may differ.
    program = r"(; not exactly as without the interruption: program was \S+, is \S+)?"
    assert re.search(rf"resumes from step 14 of 30{program}\n", log)


@of_both
@pytest.mark.parametrize(("name", "was", "now"), [("two-one", 2, 1), ("one-two", 1, 2)])
def test_a_resume_on_another_number_of_processes_keeps_the_memories(
    both: Path, name: str, was: int, now: int
) -> None:
    cut = both / "cut" / name / SEARCH
    # The same settings without odd numbers; soft and next_batch are the defaults.
    run_phases([job(both, "one/default", *EXACT)])
    assert_close(both / "one/default" / SEARCH, cut)
    log = (cut / "train.log").read_text()
    assert f"not exactly as without the interruption: ranks was {was}, is {now}" in log
    recorded = json.loads((cut / "environment.json").read_text())
    assert [recorded["ranks"], recorded["resumed"][0]["ranks"]] == [was, now]


# --- the end of one process -----------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def port() -> Iterator[int]:
    """Where a launcher keeps its store; it outlives every process."""
    number = free_port()
    store = TCPStore("localhost", number, is_master=True, wait_for_workers=False)
    yield number
    del store


def start_two(
    folder: Path, name: str, *texts: str, port: int | None
) -> list[subprocess.Popen[str]]:
    """Two processes of one search, without a launcher that ends one when the other has ended.

    Without a port there is no launcher's store either: that of the first process dies with it.
    """
    command = [sys.executable, "search.py", str(folder / "tiny.yaml")]
    command += ["--run", str(folder / name), *settings("run.figures=false", *texts)]
    given = {**os.environ, "TORCHELASTIC_USE_AGENT_STORE": str(port is not None)}
    port = free_port() if port is None else port
    return [
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**given, **variables(rank, 2, port)},
        )
        for rank in (0, 1)
    ]  # fmt: skip


def endings(processes: list[subprocess.Popen[str]]) -> tuple[list[int], str]:
    """Their exit codes, and what both said on stderr."""
    errors = [process.communicate(timeout=300)[1] for process in processes]
    return [process.returncode for process in processes], "".join(errors)


def wait_for(metrics: Path, step: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and last_step(metrics) < step:
        time.sleep(0.02)
    assert process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "launcher"), [(0, True), (1, True), (0, False)])
def test_a_lost_process_ends_the_others_with_one_line_and_nothing_is_lost(
    folder: Path, victim: int, launcher: bool, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(folder / "lost", ignore_errors=True)
    processes = start_two(folder, "lost", "search.steps=4000", port=port if launcher else None)
    metrics = folder / "lost" / SEARCH / "metrics.jsonl"
    wait_for(metrics, 50, processes[victim])
    processes[victim].send_signal(signal.SIGKILL)
    other = processes[1 - victim]
    _, error = other.communicate(timeout=60)
    assert other.returncode == 4
    lines = error.splitlines()
    at = next(i for i, line in enumerate(lines) if "another process of this run was lost" in line)
    assert f"({folder / 'lost' / SEARCH / 'last.safetensors'})" in lines[at]
    assert "the last complete checkpoint is of step " in lines[at]
    assert "-m torch.distributed.run --standalone --nproc_per_node 2 -- " in lines[at + 1]
    assert "Traceback" not in error
    processes[victim].communicate()
    cut = load_file(folder / "lost" / SEARCH / "last.safetensors")
    assert len(cut["stream.weights.seen"]) == 4
    arguments = [folder / "tiny.yaml", "--run", folder / "lost"]
    arguments += settings("search.steps=4000", "run.figures=false")
    reached = last_step(metrics)
    killed_after(reached + 10, search, *arguments)
    assert last_step(metrics) > reached
    said = capsys.readouterr().out
    assert "not exactly as without the interruption: ranks was 2, is 1" in said


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "name"), [(0, "SIGINT"), (1, "SIGTERM")])
def test_a_signal_to_one_process_stops_all_at_the_same_step(
    folder: Path, rank: int, name: str, port: int
) -> None:
    run = f"stopped-{rank}"
    texts = ("search.steps=100000", "run.checkpoint_every=100000")
    processes = start_two(folder, run, *texts, port=port)
    wait_for(folder / run / SEARCH / "metrics.jsonl", 20, processes[rank])
    processes[rank].send_signal(getattr(signal, name))
    codes, error = endings(processes)
    assert codes == [128 + getattr(signal, name)] * 2
    assert error.count(f"stopped by {name}; the state is saved") == 1
    assert (folder / run / SEARCH / "last.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "code", "said"),
    [
        (("optimiser.kind=sgd", "optimiser.lr=1e9", "optimiser.clip_norm=null"), 3,
         "diverged at step 5: parameter "),
        (("steps=0",), 2, "search.steps: must be greater than or equal to 2, found 0"),
    ],
)  # fmt: skip
def test_two_processes_end_together_and_say_why_once(
    folder: Path, port: int, texts: tuple[str, ...], code: int, said: str
) -> None:
    texts = tuple(f"search.{text}" for text in texts)
    codes, error = endings(start_two(folder, f"ended-{code}", *texts, port=port))
    assert codes == [code, code]
    assert error.count(said) == 1


@pytest.mark.slow
def test_the_scripts_under_torchrun_leave_what_one_process_leaves(folder: Path) -> None:
    arguments = [str(folder / "tiny.yaml"), "--run", str(folder / "whole")]
    quiet = settings("run.figures=false")
    torchrun("--", "search.py", *arguments, *quiet)
    assert derive.main([str(folder / "whole")]) == 0
    torchrun("--", "retrain.py", str(folder / "whole"))
    assert search.main([*arguments, *quiet]) == 0  # it is done: nothing is trained again
    result = json.loads((folder / "whole/retrain/argmax-0/seed-0/result.json").read_text())
    assert result["test"]["tokens"] == 1200
    assert (folder / "whole/model/model.safetensors").exists()
