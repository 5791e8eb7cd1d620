"""Where the noise of alpha's gradient comes from, and how large the gradient is.

Takes the weights of a search's best step, sets alpha to 0, and computes alpha's gradient for every
pair of n batches and n Gumbel draws. Prints its root mean square per slot and the shares of its
variance that draws and batches explain.

    python -m benchmarks.alpha_noise runs/six_blocks --draws 12
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("run", type=Path)
    parser.add_argument("--draws", type=int, default=12)
    arguments = parser.parse_args(argv)
    for estimator, tau in (("soft", 1.0), ("soft", 0.5), ("single_path", 1.0)):
        gradients = sample(arguments.run, arguments.draws, estimator, tau)
        total = gradients.var((0, 1)).sum()
        draws, batches = gradients.mean(0).var(0).sum(), gradients.mean(1).var(0).sum()
        rms_L = np.sqrt((gradients**2).mean((0, 1, 3)))
        print(f"{estimator}, tau {tau}: rms per slot, nats/token: {np.round(rms_L, 5).tolist()}")
        print(f"  variance from draws {draws / total:.2f}, from batches {batches / total:.2f}")
    return 0


def sample(run: Path, count: int, estimator: str, tau: float) -> NDArray[np.float64]:
    """Gradients by (batch, draw, slot, candidate)."""
    import torch
    from safetensors.torch import load_file

    from nas.search.estimators import ESTIMATORS, gumbel_noise
    from pipeline.experiment import load_experiment
    from pipeline.plan import set_up
    from pipeline.search import search_trainer
    from training.checkpoint import read_header

    saved = min(run.glob("search/seed-*/experiment.yaml"))
    plan = set_up(load_experiment(saved), run)
    trainer = search_trainer(plan)
    model = trainer.state.model
    best = read_header(saved.parent / "last.safetensors")["best"]["step"]
    tensors = load_file(saved.parent / f"best-{best}.safetensors")
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    model.load_state_dict(weights)
    shape = trainer.state.parameters["alpha"].shape
    found = np.zeros((count, count, *shape))
    for row in range(count):
        batch = trainer.batches.batch(1000 + row)
        for draw in range(count):
            alpha_LC = torch.zeros(shape, requires_grad=True)
            mix = ESTIMATORS[estimator](alpha_LC, gumbel_noise(0, draw, *shape), tau)
            h_BTD, _, _ = model(batch.input_BT, model.initial_state(len(batch.input_BT)), mix)
            loss = model.nll(h_BTD, batch.target_BT).mean()
            (grad_LC,) = torch.autograd.grad(loss, [alpha_LC], materialize_grads=True)
            found[row, draw] = grad_LC.numpy()
    return found


if __name__ == "__main__":
    sys.exit(main())
