"""Numbers that others printed: the tables in ``data/published``."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd

from workbench.errors import DatasetError


def published(name: str) -> list[dict[str, str]]:
    """Read one table of printed numbers, every cell as the text it was printed as."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_bundled", package.parent / "data"):
        path = folder / "published" / f"{name}.csv"
        if path.is_file():
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
            return [dict(zip(table.columns, row, strict=True)) for row in table.to_numpy()]
    msg = f"{package}: the printed numbers {name}.csv are missing; install ai-infra-workbench again"
    raise DatasetError(msg)


def printed_ns(row: dict[str, str], *names: str) -> Iterator[tuple[str, int]]:
    """Give the microseconds of a row as exact nanoseconds; what was not printed is left out."""
    for name in names:
        if text := row[f"{name}_us"]:
            nanoseconds = Decimal(text) * 1000
            if nanoseconds != int(nanoseconds):
                msg = f"{name}_us is {text}, which is no whole number of nanoseconds"
                raise ValueError(msg)
            yield name, int(nanoseconds)
