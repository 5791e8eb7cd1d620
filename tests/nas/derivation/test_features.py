"""Features by hand, and of whole spaces."""

import itertools

import numpy as np
import pytest

from nas.derivation.predictor import Priors, features_of
from nas.derivation.training import Space
from tests.nas.derivation.conftest import space_of

PRIORS = Priors(share=1, square=2, absence=3, product=4, centroid=5, end=6)


def test_the_features_of_networks_with_empty_slots_are_those_by_hand() -> None:
    features = features_of(space_of(["aad", "d", ""], 4), PRIORS)
    by_name = dict(zip(features.names, features.value_NP.T.tolist(), strict=True))
    assert by_name == {
        "share attention": [0.5, 0, 0],
        "square attention": [0.25, 0, 0],
        "share dense": [0.25, 0.25, 0],
        "square dense": [0.0625, 0.0625, 0],
        "no attention": [0, 1, 1],
        "no dense": [0, 0, 1],
        "attention x dense": [0.125, 0, 0],
        "centroid attention": [pytest.approx(-1 / 3), 0, 0],
        "first attention": [1, 0, 0],
        "last attention": [0, 0, 0],
    }
    assert features.prior_P.tolist() == [1, 2, 1, 2, 3, 3, 4, 5, 6, 6]


def test_where_no_slot_is_empty_the_last_kind_is_the_reference(bench: Space) -> None:
    features = features_of(bench, PRIORS)
    assert "share dense" not in features.names
    assert not any(" x " in name for name in features.names)
    assert features.value_NP.shape == (64, len(features.names))


def test_no_two_networks_of_up_to_four_blocks_have_the_same_features() -> None:
    rows = ["".join(row) for n in range(5) for row in itertools.product("ad", repeat=n)]
    value_NP = features_of(space_of(rows, 4), PRIORS).value_NP
    assert len(rows) == 31
    assert len(np.unique(value_NP.round(9), axis=0)) == 31
