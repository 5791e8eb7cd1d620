"""A layout that sees no earlier token: derived only where asked for, and warned of everywhere."""

import html
import re
from pathlib import Path

import pytest

import compare
import derive
import retrain
from export.huggingface.folder import card_of
from tests.runs import Capture, refused, run, settings
from tools.export import read_source
from utils.text import NO_CONTEXT

SHORT = settings("retrain.steps=2", "retrain.optimiser.warmup_steps=1")
BLIND = ["--method", "layout", *settings("derive.layout=d i d d")]


def headline(page: Path) -> str:
    """The first sentence of the report's first screen."""
    found = re.search(r'<p class="saving">(.*?)</p>', page.read_text())
    assert found
    return html.unescape(found[1])


@pytest.fixture
def here(experiment_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(experiment_file.parent)
    return Path("runs/tiny")


@pytest.mark.figures
@pytest.mark.parametrize("layout", ["d i d d", "a i d d"])
def test_a_layout_by_hand_is_warned_of_on_screen_in_the_headline_and_in_the_card(
    here: Path, capsys: Capture, layout: str
) -> None:
    sees = "a" in layout
    given = ["--method", "layout", *settings(f"derive.layout={layout}")]
    run(derive, "tiny.yaml", *given)
    assert (f"warning: {NO_CONTEXT}" in capsys.readouterr().out) is not sees
    assert (NO_CONTEXT[1:] in headline(here / "report.html")) is not sees
    run(retrain, here, *SHORT)
    assert (f"warning: {NO_CONTEXT}" in capsys.readouterr().out) is not sees
    run(compare, here, *SHORT, *settings("compare.baselines=[interleaved]"))
    assert (f"warning: {NO_CONTEXT}" in capsys.readouterr().out) is not sees
    assert (NO_CONTEXT[1:] in headline(here / "report.html")) is not sees
    card = card_of(read_source(here / "model"))
    assert (f"Warning: {NO_CONTEXT}" in card) is not sees
    assert ("Transformer-XL language model" in card) is sees


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--method", "par", *settings("derive.least_context=2", "derive.p=4")],
         "derive.least_context: par has 1 blocks that read earlier tokens (a d d d), at least 2"),
        (["--method", "random", *settings("model.candidates=[dense, identity]")],
         "derive.least_context: 1 blocks of context, but no candidate reads earlier tokens"),
        (["--method", "random", *settings("derive.least_context=5")],
         "derive.least_context: 5 blocks of context, but model.n_blocks is 4; give less"),
        (["--method", "random", *settings("derive.least_context=-1")],
         "derive.least_context: must be greater than or equal to 0, found -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_one_line(
    here: Path, capsys: Capture, asked: list[str], said: str
) -> None:
    assert said in refused(derive, capsys, "tiny.yaml", *asked)
    assert not here.exists()
