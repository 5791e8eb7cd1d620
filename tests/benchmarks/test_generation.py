"""Both sides of the claim about generated tokens give the same answer."""

import torch

from benchmarks.generation import next_token
from benchmarks.step_time import Shape


def test_the_sides_agree_and_repeat_themselves() -> None:
    shape = Shape(16, 4, 2, 24, 1, 1, memory=21, dropout=0.0, vocabulary=60, cutoffs=(20,))
    kept, anew = next_token(shape, True), next_token(shape, False)
    wanted = anew()
    for _ in range(3):
        torch.testing.assert_close(kept(), wanted, rtol=0, atol=1e-5)
    assert wanted.shape == (1, 60)
