"""The sweep section refuses options that have no effect or contradict each other."""

import pytest
from pydantic import ValidationError

from hpo.config import ParameterConfig, PrunerConfig, SamplerConfig, SweepConfig

SPACE = {"x": {"low": 1, "high": 4}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "low: missing"),
        ({"low": 1}, "high: missing"),
        ({"low": 1, "high": 1}, "low: must be below high 1, found 1"),
        ({"low": 0, "high": 1, "log": True}, "low: must be above 0 with log"),
        ({"low": 1, "high": 2, "log": True, "step": 1}, "step: has no effect with log"),
        ({"low": 1, "high": 4, "step": 2}, "step: steps of 2 from 1 do not meet high 4"),
        ({"low": 1, "high": 2, "step": 5}, "step: steps of 5"),
        ({"low": 1, "high": 2, "choices": (1,)}, "low: has no effect with choices"),
        ({"choices": (1,), "log": True}, "log: has no effect with choices"),
        ({"choices": (1, 2, 1)}, "choices: must differ, found 1 twice"),
        ({"choices": ([1], "[1]")}, "choices: must differ"),
    ],
)
def test_a_parameter_is_a_range_or_choices(options, words):
    with pytest.raises(ValidationError, match=words):
        ParameterConfig(**options)


def test_steps_meet_the_end_in_spite_of_rounding():
    assert ParameterConfig(low=0.05, high=0.35, step=0.1).high == 0.35


def test_options_of_another_kind_are_refused():
    others = [(SamplerConfig, "startup", kind) for kind in ("random", "grid", "nsga2")]
    others += [(SamplerConfig, "population", kind) for kind in ("tpe", "random", "grid")]
    for section, option, kind in [*others, (PrunerConfig, "min_steps", "none")]:
        with pytest.raises(ValidationError, match=f"{option}: has no effect with kind {kind}"):
            section(kind=kind, **{option: 3})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "trials: missing; sampler tpe"),
        ({"trials": 3, "sampler": {"kind": "grid"}}, "trials: sampler grid runs all"),
        ({"trials": 3, "objectives": ("flops",)}, "objectives: flops: no training is judged"),
        ({"trials": 3, "objectives": ("retrained", "retrained")}, "objectives: must differ"),
        ({"trials": 3, "seeds": (1, 1)}, "seeds: must differ, found 1 twice"),
        ({"trials": 3, "pruner": {"kind": "median"}, "objectives": ("retrained", "flops")},
         "found 1 seeds and 2 objectives"),
        ({"trials": 3, "pruner": {"kind": "median"}, "seeds": (1, 2)}, "found 2 seeds and 1"),
        ({"trials": 3, "storage": "journal"}, "expected a URL"),
        ({"trials": 3, "space": {}}, "space"),
        ({"trials": 3, "grace_s": 9}, "grace_s"),
    ],
)  # fmt: skip
def test_a_sweep_that_contradicts_itself_is_refused(options, words):
    with pytest.raises(ValidationError, match=words):
        SweepConfig(**{"space": SPACE, **options})
