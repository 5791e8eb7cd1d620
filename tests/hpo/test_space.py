"""Values and params of a space go to and fro; conditions hold; the grid is complete."""

import itertools

import optuna
import pytest
from hypothesis import given, settings, strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from hpo.config import ParameterConfig
from hpo.space import Space

LISTS = [["attention", "dense"], ["dense", {"kind": "dense", "d_ffn": 8}], "[1]", None, 3]


def parameter(**options):
    return ParameterConfig(**options)


def tau_space():
    return Space(
        {
            "tau.schedule": parameter(choices=("linear", "step")),
            "tau.end": parameter(low=0.05, high=1, log=True),
            "slots": parameter(low=4, high=8, step=2),
            "tau.stairs": parameter(low=2, high=6, when={"tau.schedule": "step", "slots": [4, 8]}),
            "blocks": parameter(choices=tuple(LISTS)),
            "fine": parameter(low=0, high=0.3, step=0.1),
            "deep": parameter(choices=(True, False), when={"tau.stairs": [2, 3]}),
        },
        {"tau.stairs", "slots"},
    )


def test_the_schema_decides_between_integers_and_numbers():
    found = tau_space().distributions
    assert found["tau.stairs"] == IntDistribution(2, 6)
    assert found["slots"] == IntDistribution(4, 8, step=2)
    assert found["tau.end"] == FloatDistribution(0.05, 1.0, log=True)
    assert found["fine"] == FloatDistribution(0.0, 0.3, step=0.1)
    assert isinstance(found["blocks"], CategoricalDistribution)
    ints = Space({"x": parameter(low=1, high=4)}, set()).distributions["x"]
    assert ints == FloatDistribution(1.0, 4.0)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_values_and_params_go_to_and_fro_and_conditions_hold(seed, by_optuna):
    space = tau_space()
    if by_optuna:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        trial = study.ask()
        values = space.suggest(trial)
        assert trial.params == space.params(values)
    else:
        values = space.draw(optuna.samplers.RandomSampler(seed=seed))
    params = space.params(values)
    assert space.values(params) == values
    assert all(
        isinstance(p, str | int | float | bool | type(None)) for p in params.values()
    )  # what Optuna can store
    assert set(values) | set(space.inactive(values)) == set(space.keys)
    assert not set(values) & set(space.inactive(values))
    assert ("tau.stairs" in values) == (values["tau.schedule"] == "step" and values["slots"] != 6)
    assert ("deep" in values) == (values.get("tau.stairs") in (2, 3))
    assert type(values["slots"]) is int
    assert values["slots"] in (4, 6, 8)
    assert type(values["tau.end"]) is float
    assert 0.05 <= values["tau.end"] <= 1
    assert values["fine"] in (0.0, 0.1, 0.2, 0.3)
    assert values["blocks"] in LISTS


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 40), st.booleans())
def test_draws_reach_every_integer_of_a_range(low, width, log):
    high = low + min(width, 6)
    space = Space({"n": parameter(low=low, high=high, log=log)}, {"n"})
    source = optuna.samplers.RandomSampler(seed=0)
    assert {space.draw(source)["n"] for _ in range(600)} == set(range(low, high + 1))


def test_the_grid_is_every_combination_that_the_conditions_allow():
    space = Space(
        {
            "a": parameter(choices=("x", "y", "z")),
            "b": parameter(choices=(1, 2), when={"a": ["y", "z"]}),
            "c": parameter(low=0, high=0.2, step=0.1),
            "d": parameter(choices=([1], [2]), when={"b": 2}),
        },
        set(),
    )
    slow = []
    for a, b, c, d in itertools.product("xyz", (1, 2), (0.0, 0.1, 0.2), ("[1]", "[2]")):
        point = {"a": a, "c": c}
        point |= {"b": b} if a in "yz" else {}
        point |= {"d": d} if a in "yz" and b == 2 else {}
        slow += [point] if point not in slow else []
    grid = space.grid()
    key = lambda point: sorted((k, str(v)) for k, v in point.items())  # noqa: E731
    assert sorted(grid, key=key) == sorted(slow, key=key)
    assert all(space.params(space.values(point)) == point for point in grid)


def test_the_edges_of_a_space_have_every_end_and_choice_with_its_condition():
    space = tau_space()
    found = list(space.edges(optuna.samplers.RandomSampler(seed=0)))
    for key, values in {"tau.end": (0.05, 1), "tau.stairs": (2, 6), "deep": (True, False)}.items():
        assert all(any(draw.get(key) == value for draw in found) for value in values)
    assert all(
        space.params(space.values(space.params(draw))) == space.params(draw) for draw in found
    )


def test_a_space_knows_its_values():
    held = [("tau.end", 1), ("slots", 6), ("blocks", None)]
    others = [
        ("tau.end", 2.0),
        ("tau.end", "0.1"),
        ("tau.end", None),
        ("slots", 5),
        ("slots", True),
    ]
    others += [("tau.schedule", "ste"), ("fine", 0.15)]
    assert [each for each in held + others if tau_space().holds(*each)] == held


def test_a_range_of_integers_has_integer_ends():
    faults = Space({"a": parameter(low=0.5, high=2)}, {"a"}).faults()
    assert faults == [(("a", "low"), "expected an integer, as a takes, found 0.5")]


@pytest.mark.parametrize("wanted", [0, 0.3, [-0.2, 0.3]])
def test_a_condition_holds_on_the_steps_of_a_range_of_fractions(wanted):
    """Steps of 0.1 from -0.3 come to 5.6e-17 and 0.30000000000000004."""
    space = Space(
        {
            "end": parameter(low=-0.3, high=0.3, step=0.1),
            "rate": parameter(choices=(1, 2), when={"end": wanted}),
        },
        set(),
    )
    held = [point["end"] for point in space.grid() if "rate" in point]
    values = wanted if isinstance(wanted, list) else [wanted]
    assert held == [value for value in values for _ in (1, 2)]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [space.suggest(study.ask()) for _ in range(60)]
    assert {one["end"] for one in drawn if "rate" in one} == set(values)
    assert {one["end"] for one in drawn if "rate" not in one}.isdisjoint(values)
