"""The commands that remake a run, and on what it ran."""

import json
import re
from html import unescape

import pytest

from report.commands import commands_section, next_commands
from report.comparison import read_comparison


def recorded(folder, **facts):
    (folder / "environment.json").write_text(json.dumps(facts))


def blocks(make, comparison=None):
    body = commands_section(make.run, next_commands(make.run, comparison)).body
    return [unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", body, re.DOTALL)]


def test_the_commands_stand_as_they_were_given(make):
    make.search(drawn=())
    make.architecture("argmax-0", ("dense",), chosen=True)
    make.retraining("argmax-0")
    given = ["python search.py 'x y.yaml' --run runs/x", "python compare.py runs/x --seeds 4 -q"]
    rows = (json.dumps({"command": line, "threads": 2}) + "\n" for line in given)
    (make.run / "commands.jsonl").write_text("".join(rows))
    first, _, after = blocks(make, read_comparison(make.comparison()))
    assert first.splitlines() == given
    assert "python compare.py runs/x -q --seeds 0,1,2\n" in after


def test_the_facts_are_those_of_the_machine_and_all_seeds(make):
    recorded(make.search(seed=3), device="cpu", torch="2.13.0", commit="c0ffee")
    make.search(seed=10)
    make.retraining("argmax-0", seed=1)
    body = commands_section(make.run, []).body
    assert dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", body)) == {
        "device": "cpu",
        "torch": "2.13.0",
        "commit": "c0ffee",
        "search seeds": "3, 10",
        "training seeds": "1",
    }
    assert "estimator: soft" in body


def test_the_next_command_is_the_first_phase_that_is_not_done(make):
    assert next_commands(make.run, None)[0].startswith("python search.py ")
    for seed in (0, 2):
        make.search(seed=seed)
    assert next_commands(make.run, None)[0].endswith(" --seeds 0,2")
    make.architecture("argmax-0", ("dense",), chosen=True)
    make.retraining("par-5")  # another one of the run is trained
    assert next_commands(make.run, None)[0].startswith("python retrain.py ")
    make.retraining("argmax-0")
    assert next_commands(make.run, None)[0].startswith("python compare.py ")
    (make.run / "model").mkdir()
    for name, verb in {"argmax-0": "compare", "par-5": "retrain"}.items():
        (make.run / "model" / "result.json").write_text(json.dumps({"name": name}))
        assert next_commands(make.run, None)[0].startswith(f"python {verb}.py ")


@pytest.mark.parametrize(("n", "offered"), [(1, True), (2, True), (3, False)])
def test_more_seeds_are_offered_until_there_are_three(make, n, offered):
    make.search(slots=1, steps=2)
    make.architecture("argmax-0", ("attention",), chosen=True)
    make.retraining("argmax-0")
    rows = (f"{name},a,{n},1,1,,1,1,1,,chosen,,,,\n" for name in ("argmax-0", "par-5"))
    left = "\n".join(next_commands(make.run, read_comparison(make.comparison("".join(rows)))))
    assert ("--seeds 0,1,2" in left) == offered
    assert re.search(r"python search\.py \S+/seed-0/experiment\.yaml .* run\.seed=1", left)
