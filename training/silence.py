"""What the processes beside the first one have in the place of screen and metrics: nothing."""

from collections.abc import Mapping
from typing import Any, Protocol


class Rows(Protocol):
    """Where the rows of metrics go."""

    def append(self, row: dict[str, Any]) -> None:
        """Write one row."""
        ...

    def sync(self) -> None:
        """Make the rows so far durable."""
        ...

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        ...


class Display(Protocol):
    """Where a person sees the progress."""

    def say(self, text: str) -> None:
        """One message."""
        ...

    def advance(self, step: int) -> None:
        """A step is done."""
        ...

    def train_line(self, row: dict[str, Any]) -> None:
        """Show one training row."""
        ...

    def valid_line(self, row: dict[str, Any], train_perplexity: float | None) -> None:
        """Show one validation."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class NoRows:
    """Rows that the first process writes."""

    def append(self, row: Mapping[str, Any]) -> None:
        """Write nothing."""

    def sync(self) -> None:
        """Nothing was written."""

    def rows(self) -> list[dict[str, Any]]:
        """There are none."""
        return []


class NoDisplay:
    """Progress that the first process shows."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def advance(self, step: int) -> None:
        """Show nothing."""

    def train_line(self, row: Mapping[str, Any]) -> None:
        """Show nothing."""

    def valid_line(self, row: Mapping[str, Any], train_perplexity: float | None) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was shown."""
