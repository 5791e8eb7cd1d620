"""All tensors of a computation are on one device, and the host waits for it where it must alone.

On a stand-in for a GPU, which needs a process of its own. tests/test_gpu.py asks a real one.
"""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from model import BLOCKS
from tests.runs import ROOT

# Whose private interface the stand-in was seen to work with.
VERSIONS = ("2.13",)
# Waits of a step or reading by file, beside those of the kinds; of two blocks.
KNOWN = {
    "train": {},
    "parts": {},
    # Alpha lies on the CPU, and its gradient goes there.
    "search": {"the backward pass": 1},
    # The sum of the nats; of cells, of which layouts are compared, those of each segment.
    "evaluate": {"evaluation.py": 1},
    "cells": {"evaluation.py": 5},
    # Of each token of 6: it is drawn on the CPU, and is an input of the next pass.
    "generate": {"generation.py": 12},
    # Nats, and which targets are the likeliest ids.
    "score": {"scoring.py": 2},
    "graph": {},
}
# What reads on the device what it has to compute, in each pass. Adaptive span: how far a block's
# heads see. Mixture of experts: how many tokens each gets.
ASKING = ("adaptive_span", "mixture_of_experts")
# Of two blocks, in every pass; parts are two micro-batches, each block twice.
PASSES = {
    "train": 2, "parts": 8, "evaluate": 10, "recached": 10, "cells": 10, "generate": 12, "score": 2
}  # fmt: skip
OF_KINDS = {
    (what, kind): {f"{kind}.py": waits} for what, waits in PASSES.items() for kind in ASKING
}
KNOWN["recached"] = KNOWN["evaluate"]
# What comes of faults that are planted in a step: of Python, or how many waits.
PLANTED = {
    "arange": "lt: tensors of two devices",
    "Tensor.detach": "3 waits",  # a float()
    "Tensor.relu": "2 waits",  # an item() in each block
    "nn.functional.layer_norm": "uniform_: the generator is the CPU's",
}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    if not torch.__version__.startswith(VERSIONS):
        pytest.skip(f"the stand-in was seen with torch {', '.join(VERSIONS)} alone")
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu_stand_in"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_host_waits_where_it_is_known_to(found: dict[str, dict[str, Any]]) -> None:
    for name, waits in found.items():
        what, _, kind = name.partition(" ")
        if what not in ("planted", "resumed", "two"):
            assert waits == KNOWN[what] | OF_KINDS.get((what, kind), {}), name


def test_a_resume_on_the_second_card_is_exact(found: dict[str, Any]) -> None:
    """Because CUDA is told the card of the run: else another card's generator would be saved."""
    exact, untold = found["resumed"]
    assert exact == 0.0 < untold


def test_two_processes_on_two_devices_are_as_one(found: dict[str, Any]) -> None:
    for apart in found["two"]:
        assert set(apart) == set(BLOCKS)
        assert max(apart.values()) < 1e-6, apart


def test_planted_faults_are_seen(found: dict[str, dict[str, Any]]) -> None:
    assert found["planted"] == PLANTED
