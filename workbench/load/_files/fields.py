"""Whether a CSV file has rows as wide as its header, and a last one that is whole."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from workbench.errors import LoadError


def refuse_longer_rows(text: str, path: Path, *, separator: str = ",") -> None:
    """Raise if the first row has more fields than the header.

    pandas would take the first field of every row for a label, and shift the others by one
    column. A later row that is longer makes pandas raise by itself.
    """
    rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row)
    header, first = next(rows, []), next(rows, [])
    if len(first) > len(header):
        msg = (
            f"{path}: rows have more fields than the header {header[:8]}, e.g. {first[:8]}; "
            "numbers with thousands separators need quotes, and a separator at the end a name"
        )
        raise LoadError(msg)
