"""What a search's settings are refused for."""

import re
from itertools import product

import pytest

from nas.search.config import SearchConfig, check_schedules
from nas.search.plan import SearchPlan

SAID = re.compile(r"alpha\.(warmup_fraction|every): .* alpha (?:would move )?(in no step|once)")
TIMES = {"in no step": 0, "once": 1}


def config_of(**options: object) -> SearchConfig:
    return SearchConfig.model_validate(
        {"epochs": 1, "optimiser": {"warmup_steps": 0}, **options}, strict=False
    )


def refusal(config: SearchConfig, steps: int) -> str:
    """What a search of so many steps is refused for; nothing where it is not."""
    try:
        check_schedules(config, steps)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_as_often_as_a_refusal_says_alpha_would_move(schedule: str) -> None:
    refused = set()
    for steps, warmup_fraction, every in product(
        range(1, 13), (0.0, 0.25, 0.5, 0.9, 0.99), range(1, 6)
    ):
        config = config_of(
            alpha={"warmup_fraction": warmup_fraction, "every": every, "schedule": schedule}
        )
        plan = SearchPlan(config, steps, memory=0, segment=8)
        due = [step for step in range(steps) if plan.alpha_due(step)]
        message = refusal(config, steps)
        assert bool(message) == (len(due) < 2)
        if message:
            said = SAID.match(message)
            assert said, message
            assert TIMES[said[2]] == sum(plan.alpha_lr(step) > 0 for step in due), message
            refused.add(said.groups())
    assert refused == {
        ("warmup_fraction", "in no step"),
        ("warmup_fraction", "once"),
        ("every", "once"),
    }


def test_where_alpha_does_not_learn_nothing_is_said_of_its_steps() -> None:
    assert not refusal(config_of(estimator="spos"), steps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": {"schedule": "constant", "end": 0.1}}, "end: has no effect with .*, found 0.1"),
        ({"tau": {"stairs": 3}}, "stairs: has no effect with schedule linear"),
        ({"estimator": "spos", "alpha": {"data": "split"}}, "alpha.data: needs .*spos"),
        ({"alpha": {"estimator": "spos"}}, "Input should be 'soft', 'straight_through'"),
        ({"estimator": "spos", "alpha": {"data": "shared", "estimator": "soft"}}, "one backward"),
        (
            {"estimator": "single_path", "alpha": {"data": "shared", "estimator": "soft"}},
            "alpha.estimator: soft is not .*single_path.*next_batch",
        ),
    ],
)
def test_what_cannot_be_or_would_have_no_effect_is_refused(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SearchConfig.model_validate({"steps": 20, "optimiser": {"warmup_steps": 2}, **options})
