"""Scores are kept as they come: an interrupted derivation goes on, and ends as one never hurt."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import derive
from model import parse_layout
from nas.statistics.paired_scores import Score
from pipeline import supernet_scores
from pipeline.cli import find_experiment
from pipeline.context import set_up
from pipeline.experiment import load_experiment
from pipeline.supernet_scores import Inherited, open_scores, source_digest
from tools import rank

SCORES = "search/seed-0/scores.jsonl"
PARTS = np.array([16.0, 15.0, 16.0])
SMALL = {
    "top_k": ["derive.top=6"],
    "sampled": ["derive.samples=12"],
    "beam": ["derive.evaluations=9"],
    "evolution": ["derive.population=4", "derive.generations=2"],
}


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b"0.", b"1.", 1),
        lambda line: line.replace(b'"a"', b'"d"', 1),
        lambda line: b"\0" * (len(line) - 1) + b"\n",
        lambda line: b"[]\n",
        lambda line: b"7\n",
        lambda line: b"[" * 100_000 + b"\n",
        lambda line: b'{"key": "k", "crc32": 0}\n',
    ],
)
def test_a_damaged_line_is_scored_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "s.jsonl"
    layouts = filled(path)
    first, *others = path.read_bytes().splitlines(keepends=True)
    assert damage(first) != first
    path.write_bytes(b"".join([damage(first), *others]))
    assert list(open_scores(path, "k").scores) == layouts[1:]


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").mkdir()
    with pytest.raises(ValueError, match=r"s\.jsonl: is not a file; remove it"):
        open_scores(tmp_path / "s.jsonl", "k")


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed / "search", tmp_path / "run/search")
    return tmp_path / "run"


class Passes:
    """Counts passes over the text; at one of them Ctrl-C is pressed."""

    def __init__(self, last: int | None = None) -> None:
        self.count, self.last, self.evaluate = 0, last, supernet_scores.evaluate_cells

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.count == self.last:
            raise KeyboardInterrupt
        self.count += 1
        return self.evaluate(*arguments, **options)


def passes(monkeypatch: pytest.MonkeyPatch, last: int | None = None) -> Passes:
    counted = Passes(last)
    monkeypatch.setattr("pipeline.supernet_scores.evaluate_cells", counted)
    return counted


def interrupted(main: Callable[[list[str]], int], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 130


@pytest.mark.parametrize("method", SMALL)
def test_an_interrupted_derivation_scores_nothing_again_and_ends_the_same(
    run: Path, method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(run), "--method", method]
    arguments += [part for setting in SMALL[method] for part in ("--set", setting)]
    whole = run.parent / "whole"
    shutil.copytree(run, whole)
    with monkeypatch.context() as patched:
        undisturbed = passes(patched)
        assert derive.main([str(whole), *arguments[1:]]) == 0
    with monkeypatch.context() as patched:
        passes(patched, last=4)
        interrupted(derive.main, arguments)
    assert "interrupted; what was written until then is kept. Go on" in capsys.readouterr().err
    with (run / SCORES).open("ab") as file:
        file.write(b'{"key": "torn')
    with monkeypatch.context() as patched:
        resumed = passes(patched)
        assert derive.main(arguments) == 0
    assert "\n4 layouts are scored already (" in capsys.readouterr().err
    assert resumed.count == undisturbed.count - 4
    for name in ("architecture.json", f"architectures/{method}-0.csv"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_what_a_rank_harness_has_scored_is_kept(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [str(run), "--equal", "0", "--free", "8"]
    with monkeypatch.context() as patched:
        passes(patched, last=5)
        interrupted(rank.main, arguments)
    with monkeypatch.context() as patched:
        passes(patched, last=2)
        interrupted(rank.main, arguments)
    assert len((run / SCORES).read_text().splitlines()) == 7


def scored(run: Path, *settings: str, tokens: int | None = None) -> Score:
    bench = set_up(load_experiment(find_experiment(run), settings), run)
    layout = parse_layout("a d i a", bench.experiment.model.completed_candidates())
    return Inherited(bench, [0], tokens).score(layout)


def test_a_kept_score_serves_the_same_text_weights_and_machine_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = scored(run), scored(run, tokens=100)
    assert part.tokens == 99
    counted = passes(monkeypatch)
    assert scored(run).nats_P.tobytes() == whole.nats_P.tobytes()
    assert scored(run, tokens=100).nats_P.tobytes() == part.nats_P.tobytes()
    assert scored(run, "retrain.steps=7").nats_per_token == whole.nats_per_token
    assert counted.count == 0
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.supernet_scores.machine", lambda device: {"threads": 7})
        scored(run)
    assert counted.count == 1
    # As another search of the same experiment leaves them.
    load = supernet_scores.load_supernet

    def others(*arguments: Any) -> Any:
        net = load(*arguments)
        with torch.no_grad():
            next(net.parameters()).add_(0.1)
        return net

    monkeypatch.setattr("pipeline.supernet_scores.load_supernet", others)
    assert scored(run).nats_per_token != whole.nats_per_token
    assert counted.count == 2


def test_a_score_of_other_sources_is_not_taken(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two changed trees have one commit; a tree without git has none."""
    scored(run, tokens=100)
    counted = passes(monkeypatch)
    scored(run, tokens=100)
    assert counted.count == 0
    monkeypatch.setattr("pipeline.supernet_scores.source_digest", lambda: "other", raising=False)
    scored(run, tokens=100)
    assert counted.count == 1


def test_the_digest_of_the_sources_tells_a_changed_moved_or_new_file(tmp_path: Path) -> None:
    def digest() -> str:
        return source_digest.__wrapped__(tmp_path)

    for name in ("model/blocks/attention.py", "nas/search/plan.py", "report/page.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    seen = [digest()]
    for change in (
        lambda: (tmp_path / "model/blocks/attention.py").write_text("2\n"),
        lambda: (tmp_path / "nas/search/plan.py").rename(tmp_path / "nas/other.py"),
        lambda: (tmp_path / "nas/new.py").write_text(""),
    ):
        change()
        seen.append(digest())
    assert len(set(seen)) == len(seen)
    (tmp_path / "report/page.py").write_text("2\n")
    (tmp_path / "model/notes.txt").write_text("2\n")
    assert digest() == seen[-1]
    assert source_digest() == source_digest.__wrapped__() != digest()
