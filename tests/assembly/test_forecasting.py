"""Which draws the forecast of a search's memory tries."""

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

from assembly.forecasting import _draws, search_memory
from assembly.searching import search_phase
from assembly.workbench import set_up
from experiment import load_experiment
from nas.estimators import ESTIMATORS


@pytest.mark.parametrize(
    ("estimator", "computed"), [("single_path", 1), ("spos", 1), ("two_path", 2)]
)
def test_every_choice_of_what_is_computed_is_drawn_in_all_slots(
    estimator: str, computed: int
) -> None:
    alpha_LC, found = torch.zeros(2, 3), []
    for noise_LC in _draws(2, computed, 3):
        mix = ESTIMATORS[estimator](alpha_LC, noise_LC, 1.0)
        drawn = {tuple(k for k, _ in terms) for terms in mix}
        assert len(drawn) == 1
        found += drawn
    assert sorted(found) == sorted(permutations(range(3), computed))


def test_where_all_are_computed_one_draw_is_enough() -> None:
    assert len(list(_draws(2, 0, 3))) == 1


@pytest.mark.parametrize("estimator", ["single_path", "spos", "two_path"])
@pytest.mark.forecast
def test_the_greediest_candidate_counts_wherever_it_stands(
    experiment_file: Path, tmp_path: Path, estimator: str
) -> None:
    found = []
    for kinds in ("attention, dense, identity", "identity, dense, attention"):
        settings = [f"search.estimator={estimator}", f"model.candidates=[{kinds}]"]
        phase = search_phase(set_up(load_experiment(experiment_file, settings), tmp_path))
        step: Any = phase.step
        found.append(search_memory(step, phase.state, phase.batches.batch(0)).activations)
    assert found[0] == pytest.approx(found[1], rel=0.02)
