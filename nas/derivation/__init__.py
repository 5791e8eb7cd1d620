"""From a search, or from a rule, to a fixed layout."""

from collections.abc import Callable

from nas.derivation.argmax import argmax
from nas.derivation.base import Derived, Layout, Request
from nas.derivation.explicit import explicit
from nas.derivation.random_layout import random_layout
from nas.derivation.rules import interleaved, par, sandwich

DERIVATIONS: dict[str, Callable[[Request], Derived]] = {
    "argmax": argmax,
    "interleaved": interleaved,
    "par": par,
    "sandwich": sandwich,
    "random": random_layout,
    "layout": explicit,
}

__all__ = ["DERIVATIONS", "Derived", "Layout", "Request"]
