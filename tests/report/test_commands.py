"""The commands that remake a run, and on what it ran."""

import json
import re
from html import unescape

import pytest

from report.commands import commands_section, next_commands
from report.comparison import read_comparison

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def recorded(folder, *command, commit=COMMIT, **more):
    folder.mkdir(parents=True, exist_ok=True)
    said = {"command": command, "commit": commit, **more}
    (folder / "environment.json").write_text(json.dumps(said))


def blocks(make, comparison=None):
    body = commands_section(make.run, comparison, next_commands(make.run, comparison)).body
    return [unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", body, re.DOTALL)]


def test_the_recorded_commands_stand_in_the_order_of_the_phases(make):
    make.search(drawn=())
    recorded(make.run / "search/seed-0", "search.py", "x y.yaml", "--run", "runs/x")
    make.architecture("argmax-0", ("dense",), chosen=True)
    for name, verb in (("argmax-0", "retrain.py"), ("par-5", "compare.py")):
        recorded(make.retraining(name), verb, "runs/x")
    first, _, after = blocks(make, read_comparison(make.comparison()))
    assert first.splitlines() == [
        f"git checkout {COMMIT}",
        "python search.py 'x y.yaml' --run runs/x",
        "python derive.py runs/x",
        "python retrain.py runs/x",
        "python compare.py runs/x",
    ]
    assert "compare.seeds=[0,1,2]" in after


def test_the_experiment_of_the_derivation_is_named(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", "--run", "runs/x")
    make.architecture("argmax-0", ("dense",), chosen=True)
    used = make.run / "architectures/argmax-0.yaml"
    used.write_text("derive: {method: argmax, top: 9}\n")
    named = "python derive.py runs/x/architectures/argmax-0.yaml --run runs/x"
    assert named in blocks(make)[0].splitlines()


def test_trainings_that_compare_started_stand_as_compare(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", "--run", "runs/x")
    recorded(make.retraining("par-5"), "retrain.py", "--architecture", "y.json")
    first = blocks(make, read_comparison(make.comparison()))[0]
    assert "--architecture" not in first
    assert first.splitlines()[-1] == "python compare.py runs/x"


def test_runs_of_several_or_changed_versions_name_none(make):
    recorded(make.search(drawn=()), "search.py", "x.yaml", commit=f"{COMMIT}-changed")
    assert "git checkout" not in blocks(make)[0]
    recorded(make.run / "search/seed-0", "search.py", "x.yaml")
    recorded(make.retraining("par-5"), "retrain.py", "x.yaml", commit="f" * 40)
    assert "git checkout" not in blocks(make)[0]


def test_the_facts_are_those_of_the_machine_and_all_seeds(make):
    recorded(make.search(seed=3), "search.py", "x.yaml", device="cpu", torch="2.13.0")
    make.search(seed=10)
    make.retraining("argmax-0", seed=1)
    body = commands_section(make.run, None, []).body
    assert dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", body)) == {
        "device": "cpu",
        "torch": "2.13.0",
        "commit": COMMIT,
        "search seeds": "3, 10",
        "training seeds": "1",
    }
    assert "estimator: soft" in body


def test_the_next_command_is_the_first_phase_that_is_not_done(make):
    assert next_commands(make.run, None)[0].startswith("python search.py ")
    make.architecture("argmax-0", ("dense",), chosen=True)
    make.retraining("par-5")  # another one of the run is trained
    assert next_commands(make.run, None)[0].startswith("python retrain.py ")
    make.retraining("argmax-0")
    assert next_commands(make.run, None)[0].startswith("python compare.py ")


@pytest.mark.parametrize(("n", "offered"), [(1, True), (2, True), (3, False)])
def test_more_seeds_are_offered_until_there_are_three(make, n, offered):
    make.search(slots=1, steps=2)
    make.architecture("argmax-0", ("attention",), chosen=True)
    make.retraining("argmax-0")
    rows = (f"{name},a,{n},1,1,,1,1,1,,searched,,,,\n" for name in ("argmax-0", "par-5"))
    left = "\n".join(next_commands(make.run, read_comparison(make.comparison("".join(rows)))))
    assert ("compare.seeds=[0,1,2]" in left) == offered
    assert re.search(r"python search\.py \S+/seed-0/experiment\.yaml .* run\.seed=1", left)
