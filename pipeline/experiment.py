"""The experiment: its sections, read from YAML and --set, with all problems at once."""

import json
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from data.config import DataConfig
from hpo.config import SweepConfig
from model.blocks import BLOCKS, Candidate
from model.config import ModelConfig, SoftmaxConfig
from nas.costs.config import CostsConfig
from nas.derivation import DERIVATIONS
from nas.derivation.config import DeriveConfig
from nas.opponents import OPPONENTS
from nas.opponents.config import CompareConfig
from nas.search.config import SearchConfig
from pipeline import cli
from pipeline.experiment_sweep import sweep_problems
from training.config import RetrainConfig, RunConfig
from utils.strict_yaml import (
    MAX_DEPTH,
    Document,
    Key,
    YamlError,
    dump_yaml,
    is_torn,
    read_text,
    read_yaml,
)
from utils.text import masked, shorten, visible
from utils.validation import Said, Section, dotted, explain, must_be_one_of, show, without_gone

# What compare.opponents may name.
_RIVALS = list(dict.fromkeys([*DERIVATIONS, *OPPONENTS]))
# What every architecture file has.
_ARCHITECTURE = {"slots", "d_model", "vocabulary_size"}
_MOST_NAMED = 6
# A section's name with one letter wrong; `step` is no `sweep`.
_ALIKE = 0.75
_AFTER_THE_FILE = 10**9  # more than any line number


def _no_yaml(text: str, error: YamlError, sections: Sequence[str]) -> str:
    """What to say of a text that is no YAML: the error alone where a section begins before it."""
    names = "|".join(sections)
    above = "\n".join(re.split(r"\r\n?|\n", text)[: error.line])
    if not text or re.search(rf"^[\s{{\"']*({names})[\"']?\s*[:{{]", above, re.MULTILINE):
        return error.text
    return (
        f"no experiment file: down to here no section begins ({', '.join(sections)}); "
        f"read as YAML: {error.text}"
    )


def _no_experiment(value: Any, sections: Sequence[str], *, overridden: bool) -> str | None:
    """Why a document is no experiment; None where its keys may be judged.

    Where the command line gives values too (`overridden`), the file may have none.
    """
    expected = f"expected the sections {', '.join(sections)}"
    if value is None or value == {}:
        return None if overridden else f"no experiment file: it holds no setting; {expected}"
    if not isinstance(value, Mapping):
        return f"no experiment file: {expected}; found {show(value)}"
    alike = sum(bool(get_close_matches(key, sections, cutoff=_ALIKE)) for key in value)
    if any(key in sections for key in value) or 2 * alike >= len(value):
        return None
    if value.keys() >= _ARCHITECTURE:
        return "no experiment file but an architecture, which retrain.py takes as --architecture"
    keys = ", ".join(shorten(key, 40) for key in list(value)[:_MOST_NAMED])
    more = ", ..." if len(value) > _MOST_NAMED else ""
    return f"no experiment file: {expected}; found none of them, but {keys}{more}"


class ExperimentError(ValueError):
    """The experiment cannot be used; `problems` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [visible(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class _Source:
    """The values of a file with the overrides put over them, and the origin of every key.

    Raises:
        ExperimentError: the file is no YAML or no mapping.
    """

    def __init__(self, path: Path, overrides: Sequence[str]) -> None:
        sections = Experiment.model_fields
        document = _read_document(path, list(sections), overridden=bool(overrides))
        # Per key the rank that sorts its problems and the text that stands before them.
        self._origin: dict[Key, tuple[int, str]] = {
            key: (line, f"{path}:{line}") for key, line in document.line_of.items() if key
        } | {(): (1, f"{path}:1")}
        self._problems = [
            (problem.line, _line(f"{path}:{problem.line}", problem.key, problem.text))
            for problem in document.problems
        ]
        self._unread: set[Key] = set(document.unread)
        # A section that is left empty is an empty mapping where the experiment may lack it.
        optional = {name for name, field in sections.items() if field.default is not None}
        self.data: dict[str, Any] = {
            name: {} if section is None and name in optional else section
            for name, section in (document.value or {}).items()
        }
        for place, text in enumerate(overrides):
            if line := self._override(text, _AFTER_THE_FILE + place):
                self._problems.append((_AFTER_THE_FILE + place, line))

    def lines(self, errors: Sequence[Said]) -> list[str]:
        """Every problem found by reading, and every one of `errors`, as lines in file order."""
        placed = list(self._problems)
        for key, words in errors:
            if key not in self._unread:
                rank, origin = self._origin_of(key)
                placed.append((rank, _line(origin, key, words)))
        return list(dict.fromkeys(line for _, line in sorted(placed, key=lambda pair: pair[0])))

    def _override(self, text: str, rank: int) -> str | None:
        """Put one `a.b=value` over the data; return the line to print where that is impossible."""
        origin = "--set " + shorten(" ".join(masked(text).split()), 200)
        name, equals, value_text = text.partition("=")
        key: Key = tuple(name.strip().split("."))
        if not equals or not all(key):
            return f"{origin}: expected KEY=VALUE, for example search.tau.end=0.1"
        if is_torn(name):
            return f"{origin}: bytes that are no UTF-8"
        if len(key) > MAX_DEPTH:
            return f"{origin}: no key has {len(key)} parts"
        try:
            document = read_yaml(value_text)
        except YamlError as error:
            return _line(origin, key, f"the value is not YAML: {error.text}")
        self._problems += [
            (rank, _line(origin, (*key, *problem.key), problem.text))
            for problem in document.problems
        ]
        here: Any = self.data
        for depth, part in enumerate(key[:-1], start=1):
            if here.get(part) is None:
                here[part] = {}
                self._origin[key[:depth]] = (rank, origin)
            here = here[part]
            if not isinstance(here, dict):
                above = dotted(key[:depth])
                return _line(origin, key, f"{above} is {show(here)}, which has no keys")
        here[str(key[-1])] = document.value
        # What the file said of this key and of all below it counts no more.
        self._unread = {old for old in self._unread if old[: len(key)] != key}
        self._unread |= {(*key, *inner) for inner in document.unread}
        above_it = {old: at for old, at in self._origin.items() if old[: len(key)] != key}
        self._origin = above_it | {key: (rank, origin)}
        return None

    def _origin_of(self, key: Key) -> tuple[int, str]:
        # Of the key itself, or of the nearest key around it that stands somewhere.
        while key not in self._origin:
            key = key[:-1]
        return self._origin[key]


def _read_document(path: Path, sections: Sequence[str], *, overridden: bool) -> Document:
    if path.is_dir():
        raise ExperimentError([f"{path}: a directory; give a YAML file"])
    text = ""
    try:
        text = read_text(path)
        document = read_yaml(text)
    except YamlError as error:
        position = f"{error.line}" if error.column is None else f"{error.line}:{error.column}"
        words = shorten(_no_yaml(text, error, sections), 1000)
        raise ExperimentError([f"{path}:{position}: {words}"]) from None
    if (why := _no_experiment(document.value, sections, overridden=overridden)) is not None:
        raise ExperimentError([f"{path}:1: {why}"])
    return document


def _line(origin: str, key: Key, words: str) -> str:
    words = shorten(words, 1000)
    return f"{origin}: {dotted(key)}: {words}" if key else f"{origin}: {words}"


class TextExperiment(Section):
    """What must be known to prepare a text: `data`; the other sections are checked where given."""

    run: RunConfig = RunConfig()
    data: DataConfig
    model: ModelConfig | None = None
    search: SearchConfig | None = None
    derive: DeriveConfig = DeriveConfig()
    retrain: RetrainConfig | None = None
    compare: CompareConfig = CompareConfig()
    costs: CostsConfig = CostsConfig()
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
        if self.model is not None:
            candidates = self.model.completed_candidates()
            problems += idle_clusters("model.candidates", candidates, self.data.segment)
        if problems:
            raise ValueError("\n".join(problems))
        return self


class Experiment(TextExperiment):
    """One experiment: every setting of every phase."""

    model: ModelConfig
    search: SearchConfig
    retrain: RetrainConfig

    def warnings(self) -> list[str]:
        """What is allowed but seldom meant: windows that reach beyond their memory."""
        lines = []
        for candidate in self.model.completed_candidates():
            options = candidate.model_dump()
            window, memory = options.get("window"), options.get("memory")
            if window is not None and memory is not None and memory < window - 1:
                lines.append(
                    f"warning: {candidate.label}: window {window} needs memory {window - 1}, found "
                    f"{memory}: results depend on how the text is cut"
                )
        return lines


def idle_clusters(key: str, candidates: Sequence[Candidate], segment: int) -> Iterator[str]:
    """Those of a list called `key` with more clusters than a segment and its memory have tokens."""
    for number, candidate in enumerate(candidates):
        options = candidate.model_dump()
        clusters, memory = options.get("clusters", 1), options.get("memory") or 0
        if clusters > memory + segment:
            yield (
                f"{key}[{number}].clusters: {clusters} for {memory + segment} tokens (memory "
                f"{memory} and data.segment {segment}); give fewer"
            )


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
    """
    return _load(Experiment, path, overrides, base)


def _load(kind: type[Kind], path: Path, overrides: Sequence[str], base: Path | None) -> Kind:
    source = _Source(path, overrides)
    experiment, errors = _read(kind, source.data)
    if isinstance(experiment, Experiment) and not source.lines(errors):
        errors += sweep_problems(experiment, partial(changed_settings, experiment))
    if base is not None:
        # Where `data` is valid in itself, also beside sections that are not.
        with suppress(ValidationError):
            section = json.dumps(source.data.get("data"))
            data = DataConfig.model_validate_json(section, strict=True)
            errors += [(("data", *key), words) for key, words in data.missing_inputs(base)]
    if problems := source.lines(errors):
        raise ExperimentError(problems)
    assert experiment is not None
    return experiment


def with_settings(
    experiment: Experiment, values: Mapping[str, Any], without: Sequence[str] = ()
) -> Experiment:
    """The experiment of a trial: without a sweep, with other values at some dotted keys.

    The keys of `without` go back to their defaults.

    Raises:
        ExperimentError: the values do not go together; one line for each `key: what is wrong`.
    """
    changed, errors = changed_settings(experiment, values, without)
    if changed is None or errors:
        raise ExperimentError([f"{dotted(key)}: {words}" for key, words in errors])
    return changed


def changed_settings(
    experiment: Experiment, values: Mapping[str, Any], without: Sequence[str] = ()
) -> tuple[Experiment | None, list[Said]]:
    """As `with_settings`; what is wrong comes back as keys and words."""
    data = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"sweep"})
    errors: list[Said] = []
    for name in without:
        _, section = _section(data, name, make=False)
        if section is not None:
            section.pop(name.split(".")[-1], None)
    for name, value in values.items():
        above, section = _section(data, name, make=True)
        if section is None:
            errors.append((tuple(name.split(".")), f"{dotted(above)} has no keys"))
        else:
            section[name.split(".")[-1]] = value
    return (None, errors) if errors else _read(Experiment, data)


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
    sections["CompareConfig"]["properties"]["opponents"]["items"]["enum"] = _RIVALS
    return json.dumps(schema, indent=2) + "\n"


def _read(kind: type[Kind], data: dict[str, Any]) -> tuple[Kind | None, list[Said]]:
    """The experiment, or all that is wrong with the values."""
    data = without_gone(kind, data)
    errors = _unregistered_names(data)
    try:
        # As JSON, because strict there still lets a list become a tuple.
        return kind.model_validate_json(json.dumps(data), strict=True), errors
    except ValidationError as error:
        return None, errors + explain(error.errors(), kind, data)


def _section(data: dict[str, Any], name: str, *, make: bool) -> tuple[Key, Any]:
    # The mapping that holds a dotted key; None where there is none, or a single value.
    *above, _ = name.split(".")
    here: Any = data
    for depth, part in enumerate(above, start=1):
        if here.get(part) is None and make:
            here[part] = {}
        here = here.get(part)
        if not isinstance(here, dict):
            return tuple(above[:depth]), None
    return tuple(above), here


def _unregistered_names(data: dict[str, Any]) -> list[Said]:
    # Here and not in nas/derivation/config.py, which the derivations themselves import.
    names: list[tuple[Key, Any, list[str]]] = []
    derive, compare = data.get("derive"), data.get("compare")
    if isinstance(derive, dict):
        names.append((("derive", "method"), derive.get("method"), list(DERIVATIONS)))
    if isinstance(compare, dict) and isinstance(compare.get("opponents"), list):
        opponents = enumerate(compare["opponents"])
        names += [(("compare", "opponents", place), name, _RIVALS) for place, name in opponents]
    return [
        (key, must_be_one_of(name, choices))
        for key, name, choices in names
        if isinstance(name, str) and name not in choices
    ]


def experiment_of(arguments: Namespace) -> tuple[Experiment, Path]:
    """The experiment and the run directory that a command line names.

    Raises:
        ValueError: the experiment is not valid or names a file that is not there, or a run
            directory holds none.
    """
    target = cli.locate(arguments)
    return load_experiment(target.file, arguments.set, Path.cwd()), target.run


def text_experiment_of(arguments: Namespace) -> tuple[TextExperiment, Path]:
    """As `experiment_of`, of a file that needs no other section than `data`."""
    target = cli.locate(arguments)
    return _load(TextExperiment, target.file, arguments.set, Path.cwd()), target.run


def carried(arguments: Namespace) -> tuple[str, ...]:
    """The settings of this command that the next one needs too."""
    of_this_one = ("derive.", "run.trackers")
    return tuple(setting for setting in arguments.set if not setting.startswith(of_this_one))
