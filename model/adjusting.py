"""A trained model with other values of the options that no weight depends on."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from model.architecture import Architecture
from model.blocks import Candidate


def adjustable_options(architecture: Architecture) -> dict[str, dict[str, Any]]:
    """What can be changed after training and its values, by label.

    A label whose slots differ stands once for each set of values, as `label`, `label (2)` and so
    on; labels without such options are absent.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for candidate in architecture.slots:
        options = {
            name: getattr(candidate, name)
            for name in type(candidate).model_fields
            if name in candidate.adjustable
        }
        sets = found.setdefault(candidate.label, [])
        if options and options not in sets:
            sets.append(options)
    return {
        label if number == 1 else f"{label} ({number})": options
        for label, sets in found.items()
        for number, options in enumerate(sets, 1)
    }


def adjusted(architecture: Architecture, options: Mapping[str, int | None]) -> Architecture:
    """The same model with these options in every slot that has them; costs no longer hold.

    Args:
        architecture: of the trained model.
        options: for example {"memory": 512, "clamp": 128}.

    Raises:
        ValueError: no slot has such an option, or a value is out of bounds.
    """
    for name in options:
        if not any(name in candidate.adjustable for candidate in architecture.slots):
            raise ValueError(
                f"{name}: no slot of {architecture.name} (layout {architecture.letters()}) has it"
            )
    if not options:
        return architecture
    slots = tuple(_with(candidate, options) for candidate in architecture.slots)
    return architecture.model_copy(update={"slots": slots, "costs": None})


def _with(candidate: Candidate, options: Mapping[str, int | None]) -> Candidate:
    taken = {name: value for name, value in options.items() if name in candidate.adjustable}
    try:
        return type(candidate).model_validate({**candidate.model_dump(), **taken}, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        message = problem["msg"].removeprefix("Input should ")
        raise ValueError(
            f"{problem['loc'][0]}: must {message}, found {problem['input']!r:.60}"
        ) from None
