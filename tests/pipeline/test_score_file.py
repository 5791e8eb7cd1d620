"""How scores of layouts are kept: to the last bit, by key, with a torn last line left out."""

from pathlib import Path

import numpy as np
import pytest

from nas.statistics.paired_scores import Score
from pipeline.supernet_scores import open_scores

PARTS = np.array([16.0, 15.0, 16.0])


def score(seed: int) -> Score:
    return Score(np.random.default_rng(seed).random(3), PARTS)


def filled(path: Path) -> list[tuple[str, ...]]:
    cache = open_scores(path, "k")
    layouts = [("a", "d"), ("d", "d"), ("d", "a")]
    for seed, labels in enumerate(layouts):
        cache.add(labels, score(seed))
    return layouts


def test_a_score_comes_back_to_its_last_bit_and_under_its_own_key_alone(tmp_path: Path) -> None:
    layouts = filled(tmp_path / "s.jsonl")
    cache = open_scores(tmp_path / "s.jsonl", "k")
    assert list(cache.scores) == layouts
    for seed, labels in enumerate(layouts):
        kept = cache.scores[labels]
        assert kept.nats_P.tobytes() == score(seed).nats_P.tobytes()
        assert kept.tokens_P.tobytes() == PARTS.tobytes()
    assert not open_scores(tmp_path / "s.jsonl", "other").scores


@pytest.mark.parametrize("length", [1, 30, -1])
def test_a_torn_last_line_is_left_out_and_takes_no_other_line_along(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "s.jsonl"
    layouts = filled(path)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:2]) + whole[2].removesuffix(b"\n")[:length])
    cache = open_scores(path, "k")
    assert list(cache.scores) == layouts[:2]
    cache.add(layouts[2], score(2))
    assert list(open_scores(path, "k").scores) == layouts
