"""Other values of what no weight depends on, in every slot that has it and in no other."""

import pytest

from model import Architecture, adjustable_options, adjusted
from tests.model.test_architecture import architecture
from tests.model.tiny import candidate


def test_every_slot_that_has_the_option_takes_it_and_the_rest_stays() -> None:
    made = architecture("a d i wide near")
    other = adjusted(made, {"memory": 9, "clamp": 2})
    assert [slot.model_dump() for slot in other.slots] == [
        {**slot.model_dump(), "memory": 9, "clamp": 2}
        if slot.kind == "attention"
        else slot.model_dump()
        for slot in made.slots
    ]
    assert other.costs is None
    assert other.model_dump(exclude={"slots", "costs"}) == made.model_dump(
        exclude={"slots", "costs"}
    )
    assert Architecture.from_json(other.to_json(), "x") == other
    assert adjusted(made, {}) is made


def test_none_is_a_value() -> None:
    other = adjusted(architecture("near"), {"window": None})
    assert other.slots[0].model_dump()["window"] is None


def test_what_can_be_changed_is_told_by_label() -> None:
    assert adjustable_options(architecture("a d i wide near")) == {
        "attention": {"window": None, "memory": 6, "clamp": None},
        "near": {"window": 3, "memory": 6, "clamp": None},
    }
    assert adjustable_options(architecture("d i")) == {}


def test_slots_of_one_label_that_differ_are_told_apart() -> None:
    made = architecture("a d near")
    short = adjusted(made, {"memory": 2}).slots[0]
    mixed = made.model_copy(update={"slots": (*made.slots, short, short)})
    assert adjustable_options(mixed) == {
        "attention": {"window": None, "memory": 6, "clamp": None},
        "attention (2)": {"window": None, "memory": 2, "clamp": None},
        "near": {"window": 3, "memory": 6, "clamp": None},
    }


@pytest.mark.parametrize(
    ("layout", "options", "message"),
    [
        ("d i", {"memory": 3}, r"memory: no slot of argmax \(layout d i\) has it"),
        ("a d", {"d_ffn": 3}, r"d_ffn: no slot of argmax \(layout a d\) has it"),
        ("a d", {"memory": -1}, "memory: must be greater than or equal to 0, found -1"),
        (
            "a d",
            {"memory": 2**20 + 1},
            "memory: must be less than or equal to 1048576, found 10485",
        ),
        ("a d", {"memory": None}, "memory: must be a valid integer, found None"),
        ("a d", {"window": 0}, "window: must be greater than or equal to 1, found 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    layout: str, options: dict[str, int | None], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        adjusted(architecture(layout), options)


def test_only_the_right_type_is_taken() -> None:
    with pytest.raises(ValueError, match="memory: must be a valid integer, found '3'"):
        adjusted(architecture("a"), {"memory": "3"})  # type: ignore[dict-item]


def test_a_candidate_keeps_its_label() -> None:
    assert adjusted(architecture("near"), {"memory": 1}).slots[0] == candidate(
        "attention", label="near", window=3, memory=1
    )
