"""From pi or a rule to a layout."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import layout_letters
from nas.costs.budget import LayoutCost, Limit
from nas.derivation import method_of
from nas.derivation.base import Derived, Request
from nas.derivation.config import DeriveConfig
from tests import tiny
from utils.pi import softmax

COST = {"attention": 5.0, "dense": 3.0, "identity": 0.0, "dense_wide": 6.0}


cost = LayoutCost("flops", COST, 10.0)


def derive(
    method: str,
    slots: int,
    trajectory: Path | None = None,
    names: Any = None,
    asked: dict[str, Any] | None = None,
    **options: Any,
) -> Derived:
    chosen = tiny.candidates(*(names or ("attention", "dense", "identity")))
    config = DeriveConfig(method=method, **options)
    found = {0: trajectory} if trajectory else {}
    return method_of(method)(Request(config, chosen, slots, cost, found, **(asked or {})))


def letters(method: str, slots: int, **options: Any) -> str:
    return layout_letters(derive(method, slots, **options).layout).replace(" ", "")


@pytest.mark.parametrize(("slots", "expected"), [(1, "a"), (2, "ad"), (5, "adada"), (6, "adadad")])
def test_interleaved(slots: int, expected: str) -> None:
    assert letters("interleaved", slots) == expected


@pytest.mark.parametrize(("slots", "p", "count"), [(32, 5, 6), (36, 5, 7), (24, 5, 5), (6, 5, 1)])
def test_par_has_the_papers_number_of_attention_slots_in_the_first_two_thirds(
    slots: int, p: int, count: int
) -> None:
    layout = letters("par", slots, p=p)
    places = [place for place, letter in enumerate(layout) if letter == "a"]
    assert len(places) == count
    assert len(layout) == slots
    assert places[0] == 0
    assert places[-1] < 2 * slots // 3
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps, default=0) - min(gaps, default=0) <= 1


@pytest.mark.parametrize(
    ("slots", "k", "expected"),
    [(8, 0, "adadadad"), (8, 1, "aadadadd"), (8, 2, "aaadaddd"), (8, 4, "aaaadddd")],
)
def test_sandwich_is_s_k_then_pairs_then_f_k(slots: int, k: int, expected: str) -> None:
    assert letters("sandwich", slots, k=k) == expected
    assert expected.count("a") == slots // 2


@pytest.mark.parametrize("slots", range(1, 33))
def test_a_sandwich_fits_any_number_of_slots_and_costs_what_interleaved_costs(slots: int) -> None:
    layout = letters("sandwich", slots)
    assert sorted(layout) == sorted(letters("interleaved", slots))
    assert layout.startswith("a" * min(2, slots // 2))
    assert layout.endswith("d" * min(2, slots // 2))
    if slots == 6:
        assert layout == "aaaddd"


def test_sandwich_refuses_what_it_cannot_make() -> None:
    with pytest.raises(ValueError, match=r"derive\.k 5 must be at most half of 8 blocks"):
        derive("sandwich", 8, k=5)


def test_random_is_the_same_for_a_seed_and_uniform_over_seeds() -> None:
    assert letters("random", 12, seed=3) == letters("random", 12, seed=3)
    text = "".join(letters("random", 10, seed=seed) for seed in range(300))
    for letter in "adi":
        assert abs(text.count(letter) / len(text) - 1 / 3) < 5 * (2 / 9 / 3000) ** 0.5


def test_a_random_layout_keeps_its_limits() -> None:
    limit = Limit(cost, 22.0)
    costs = [cost(derive("random", 8, seed=seed, asked={"limits": (limit,)}).layout) for seed in
             range(20)]  # fmt: skip
    assert max(costs) <= 22.0
    assert len(set(costs)) > 3
    with pytest.raises(ValueError, match=r"no draw is within derive\.budget"):
        derive("random", 4, asked={"limits": (Limit(cost, 9.0),)})


def test_an_explicit_layout_is_taken_as_it_is() -> None:
    assert letters("layout", 5, layout="a d a i d") == "adaid"
    with pytest.raises(ValueError, match="layout: method layout needs one"):
        derive("layout", 5)


def test_rules_name_the_kind_that_is_missing() -> None:
    with pytest.raises(ValueError, match="par, p = 5: needs a candidate of kind attention"):
        derive("par", 6, names=["dense", {"kind": "dense", "label": "dense_wide"}])


def write(path: Path, alpha: np.ndarray, labels: Sequence[str]) -> Path:
    steps = len(alpha)
    np.savez(
        path,
        step=np.arange(1, steps + 1),
        pi=softmax(alpha.astype(np.float32)),
        alpha=alpha.astype(np.float32),
        tau=np.ones(steps, dtype=np.float32),
        labels=np.array(labels),
        alpha_start=np.array(0),
    )
    return path


LABELS = ["attention", "dense", "identity"]


def test_argmax_takes_the_mean_alpha_of_the_last_part_not_the_last_step(tmp_path: Path) -> None:
    alpha_NLC = np.zeros((10, 2, 3))
    alpha_NLC[:8, :, 2] = 100.0
    alpha_NLC[8:, 0] = [[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    alpha_NLC[8:, 1, 1] = 1.0
    derived = derive("argmax", 2, write(tmp_path / "pi.npz", alpha_NLC, LABELS), average=0.2)
    assert layout_letters(derived.layout) == "a d"
    pi = np.exp([1.5, 0.5, 0.0]) / np.exp([1.5, 0.5, 0.0]).sum()
    assert list(derived.evidence.pi[0].values()) == pytest.approx(pi, abs=1e-6)
    assert derived.evidence.margins[0] == pytest.approx(pi[0] - pi[1], abs=1e-6)
    last = derive("argmax", 2, tmp_path / "pi.npz", average=0.1)
    assert layout_letters(last.layout) == "d d"


def test_argmax_refuses_a_search_of_other_slots_or_candidates(tmp_path: Path) -> None:
    path = write(tmp_path / "pi.npz", np.zeros((4, 2, 3)), LABELS)
    with pytest.raises(ValueError, match=r"2 blocks of .* the experiment has 3 of"):
        derive("argmax", 3, path)
    path = write(tmp_path / "pi.npz", np.zeros((4, 2, 3)), ["dense", "attention", "identity"])
    with pytest.raises(ValueError, match="use the search's own experiment"):
        derive("argmax", 2, path)


def test_where_no_draw_serves_it_is_looked_for_among_all_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nas.derivation.base.TRIES", 1)
    limits = {"limits": (Limit(cost, 10.0),)}
    assert {letters("random", 5, seed=seed, asked=limits) for seed in range(8)} == {"iiiii"}
