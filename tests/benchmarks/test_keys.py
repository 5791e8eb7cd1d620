"""Whose a folder of trainings is: its key is written once, and checked after that."""

import json
from pathlib import Path

import pytest

from benchmarks.keys import claim_key


def test_a_claimed_key_stays_as_it_is_and_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "key.json"
    claim_key(path, {"run": {"threads": 1}})
    written = json.loads(path.read_text())
    assert written["run"] == {"threads": 1}
    # What others add, such as what latencies were timed on, is not taken away.
    path.write_text(json.dumps(written | {"latency": {}}))
    claim_key(path, {"run": {"threads": 1}})
    assert json.loads(path.read_text()) == written | {"latency": {}}
    with pytest.raises(ValueError, match=r"run\.threads is 1, now 2; .*: give another --csv$"):
        claim_key(path, {"run": {"threads": 2}}, "give another --csv")
