"""What several processes do in tests of them: phases as told by a JSON file, or exchanges.

Started by torchrun, or imported and called with one process.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from pipeline.retrain import find_architecture, retrain_trainer
from pipeline.search import search_trainer
from training.distributed import ALONE, Ranks, join


class Cut(Exception):
    """Ends a phase in the middle; nothing after it runs."""


def cut_at(step: int) -> Any:
    """A hook that ends a phase after so many steps, before anything of that step is written."""

    def hook(state: Any, metrics: Any) -> None:
        if state.step == step:
            raise Cut

    return hook


def run_phases(jobs: Sequence[dict[str, Any]], ranks: Ranks = ALONE) -> None:
    """Run phases one after the other; weights and alpha must come out alike on all ranks.

    Args:
        jobs: `file`, `run`, `settings`; `layout` for a retraining, `cut` to end after a step.
        ranks: who runs them.
    """
    for job in jobs:
        experiment = load_experiment(Path(job["file"]), job["settings"])
        bench = set_up(experiment, Path(job["run"]), ranks=ranks)
        if "layout" in job:
            trainer = retrain_trainer(bench, find_architecture(bench, None, job["layout"]))
        else:
            trainer = search_trainer(bench)
        if "cut" in job:
            trainer.recorders = [*trainer.recorders, cut_at(job["cut"])]
        trainer.open()
        with contextlib.suppress(Cut):
            trainer.run(experiment.run)
        state = trainer.state
        for tensor in [*state.model.parameters(), *state.parameters.values()]:
            of_ranks = ranks.gather(tensor.detach()[None])
            assert all(torch.equal(of_ranks[0], other) for other in of_ranks[1:])
        trainer.close()
        ranks.wait()


def exchange(ranks: Ranks) -> None:
    """Every method of two ranks against what one place would have computed."""
    me = ranks.rank
    made = [nn.Parameter(torch.zeros(size)) for size in (4, 6, 4, 3)]
    made.append(nn.Parameter(torch.zeros(2, dtype=torch.float64)))
    both, second, none, first, wide = made
    both.grad = torch.arange(4.0) + me
    wide.grad = torch.full((2,), 2.0 + me, dtype=torch.float64)
    if me:
        second.grad = torch.ones(6)
    else:
        first.grad = torch.full((3,), 5.0)
    loss = torch.tensor(1.5 + me)
    ranks.sum_gradients(made, loss)
    assert both.grad.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert second.grad is not None
    assert second.grad.tolist() == [1.0] * 6
    assert first.grad is not None
    assert first.grad.tolist() == [5.0] * 3
    assert none.grad is None
    assert wide.grad.tolist() == [5.0, 5.0]
    assert float(loss) == 4.0

    for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool):
        whole = torch.arange(10).view(5, 2).remainder(2 + me * 0).to(dtype)
        assert torch.equal(ranks.gather(whole[ranks.rows(5)]), whole)
    assert [ranks.count(5), ranks.rows(5).start] == [[2, 0], [3, 2]][me]
    assert ranks.total([1.0, me]) == [2.0, 1.0]
    assert ranks.all_say(7 + me) == [7, 8]
    assert ranks.all_max_async(3 + me)() == 4
    assert ranks.all_say("zwei €" if me else None) == [None, "zwei €"]
    assert ranks.broadcast_str(None if me else "a\nb") == "a\nb"
    ranks.seed(0)
    numbers = ranks.gather(torch.rand(1, 3))
    assert not torch.equal(numbers[0], numbers[1])
    ranks.wait()


if __name__ == "__main__":
    joined = join()
    if sys.argv[1:]:
        run_phases(json.loads(Path(sys.argv[1]).read_text()), joined)
    else:
        exchange(joined)
    joined.wait()
    os._exit(0)
