"""What a table of trainings belongs to: rows under another key are no comparison."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.experiment import Experiment
from training.run_dir import commit
from utils.files import read_object, write_whole

_REMEDY = "give another --run"


def key_of(experiment: Experiment, inputs: Mapping[str, str]) -> dict[str, Any]:
    """What a table belongs to: rows under another key are not comparable with its rows."""
    run = experiment.run.model_dump(mode="json", include={"precision", "threads", "validate_every"})
    data, model = experiment.data.model_dump(mode="json"), experiment.model.identity()
    return {
        "run": run,
        "data": data,
        "model": model,
        "retrain": experiment.retrain.identity(),
        **inputs,
    }


def claim_key(path: Path, key: Mapping[str, Any], remedy: str = _REMEDY) -> None:
    """Say in a key file what results belong to; check it where it is there already.

    Raises:
        ValueError: the results there belong to another key.
        OSError: the file cannot be written.
    """
    if path.exists():
        check_key(path, key, remedy)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({**key, "commit": commit()}, indent=1) + "\n")


def check_key(path: Path, key: Mapping[str, Any], remedy: str = _REMEDY) -> dict[str, Any]:
    """The content of a key file; ValueError where its results belong to another key."""
    known = read_object(path)
    ours: Any = json.loads(json.dumps(key))
    theirs: Any = {name: known.get(name) for name in ours}
    names = list[str]()
    # Down to the first value that differs.
    while isinstance(theirs, dict) and isinstance(ours, dict) and theirs != ours:
        both = sorted(theirs.keys() | ours.keys())
        name = next((name for name in both if theirs.get(name) != ours.get(name)), None)
        if name is None:  # null on one side, absent on the other
            break
        names.append(name)
        theirs, ours = theirs.get(name), ours.get(name)
    if theirs == ours:
        return known
    # A key may be left out where it is at its default.
    was, now = ("not given" if value is None else value for value in (theirs, ours))
    raise ValueError(
        f"{path}: {'.'.join(names)} is {was}, now {now}; rows under another key are no "
        f"comparison: {remedy}"
    )
