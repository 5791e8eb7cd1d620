"""What rules drop of a parent: as little as the limit asks for, and what they name."""

from collections.abc import Mapping

import pytest

from model import layout_letters
from nas import dropping
from nas.baselines import NoBaseline
from nas.costs.budget import Limit
from nas.derivation.base import Choice
from nas.dropping import Dropping
from tests.nas.derivation.test_shrink import FLOPS, LESS, OWN, Made, request_of


def reads(choice: Choice) -> bool:
    """Whether an attention stays."""
    return 0 in choice


def left(
    rule: str,
    letters: str = "adadadad",
    most: float = 12.0,
    wanted: int = 1,
    options: Mapping[str, Choice] = LESS,
) -> list[str]:
    """What a rule leaves, in letters."""
    made = Made(letters, options=options)
    request = request_of(made, Limit(FLOPS, most))
    asked = Dropping(made.parent, request.allowed, reads, wanted)
    found: list[Choice] = getattr(dropping, rule)(asked)
    for choice in found:
        assert request.allowed(choice)
        more = [one for _, one in made.parent.with_more(choice)]
        assert not any(map(request.allowed, more)), "a block could be given back"
    return [layout_letters(request.networks.layout(one)).replace(" ", "") for one in found]


@pytest.mark.parametrize(
    ("rule", "most", "wanted"),
    [
        ("drop_last", 12.0, "adadiiii"),
        ("drop_last", 13.0, "adadidii"),  # a dense block of the four has room
        ("drop_first", 12.0, "iiiiadad"),
        ("drop_spread", 12.0, "idididad"),
        ("drop_spread", 15.0, "adidadid"),
        ("drop_first", 4.0, "iiiiiiai"),
    ],
)
def test_a_rule_drops_where_it_says(rule: str, most: float, wanted: str) -> None:
    assert left(rule, most=most) == [wanted]
    # No block gives way to one with less memory.
    assert left(rule, most=most, options=OWN) == [wanted]


def test_a_place_without_a_block_is_none_to_drop() -> None:
    options = {**LESS, "i": (2,)}
    assert left("drop_spread", "adiiiiad", most=6.0, options=options) == ["idiiiiai"]


def test_what_is_worth_least_alone_goes_first() -> None:
    made = Made("adadadad")
    order = sorted(range(8), key=lambda place: made.alone_L[place])
    for rule in ("drop_cosine", "drop_prices"):
        (found,) = left(rule)
        dropped = {place for place in range(8) if found[place] == "i"}
        assert dropped <= set(order[: len(dropped) + 2])
    assert left("drop_cosine") == left("drop_prices")
    made = Made("aad", options=OWN)  # less memory costs half of what nothing in the place does
    made.alone_L[:] = [0.3, 0.4, 0.2]
    asked = Dropping(made.parent, request_of(made, Limit(FLOPS, 7.0)).allowed, reads)
    assert dropping.drop_prices(asked) == [(0, 0, 2)]


def test_random_subsets_are_others_each_time_and_the_same_again() -> None:
    found = left("drop_random", wanted=4)
    assert len(set(found)) == 4
    assert left("drop_random", wanted=2) == found[:2]
    assert sorted(left("drop_random", "adad", most=5.0, wanted=50)) == ["aiii", "iiai"]


def test_the_last_block_that_reads_earlier_tokens_stays() -> None:
    """Alone the attentions are the cheapest, and would all go."""
    made = Made("adad")
    made.alone_L[:] = [0.1, 0.4, 0.2, 0.5]
    request = request_of(made, Limit(FLOPS, 6.0))
    asked = Dropping(made.parent, request.allowed, reads)
    assert dropping.drop_prices(asked) == [(2, 2, 0, 1)]
    blind = Dropping(made.parent, request.allowed, lambda choice: True)
    assert dropping.drop_prices(blind) == [(2, 1, 2, 1)]
    with pytest.raises(NoBaseline, match="no subset that reads earlier tokens"):
        dropping.drop_last(Dropping(made.parent, lambda choice: False, reads))
