"""The experiment: the packages' own sections put together, read from one strict YAML file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from data.config import DataConfig
from experiment_source import ExperimentError, Source
from model.blocks import BLOCKS
from model.config import ModelConfig, SoftmaxConfig
from nas.config import CompareConfig, DeriveConfig, SearchConfig
from nas.derivation import DERIVATIONS
from problems import Said, explain, must_be_one_of
from training.config import RetrainConfig, RunConfig
from yaml_strict import Key, dump_yaml

__all__ = ["Experiment", "ExperimentError", "dump_experiment", "json_schema", "load_experiment"]


class Experiment(BaseModel):
    """One experiment: every setting of every phase."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    run: RunConfig = RunConfig()
    data: DataConfig
    model: ModelConfig
    search: SearchConfig
    derive: DeriveConfig = DeriveConfig()
    retrain: RetrainConfig
    compare: CompareConfig = CompareConfig()

    @model_validator(mode="after")
    def _sections_fit(self) -> "Experiment":
        problems = []
        if self.run.micro_batches > self.data.batch:
            problems.append(
                f"run.micro_batches: {self.run.micro_batches} parts of {self.data.batch} streams "
                "(data.batch); use fewer"
            )
        ids, softmax = self.data.tokenizer.ids, self.model.softmax
        if ids is not None and isinstance(softmax, SoftmaxConfig):
            try:
                softmax.check_vocabulary(ids)
            except ValueError as error:
                problems.append(f"model.{error}")
        if problems:
            raise ValueError("\n".join(problems))
        return self


def load_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file and put the overrides over it.

    Args:
        path: the YAML file.
        overrides: texts like `search.tau.end=0.1`; the value is YAML, a list is given whole.

    Raises:
        ExperimentError: all that is wrong, in the order of the file.
        OSError: the file cannot be read.
    """
    source = Source(path, overrides, list(Experiment.model_fields))
    said = _unregistered(source.data)
    try:
        # As JSON, because strict there still lets a list become a tuple.
        experiment = Experiment.model_validate_json(json.dumps(source.data), strict=True)
    except ValidationError as error:
        said += explain(error.errors(), Experiment, source.data)
    if problems := source.lines(said):
        raise ExperimentError(problems)
    return experiment


def dump_experiment(experiment: Experiment) -> str:
    """YAML text with every key, which loads to an equal experiment."""
    return dump_yaml(experiment.model_dump(mode="json"))


def json_schema() -> str:
    """The JSON schema of an experiment file, for editors."""
    schema = Experiment.model_json_schema()
    sections = schema["$defs"]
    candidates = sections["ModelConfig"]["properties"]["candidates"]
    candidates["items"] = {"anyOf": [{"enum": list(BLOCKS)}, candidates["items"]]}
    sections["DeriveConfig"]["properties"]["method"]["enum"] = list(DERIVATIONS)
    sections["CompareConfig"]["properties"]["opponents"]["items"]["enum"] = list(DERIVATIONS)
    return json.dumps(schema, indent=2) + "\n"


def _unregistered(data: dict[str, Any]) -> list[Said]:
    """Names of derivations that nobody registered."""
    # Here and not in nas/config.py, which the derivations themselves import.
    names: list[tuple[Key, Any]] = []
    derive, compare = data.get("derive"), data.get("compare")
    if isinstance(derive, dict):
        names.append((("derive", "method"), derive.get("method")))
    if isinstance(compare, dict) and isinstance(compare.get("opponents"), list):
        names += [
            (("compare", "opponents", place), name)
            for place, name in enumerate(compare["opponents"])
        ]
    return [
        (key, must_be_one_of(name, list(DERIVATIONS)))
        for key, name in names
        if isinstance(name, str) and name not in DERIVATIONS
    ]
