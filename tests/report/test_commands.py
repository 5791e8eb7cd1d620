"""The commands that remake a run, and the words of the glossary."""

import json
import re
import shlex
from html import unescape

import pytest

from report.commands import commands_section, next_commands
from report.comparison import read_comparison
from report.glossary import glossary_section
from report.provenance import short_hash

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def recorded(folder, *command, commit=COMMIT):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps({"command": command, "commit": commit}))


def lines(make, comparison=None):
    body = commands_section(make.run, comparison).body
    return re.findall(r"<pre[^>]*>(.*?)</pre>", body, re.DOTALL)


def test_the_recorded_commands_stand_in_the_order_of_the_phases(make):
    make.search(drawn=())
    recorded(make.run / "search/seed-0", "search.py", "x y.yaml", "--run", "runs/x")
    make.architecture("argmax-0", ("dense",), chosen=True)
    for name, verb in (("argmax-0", "retrain.py"), ("par-5", "compare.py")):
        recorded(make.retraining(name), verb, "runs/x")
    comparison = read_comparison(make.comparison())
    first, after = lines(make, comparison)
    assert first.splitlines() == [
        f"git checkout {COMMIT}",
        "python search.py &#x27;x y.yaml&#x27; --run runs/x",
        "python derive.py runs/x",
        "python retrain.py runs/x",
        "python compare.py runs/x",
    ]
    assert "compare.seeds=[0,1,2]" in after


def test_another_experiment_of_the_derivation_is_named(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", "--run", "runs/x")
    make.architecture("argmax-0", ("dense",), chosen=True)
    searched = make.run / "search/seed-0/experiment.yaml"
    searched.write_text("derive: {method: argmax, top: 8, layout: null, budget: {flops: null}}\n")
    used, last_written = (
        make.run / "architectures" / name for name in ("argmax-0.yaml", "experiment.yaml")
    )
    # compare.py writes its opponents' there.
    last_written.write_text("derive: {method: par}\n")
    used.write_text(
        "derive: {method: argmax, top: 9, layout: 'a d', budget: {flops: 0.5x}, searches: [0, 1]}\n"
    )
    (line,) = (x for x in lines(make)[0].splitlines() if "derive.py" in x)
    words = ["derive.top=9", 'derive.layout="a d"', "derive.budget.flops=0.5x"]
    words = ["python", "derive.py", "runs/x", *words, "derive.searches=[0, 1]"]
    assert [word for word in shlex.split(unescape(line)) if word != "--set"] == words
    assert line.count("--set") == 4
    searched.unlink()
    assert "python derive.py runs/x/architectures/argmax-0.yaml --run runs/x" in lines(make)[0]
    searched.write_text(used.read_text())
    used.write_text(searched.read_text())
    assert "python derive.py runs/x\n" in lines(make)[0] + "\n"


def test_trainings_that_compare_started_stand_as_compare(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", "--run", "runs/x")
    recorded(make.retraining("par-5"), "retrain.py", "--architecture", "y.json")
    first = lines(make, read_comparison(make.comparison()))[0]
    assert "--architecture" not in first
    assert first.splitlines()[-1] == "python compare.py runs/x"


def test_runs_of_several_or_changed_versions_name_none(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", commit=f"{COMMIT}-changed")
    assert "git checkout" not in lines(make)[0]
    recorded(make.run / "search/seed-0", "search.py", "x.yaml")
    recorded(make.retraining("par-5"), "retrain.py", "x.yaml", commit="f" * 40)
    assert "git checkout" not in lines(make)[0]


def test_a_run_that_has_begun_is_searched_next(make):
    assert next_commands(make.run, None)[0].startswith("python search.py ")


def test_a_layout_that_is_chosen_and_not_trained_is_trained_next(make):
    """Also where another one of the run is."""
    make.architecture("argmax-0", ("dense",), chosen=True)
    (make.retraining("par-5") / "result.json").touch()
    assert next_commands(make.run, None)[0].startswith("python retrain.py ")
    (make.retraining("argmax-0") / "result.json").touch()
    assert next_commands(make.run, None)[0].startswith("python compare.py ")


def test_a_damaged_experiment_of_a_derivation_is_refused_by_name(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", "--run", "runs/x")
    make.architecture("argmax-0", ("dense",), chosen=True)
    (make.run / "search/seed-0/experiment.yaml").write_text("derive: {}\n")
    used = make.run / "architectures/argmax-0.yaml"
    used.write_text("derive: {\n")
    with pytest.raises(ValueError, match=r"argmax-0\.yaml:\d+: .*; run the command again"):
        lines(make)


def test_a_hash_is_short_and_says_that_the_code_was_changed():
    assert short_hash(COMMIT) == "0123456789ab"
    assert short_hash(f"{COMMIT}-changed") == "0123456789ab-changed"


def test_the_glossary_has_the_words_that_are_used_and_no_others():
    section = glossary_section("<p>pi of each slot</p><pre>tau: 1</pre><i title='margin'>x</i>")
    assert section is not None
    assert re.findall("<dt>(.*?)</dt>", section.body) == ["pi", "slot"]
    assert glossary_section("<p>nothing of ours</p>") is None
    assert "smallest visible difference" in glossary_section("(the smallest visible one is 1)").body
    assert "latency x" in glossary_section("<th>latency<small>x</small></th>").body
