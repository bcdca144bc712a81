"""Small tables by hand: only the columns a test is about are spelled out."""

import pandas as pd
import pytest

HOSTILE = "<script>alert(1)</script> $x$ %{y} &amp; <b>\n" + "very_long_" * 60
FILLERS = {"str": "", "bool": False, "boolean": True, "category": "?"}


def build(table, rows):
    """Make a frame of a table from dictionaries; what they leave out is missing, or 0."""
    frame = pd.DataFrame(rows, columns=list(table.columns))
    for name, column in table.columns.items():
        if not column.nullable:
            filler = FILLERS.get(column.dtype, column.lower or 0)
            frame[name] = frame[name].astype(object).where(frame[name].notna(), filler)
        values = frame[name].astype(object).where(frame[name].notna(), None)
        frame[name] = pd.Series(values.tolist(), dtype=column.dtype, index=frame.index)
    return table.check(frame)


@pytest.fixture(name="build", scope="session")
def build_():
    return build
