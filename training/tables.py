"""Rows as CSV text."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_of(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """A header and one line for each row; what is None stays empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
