"""Fixtures of the sweeps' tests."""

from tests.postgres_server import postgres, postgres_session

__all__ = ["postgres", "postgres_session"]
