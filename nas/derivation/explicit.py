"""A layout that the user writes down."""

from model import Evidence, parse_layout
from nas.derivation.base import Derived, Request


def explicit(request: Request) -> Derived:
    """The layout of derive.layout, as letters or labels.

    Raises:
        ValueError: no layout is given, a letter is unknown, or the number of slots differs.
    """
    if request.config.layout is None:
        raise ValueError("derive.layout: method layout needs one, e.g. --set 'derive.layout=a d a'")
    layout = parse_layout(request.config.layout, request.candidates)
    return Derived(layout=layout, evidence=Evidence(method="layout"))
