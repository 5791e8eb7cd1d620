"""The experiment: every section put together, read from YAML with all problems at once."""

import json
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from data.config import DataConfig
from hpo.config import SweepConfig
from model.blocks import Candidate
from model.config import ModelConfig
from nas.baselines import CompareConfig
from nas.costs.config import CostsConfig
from nas.derivation import (
    DERIVATIONS,
    OF_MODEL,
    SEARCHED,
    TRAINED,
    context_problem,
    reference_remedy,
)
from nas.derivation.config import DeriveConfig
from nas.search.config import SearchConfig
from pipeline import cli
from training.config import RetrainConfig, RunConfig
from utils.strict_yaml import Document, YamlError, dump_yaml, read_text, read_yaml
from utils.text import masked, shorten, visible, without_passwords
from utils.validation import Key, Said, Section, dotted, explain, show

_AFTER_THE_FILE = 10**9  # more than any line number


class ExperimentError(ValueError):
    """The experiment cannot be used; `problems` holds one line for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = [visible(problem) for problem in problems]
        super().__init__("\n".join(self.problems))


class ExperimentSource:
    """The values of a file with the overrides put over them, and the origin of every key.

    `sections` are all of an experiment, and whether each may be left out.
    """

    def __init__(self, path: Path, overrides: Sequence[str], sections: Mapping[str, bool]) -> None:
        document = _read_document(path, list(sections))
        # Per key the rank that sorts its problems and the text that stands before them.
        self._origin: dict[Key, tuple[int, str]] = {
            key: (line, f"{path}:{line}") for key, line in document.line_of.items() if key
        } | {(): (1, f"{path}:1")}
        self._problems = [
            (line, _line(f"{path}:{line}", key, text)) for key, line, text in document.problems
        ]
        # A section that is left empty is an empty mapping where the experiment may lack it.
        self.data: dict[str, Any] = {
            name: {} if section is None and sections.get(name) else section
            for name, section in (document.value or {}).items()
        }
        for rank, text in enumerate(overrides, _AFTER_THE_FILE):
            origin = "--set " + shorten(" ".join(masked(text).split()), 200)
            self._problems += [(rank, line) for line in self._override(text, rank, origin)]

    def lines(self, errors: Sequence[Said]) -> list[str]:
        """Every problem found by reading, and every one of `errors`, as lines in file order."""
        placed = list(self._problems)
        for key, words in errors:
            around = next(key[:n] for n in range(len(key), -1, -1) if key[:n] in self._origin)
            rank, origin = self._origin[around]
            placed.append((rank, _line(origin, key, words)))
        return list(dict.fromkeys(line for _, line in sorted(placed, key=lambda pair: pair[0])))

    def _override(self, text: str, rank: int, origin: str) -> Iterator[str]:
        """Put one `a.b=value` over the data; yield what is wrong with it."""
        name, equals, value_text = text.partition("=")
        key: Key = tuple(name.strip().split("."))
        if not equals or not all(key):
            yield f"{origin}: expected KEY=VALUE, for example search.tau.end=0.1"
            return
        try:
            document = read_yaml(value_text)
        except YamlError as error:
            yield _line(origin, key, f"the value is not YAML: {error.text}")
            return
        above, section = _section(self.data, key, make=True)
        if section is None:
            yield _line(origin, key, f"{dotted(above)} has no keys")
            return
        section[str(key[-1])] = document.value
        # What the file said of this key and of all below it counts no more.
        kept = {old: at for old, at in self._origin.items() if old[: len(key)] != key}
        made = (key[:n] for n in range(1, len(key)) if key[:n] not in kept)
        self._origin = kept | dict.fromkeys([*made, key], (rank, origin))
        for below, _, words in document.problems:
            yield _line(origin, (*key, *below), words)


def _read_document(path: Path, sections: Sequence[str]) -> Document:
    if path.is_dir():
        raise ExperimentError([f"{path}: a directory; give a YAML file"])
    try:
        document = read_yaml(read_text(path))
    except YamlError as error:
        position = f"{error.line}" if error.column is None else f"{error.line}:{error.column}"
        raise ExperimentError([f"{path}:{position}: {shorten(error.text, 1000)}"]) from None
    if document.value is not None and not isinstance(document.value, Mapping):
        expected = f"expected the sections {', '.join(sections)}"
        found = show(document.value)
        raise ExperimentError([f"{path}:1: not an experiment file: {expected}; found {found}"])
    return document


def _section(data: dict[str, Any], key: Key, *, make: bool) -> tuple[Key, Any]:
    # The mapping that holds a key; None where there is none, or a single value.
    here: Any = data
    for depth, part in enumerate(key[:-1], start=1):
        if here.get(part) is None and make:
            here[part] = {}
        here = here.get(part)
        if not isinstance(here, dict):
            return key[:depth], None
    return key[:-1], here


def _line(origin: str, key: Key, words: str) -> str:
    words = shorten(words, 1000)
    return f"{origin}: {dotted(key)}: {words}" if key else f"{origin}: {words}"


class Experiment(Section):
    """One experiment: every setting of every phase."""

    run: RunConfig = RunConfig()
    data: DataConfig
    model: ModelConfig
    search: SearchConfig = SearchConfig()
    derive: DeriveConfig = DeriveConfig()
    retrain: RetrainConfig
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
        if (ids := self.data.tokenizer.ids) is not None:
            try:
                self.model.softmax.check_vocabulary(ids)
            except ValueError as error:
                problems.append(f"model.{error}")
        candidates = self.model.completed_candidates()
        problems += idle_clusters("model.candidates", candidates, self.data.segment)
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def warnings(self) -> list[str]:
        """What is allowed but seldom meant, such as a window beyond its memory."""
        candidates, lines = self.model.completed_candidates(), list[str]()
        for candidate in candidates:
            options = candidate.model_dump()
            window, memory = options.get("window"), options.get("memory")
            if window is not None and memory is not None and memory < window - 1:
                lines.append(
                    f"warning: {candidate.label}: window {window} needs memory {window - 1}, found "
                    f"{memory}: results depend on how the text is cut"
                )
        for one, other in combinations(candidates, 2):
            if {**one.model_dump(), "label": ""} == {**other.model_dump(), "label": ""}:
                lines.append(
                    f"warning: {one.label} and {other.label} are the same block: they share a "
                    "part of pi, so each looks less likely"
                )
        set_ = {} if self.sweep is None else {**self.sweep.set, **self.sweep.space}
        method = set_.get("derive.method", self.derive.method)
        if self.sweep is not None and method in TRAINED:
            lines.append(
                f"warning: derive.method {method} trains several layouts in every trial of the "
                "sweep; argmax, which takes a search's likeliest, and rules train none"
            )
        lines += [f"warning: {line} (derive.py will refuse it)" for line in self.layout_problems()]
        return lines

    @property
    def has_search(self) -> bool:
        """Whether a whole run begins with one: the derivation needs it, or takes what is there."""
        method = self.derive.method
        return method in SEARCHED or (method in TRAINED and self.search.has_length)

    @property
    def timed(self) -> list[str]:
        """The keys of limits that are times, which are measured in a whole run."""
        of_search = self.search.cost.measured if self.has_search else []
        return [f"derive.budget.{cost}" for cost in self.derive.budget.measured] + of_search

    def check_seeds(self, seeds: Collection[int]) -> None:
        """Raise ValueError where several seeds would be one training, as nothing of it is drawn."""
        drawn = self.data.random_offset, self.retrain.layer_dropout
        if self.retrain.start is None or len(seeds) < 2 or any(drawn):
            return
        if not any(asdict(self.model.dropouts()).values()):
            raise ValueError(
                f"retrain.start: seeds {', '.join(map(str, sorted(seeds)))} begin with one model "
                "and read the same batches, so they are one training; set data.random_offset=true, "
                "with which each begins to read elsewhere"
            )

    def check_searchable(self) -> None:
        """Raise ValueError where there are no steps, or alpha has no choice or a bad gradient."""
        if not self.search.has_length:
            raise ValueError("search.steps: a search needs steps or epochs; give one of the two")
        model, why = self.model, dict[str, str]()
        count = len(model.candidates)
        if count == 1:
            raise ValueError(
                f"model.candidates: {model.candidates[0].label} alone leaves a search no choice; "
                "give another candidate, or train the layout itself (retrain.py --layout)"
            )
        if model.rezero:
            why["rezero"] = "every factor begins with 0, where alpha gets no gradient"
        if not model.last_norm:
            why["last_norm"] = "without it the softmax sees how evenly blocks mix candidates"
        for name, reason in why.items():
            raise ValueError(
                f"model.{name}: not in a search among {count} candidates: {reason}; leave it at "
                "its default, and retrain the layout with it (retrain.py --layout)"
            )

    def check_layout(self, layout: str | None) -> None:
        """Raise ValueError where a layout of the command line is none of the experiment's."""
        if layout is None or layout in DERIVATIONS:
            return
        if problem := self._why_no_layout(layout):
            # One word may be meant for a method.
            rules = f"; nor is {layout!r} a method ({', '.join(DERIVATIONS)})" * (" " not in layout)
            raise ValueError(f"--layout: {problem}{rules}")

    def _why_no_layout(self, text: str) -> str:
        from nas.derivation.rules import written_layout

        try:
            written_layout(text, self.model.completed_candidates(), self.model.n_blocks)
        except ValueError as error:
            return "; ".join(line.removeprefix("layout: ") for line in str(error).splitlines())
        return ""

    def layout_problems(self) -> list[str]:
        """Why derive.py will refuse what is asked of layouts; other commands take none of it."""
        derive, candidates = self.derive, self.model.completed_candidates()
        layout = derive.layout if derive.method == "layout" else None
        problems = list[str]()
        if layout is not None and (problem := self._why_no_layout(layout)):
            problems.append(f"derive.layout: {problem}")
        relative = derive.budget.amounts and derive.reference_name not in DERIVATIONS
        if relative and (problem := self._why_no_layout(derive.reference_name)):
            # Not another experiment for the sake of what costs are shares of.
            problem = problem.partition("; give as many")[0]
            problems.append(f"derive.reference: {problem}; {reference_remedy(candidates)}")
        if derive.method in OF_MODEL and self.retrain.start is None:
            problems.append("retrain.start: shrink needs the folder of the model that shrinks")
        context = context_problem(derive, candidates, self.model.n_blocks)
        return problems if context is None else [*problems, context]


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


def load_experiment(
    path: Path, overrides: Sequence[str] = (), base: Path | None = None
) -> Experiment:
    """Read an experiment file and put the overrides over it, texts like `search.tau.end=0.1`.

    ExperimentError has all that is wrong, in the order of the file. With `base` the files and
    folders of `data` and `retrain` must be there, from this folder.
    """
    may_lack = {name: field.default is not None for name, field in Experiment.model_fields.items()}
    source = ExperimentSource(path, overrides, may_lack)
    experiment, errors = _read(source.data)
    if experiment is not None and experiment.sweep and not source.lines(errors):
        from pipeline.experiment_sweep import sweep_problems

        errors += sweep_problems(experiment)
    readers: dict[str, type[DataConfig | RetrainConfig]]
    readers = {"data": DataConfig, "retrain": RetrainConfig}
    for name, kind in readers.items():
        # Where a section is valid in itself, also beside sections that are not.
        with suppress(ValidationError):
            section = kind.model_validate_json(json.dumps(source.data.get(name)), strict=True)
            missing = [] if base is None else section.missing_inputs(base)
            errors += [((name, *key), words) for key, words in missing]
    if problems := source.lines(errors):
        raise ExperimentError(problems)
    assert experiment is not None
    return experiment


def with_settings(
    experiment: Experiment, values: Mapping[str, Any], without: Sequence[str] = ()
) -> Experiment:
    """The experiment of a trial: without a sweep, with other values at some dotted keys.

    The keys of `without` go back to their defaults. ExperimentError has a line for each `key: what
    is wrong` where the values do not go together.
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
        *_, last = key = tuple(name.split("."))
        _, section = _section(data, key, make=False)
        if section is not None:
            section.pop(last, None)
    for name, value in values.items():
        *_, last = key = tuple(name.split("."))
        above, section = _section(data, key, make=True)
        if section is None:
            errors.append((key, f"{dotted(above)} has no keys"))
        else:
            section[last] = value
    return (None, errors) if errors else _read(data)


def dump_experiment(experiment: Experiment) -> str:
    """YAML text with every key, which loads to an equal experiment; a storage has no password."""
    values = experiment.model_dump(mode="json")
    if values["sweep"] and values["sweep"]["storage"]:
        values["sweep"]["storage"] = without_passwords(values["sweep"]["storage"])
    return dump_yaml(values)


def _read(data: dict[str, Any]) -> tuple[Experiment | None, list[Said]]:
    """The experiment, or all that is wrong with the values."""
    try:
        # As JSON, because strict there still lets a list become a tuple.
        return Experiment.model_validate_json(json.dumps(data), strict=True), []
    except ValidationError as error:
        return None, explain(error.errors(), Experiment, data)


def experiment_of(arguments: Namespace) -> tuple[Experiment, Path]:
    """The experiment and the run directory that a command line names."""
    file, run = cli.locate(arguments)
    return load_experiment(file, arguments.set, Path.cwd()), run


def carried(arguments: Namespace) -> tuple[str, ...]:
    """The settings of this command that the next one needs too."""
    of_this_one = ("derive.", "run.trackers")
    return tuple(setting for setting in arguments.set if not setting.startswith(of_this_one))
