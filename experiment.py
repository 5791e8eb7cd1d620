"""The experiment: the packages' own sections put together, read from one strict YAML file."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from data.config import DataConfig
from experiment_source import ExperimentError, Source
from experiment_space import sweep_problems
from hpo.config import SweepConfig
from model.blocks import BLOCKS
from model.config import ModelConfig, SoftmaxConfig
from nas.config import CompareConfig, DeriveConfig, SearchConfig
from nas.derivation import DERIVATIONS
from training.config import RetrainConfig, RunConfig
from utils.strict_yaml import Key, dump_yaml
from utils.validation import Said, Section, dotted, explain, must_be_one_of

__all__ = [
    "Experiment",
    "ExperimentError",
    "TextExperiment",
    "changed_settings",
    "dump_experiment",
    "json_schema",
    "load_experiment",
    "load_text_experiment",
    "with_settings",
]


class TextExperiment(Section):
    """What must be known to prepare a text: `data`; the other sections are checked where given."""

    run: RunConfig = RunConfig()
    data: DataConfig
    model: ModelConfig | None = None
    search: SearchConfig | None = None
    derive: DeriveConfig = DeriveConfig()
    retrain: RetrainConfig | None = None
    compare: CompareConfig = CompareConfig()
    sweep: SweepConfig | None = Field(
        default=None, description="Many trials with other settings, for sweep.py."
    )

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        problems = []
        if self.run.micro_batches > self.data.batch:
            problems.append(
                f"run.micro_batches: {self.run.micro_batches} parts of {self.data.batch} streams "
                "(data.batch); use fewer"
            )
        ids, softmax = self.data.tokenizer.ids, self.model and self.model.softmax
        if ids is not None and isinstance(softmax, SoftmaxConfig):
            try:
                softmax.check_vocabulary(ids)
            except ValueError as error:
                problems.append(f"model.{error}")
        if problems:
            raise ValueError("\n".join(problems))
        return self


class Experiment(TextExperiment):
    """One experiment: every setting of every phase."""

    model: ModelConfig
    search: SearchConfig
    retrain: RetrainConfig


Kind = TypeVar("Kind", bound=TextExperiment)


def load_experiment(
    path: Path, overrides: Sequence[str] = (), base: Path | None = None
) -> Experiment:
    """Read an experiment file and put the overrides over it.

    Args:
        path: the YAML file.
        overrides: texts like `search.tau.end=0.1`; the value is YAML, a list is given whole.
        base: where given, the files and folders of `data` must be there, from this folder.

    Raises:
        ExperimentError: all that is wrong, in the order of the file.
        OSError: the file cannot be read.
    """
    return _load(Experiment, path, overrides, base)


def load_text_experiment(path: Path, overrides: Sequence[str], base: Path) -> TextExperiment:
    """As `load_experiment`, of a file that needs no other section than `data`."""
    return _load(TextExperiment, path, overrides, base)


def _load(kind: type[Kind], path: Path, overrides: Sequence[str], base: Path | None) -> Kind:
    sections = Experiment.model_fields
    may_be_empty = [name for name, field in sections.items() if field.default is not None]
    source = Source(path, overrides, list(sections), may_be_empty)
    experiment, said = _read(kind, source.data)
    if isinstance(experiment, Experiment) and not source.lines(said):
        said += sweep_problems(experiment, partial(changed_settings, experiment))
    if base is not None:
        said += _missing_inputs(source.data.get("data"), base)
    if problems := source.lines(said):
        raise ExperimentError(problems)
    assert experiment is not None
    return experiment


def _missing_inputs(section: Any, base: Path) -> list[Said]:
    """What a data section that is valid in itself names and is not there."""
    try:
        data = DataConfig.model_validate_json(json.dumps(section), strict=True)
    except ValidationError:
        return []
    return [(("data", *key), words) for key, words in data.missing_inputs(base)]


def with_settings(
    experiment: Experiment, values: Mapping[str, Any], without: Sequence[str] = ()
) -> Experiment:
    """The experiment of a trial: without a sweep, with other values at some keys.

    Args:
        experiment: where all other values come from.
        values: dotted keys and what they become.
        without: dotted keys that go back to their defaults.

    Raises:
        ExperimentError: the values do not go together; one line for each `key: what is wrong`.
    """
    changed, said = changed_settings(experiment, values, without)
    if changed is None or said:
        raise ExperimentError([f"{dotted(key)}: {words}" for key, words in said])
    return changed


def changed_settings(
    experiment: Experiment, values: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[Experiment | None, list[Said]]:
    """As `with_settings`; what is wrong comes back as keys and words."""
    data = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"sweep"})
    said: list[Said] = []
    for name in without:
        _, section = _section(data, name, make=False)
        if section is not None:
            section.pop(name.split(".")[-1], None)
    for name, value in values.items():
        above, section = _section(data, name, make=True)
        if section is None:
            said.append((tuple(name.split(".")), f"{dotted(above)} has no keys"))
        else:
            section[name.split(".")[-1]] = value
    return (None, said) if said else _read(Experiment, data)


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


def _read(kind: type[Kind], data: dict[str, Any]) -> tuple[Kind | None, list[Said]]:
    """The experiment, or all that is wrong with the values."""
    said = _unregistered(data)
    try:
        # As JSON, because strict there still lets a list become a tuple.
        return kind.model_validate_json(json.dumps(data), strict=True), said
    except ValidationError as error:
        return None, said + explain(error.errors(), kind, data)


def _section(data: dict[str, Any], name: str, *, make: bool) -> tuple[Key, Any]:
    """The mapping that holds a dotted key; None where there is none, or a single value."""
    *above, _ = name.split(".")
    here: Any = data
    for depth, part in enumerate(above, start=1):
        if here.get(part) is None and make:
            here[part] = {}
        here = here.get(part)
        if not isinstance(here, dict):
            return tuple(above[:depth]), None
    return tuple(above), here


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
