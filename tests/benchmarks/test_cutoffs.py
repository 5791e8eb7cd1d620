"""The command that finds cutoffs: what it reads, what it prints, what it refuses."""

import random
import re
from pathlib import Path

import pytest
import yaml

from benchmarks import cutoffs as command
from benchmarks.optimal_cutoffs import optimal_cutoffs
from model import SoftmaxConfig
from tests.pipeline.conftest import plan_of
from tests.refusal import refused

COUNTS = [1000 // rank for rank in range(1, 301)]


def printed(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> list[str]:
    assert command.main(["--counts", str(path), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def refusal(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    return refused(command.main, capsys, "--counts", path, *arguments).splitlines()[-1]


@pytest.fixture
def counts_file(tmp_path: Path) -> Path:
    path = tmp_path / "counts.txt"
    path.write_text("\n".join(map(str, COUNTS)))
    return path


def test_the_first_line_is_yaml_that_an_experiment_takes(
    capsys: pytest.CaptureFixture[str], counts_file: Path
) -> None:
    lines = printed(capsys, counts_file, "--d-model", "64")
    softmax = SoftmaxConfig.model_validate(yaml.safe_load(lines[0])["softmax"])
    sizes = {"d_model": 64, "widths": (16, 4, 1), "tokens": 1024}
    wanted = optimal_cutoffs(COUNTS, **sizes, least_head_mass=0.75)
    assert softmax == SoftmaxConfig(cutoffs=wanted, factor=4)
    words = [int(line[8:20].replace(",", "")) for line in lines[2:]]
    assert words == [
        wanted[0], wanted[1] - wanted[0], wanted[2] - wanted[1], 300 - wanted[2], 300
    ]  # fmt: skip


def test_of_an_experiment_they_are_those_of_its_text_and_sizes(
    capsys: pytest.CaptureFixture[str], experiment_file: Path, tmp_path: Path
) -> None:
    plan = plan_of(experiment_file, tmp_path / "run")
    counts_V, given = plan.prepared.counts_V, ["--clusters", "3", "--factor", "2"]
    wanted = optimal_cutoffs(
        counts_V, d_model=16, widths=(8, 4), tokens=4 * 16, least_head_mass=0.75
    )
    assert command.main([str(experiment_file), *given]) == 0
    line = capsys.readouterr().out.splitlines()
    assert f"softmax: {{cutoffs: {list(wanted)}, factor: 2}}" in line
    file = tmp_path / "counts.txt"
    file.write_text("\n".join(map(str, counts_V.tolist())))
    assert printed(capsys, file, *given, "--d-model", "16", "--tokens", "64") == line[-6:]
    for both in ([], [str(experiment_file), "--counts", str(file)]):
        assert "either an experiment or --counts" in refused(command.main, capsys, *both)


def test_order_layout_and_scale_of_the_file_do_not_matter(
    capsys: pytest.CaptureFixture[str], counts_file: Path, tmp_path: Path
) -> None:
    wanted = printed(capsys, counts_file)
    shuffled = random.Random(0).sample(COUNTS, len(COUNTS))
    other = tmp_path / "other.txt"
    other.write_text(" ".join(map(str, shuffled[:150])) + "\n\n\t" + "\n".join(
        map(str, shuffled[150:])) + "\n")  # fmt: skip
    assert printed(capsys, other) == wanted
    other.write_text("\n".join(f"{count / sum(COUNTS):.17e}" for count in shuffled))
    assert printed(capsys, other) == wanted


def test_every_option_reaches_the_cost(
    capsys: pytest.CaptureFixture[str], counts_file: Path
) -> None:
    base = printed(capsys, counts_file)
    for arguments in (
        "--clusters 3", "--d-model 128", "--factor 2", "--sizes 9 9 9", "--tokens 64",
        "--least-head-mass 0.9",
    ):  # fmt: skip
        assert printed(capsys, counts_file, *arguments.split()) != base, arguments


def test_a_file_of_something_else_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "counts.txt"
    for text, said in {
        "5 4\nthe 3": "could not convert .*'the'",
        "5 nan": "counts must be finite and at least 0",
        "5 -1": "at least 0",
        "": "not all 0",
        "5 4": "use fewer clusters",
    }.items():
        path.write_text(text)
        line = refusal(capsys, path)
        assert line.startswith(str(path))
        assert re.search(said, line)
