"""A layout that the user writes down."""

from model import Evidence, parse_layout
from nas.derivation.base import Derived, Request


def explicit(request: Request) -> Derived:
    """The layout of derive.layout, as letters or labels.

    Raises:
        ValueError: a letter is unknown, or the number of slots differs.
    """
    assert request.config.layout is not None
    layout = parse_layout(request.config.layout, request.candidates)
    if len(layout) != request.slots:
        raise ValueError(
            f"layout: {request.config.layout!r} has {len(layout)} slots, model.slots is "
            f"{request.slots}; give as many, or --set model.slots={len(layout)}"
        )
    return Derived(layout=layout, evidence=Evidence(method="layout"))
