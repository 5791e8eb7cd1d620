"""What is said of pi beside the numbers: composed once, kept, and said once."""

import json
from pathlib import Path
from typing import Any

import pytest

import derive
import search
from model import Agreement, Evidence, load_architecture
from pipeline.summary import ONE_SEARCH, agreement_caveats, gap_caveats, layout_caveats
from tests.model.test_architecture import SCORED
from tests.runs import write_json
from tests.test_pipeline import run

AGREEMENT = Agreement.model_validate(SCORED["agreement"])
NOISE = "warning: in 3 of 4 blocks alpha moved as noise would move it"


@pytest.mark.parametrize(("chance", "warned"), [(None, 0), (0.05, 0), (0.051, 1), (1.0, 1)])
def test_agreement_that_chance_explains_is_warned_of(chance: float | None, warned: int) -> None:
    found = AGREEMENT.model_copy(update={"p_by_chance": chance})
    line, *more = agreement_caveats(found)
    assert line.startswith("agreement of ")
    assert len(more) == warned
    assert all("no agreement beyond chance is shown (p = " in warning for warning in more)


def gap_evidence(ratio: float, margins: list[float], **scored: Any) -> Evidence:
    value = {
        "method": "x",
        "pi": [{"a": (1 + margin) / 2, "d": (1 - margin) / 2} for margin in margins],
        "margins": margins,
        "gap": {**SCORED["gap"], "ratio": ratio},
        **scored,
    }
    return Evidence.model_validate(value)


def test_a_layout_read_off_pi_and_far_from_its_mixture_is_warned_of_with_a_remedy() -> None:
    margins = [0.1, 0.02, 0.8, 0.0, 0.9]
    assert gap_caveats(gap_evidence(1.03, margins)) == []
    (said,) = gap_caveats(gap_evidence(1.0487, margins))
    assert said.startswith(
        "warning: this layout has 4.9% more perplexity than pi's mixture (more than 3%)"
    )
    assert "; undecided blocks (margin of pi below 0.1): 1, 3. Derive another" in said
    assert "--method top_k" in said
    assert "(more than 3%). Derive another" in gap_caveats(gap_evidence(1.0487, [0.5] * 5))[0]
    assert gap_caveats(gap_evidence(1.0487, margins, inherited=SCORED["inherited"])) == []


def write_caveats(folder: Path, caveats: list[str]) -> None:
    write_json(folder / "caveats.json", {"caveats": caveats})


def test_a_layout_has_the_caveats_of_its_searches_and_of_their_number(tmp_path: Path) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in (0, 7)]
    for folder, caveats in zip(folders, ([NOISE], []), strict=True):
        write_caveats(folder, caveats)
    bare = Evidence(method="argmax")
    assert layout_caveats(bare, folders[:1]) == (NOISE, ONE_SEARCH)
    assert layout_caveats(bare, folders[1:]) == (ONE_SEARCH,)
    both = layout_caveats(bare.model_copy(update={"agreement": AGREEMENT}), folders)
    assert both == (agreement_caveats(AGREEMENT)[0], f"seed-0: {NOISE}")
    write_caveats(folders[0], ["of the text", NOISE])
    write_caveats(folders[1], ["other", "of the text"])
    of_both = layout_caveats(bare, folders)
    assert of_both == ("of the text", f"seed-0: {NOISE}", "seed-7: other")


def test_what_the_terminal_says_of_pi_stands_in_the_run(
    searched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words on the screen, in caveats.json and with the layout; once."""
    log = searched / "search/seed-0/train.log"
    monkeypatch.setattr("nas.search.diagnostics.LEAST_MARGIN", 1.0)
    monkeypatch.setattr("pipeline.summary._MOST_RATIO", 0.5)
    wide = "warning: attention: window 9 needs memory 8, found 3"
    monkeypatch.setattr("pipeline.experiment.Experiment.warnings", lambda experiment: [wide])
    for _ in range(2):
        capsys.readouterr()
        run(search, searched)
        said = capsys.readouterr().out.splitlines()
        kept = json.loads((log.parent / "caveats.json").read_text())["caveats"]
        few, few_to_test, of_experiment, moved = kept
        assert of_experiment == wide
        assert few.startswith("warning: valid has 938 tokens: the standard error of its loss is ")
        assert few_to_test.startswith("warning: test has ")
        assert few not in said, "it is said before step 0"
        assert moved.startswith("warning: pi hardly moved")
        assert "block  a attention  d feed-forward  i identity  margin" in said
        (summary,) = [line for line in said if line.startswith("mean margin ")]
        for line in (summary, moved, ONE_SEARCH):
            assert said.count(line) == 1
        run(derive, searched)
        evidence = load_architecture(searched / "architecture.json").evidence
        assert evidence is not None
        assert evidence.caveats[:5] == (few, few_to_test, wide, moved, ONE_SEARCH)
        assert "more perplexity than pi's mixture" in evidence.caveats[5]
        assert "\n".join(evidence.caveats) in capsys.readouterr().out
    assert json.loads((searched / "search/caveats.json").read_text()) == {
        "searches": [0], "caveats": [ONE_SEARCH]
    }  # fmt: skip
