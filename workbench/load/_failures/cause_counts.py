"""How many failures each cause explains, as somebody counted or printed them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.tables import CAUSE_COUNTS

_NAMES = {name: name for name in CAUSE_COUNTS.columns}


def cause_counts(path: str | Path, *, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read a table of causes and counts, such as papers print.

    Parameters
    ----------
    path
        A CSV file (by its ending) or a Parquet file with columns ``cause`` and
        ``failure_count``, perhaps ``category`` and ``printed_share`` (a fraction, not per
        cent). Others are ignored. ``datasets.path("published")`` has some.
    columns
        Names that differ in the file, by name in the table: ``{"failure_count": "count"}``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAUSE_COUNTS`: ``cause``, ``category``,
        ``failure_count``, ``printed_share``, in the order of the file.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, a count is not a whole number, a printed share is not
        between 0 and 1, or a cause has no name or occurs twice.

    Examples
    --------
    >>> from workbench import datasets
    >>> causes = cause_counts(datasets.path("published") / "causes_llama3.csv")
    >>> int(causes["failure_count"].sum())
    419
    """
    path = Path(path)
    frame = plain.renamed(
        plain.read(path), path, names=_NAMES, columns=columns,
        optional=("category", "printed_share"),
    )  # fmt: skip
    causes = frame["cause"].astype(object).where(frame["cause"].notna(), "").astype(str).str.strip()
    _refuse_unnamed(causes, path)
    no_category = pd.Series(pd.NA, index=frame.index)
    table = pd.DataFrame({
        "cause": causes, "category": frame.get("category", no_category),
        "failure_count": plain.whole(frame["failure_count"], path),
        "printed_share": _printed(frame, path),
    })  # fmt: skip
    table = CAUSE_COUNTS.cast(table)
    table.attrs["left_out"] = plain.left_out(path)
    return CAUSE_COUNTS.check(table, str(path))


def _refuse_unnamed(causes: pd.Series, path: Path) -> None:
    bad = (causes == "") | causes.duplicated()
    if bad.any():
        row = int(bad.to_numpy().argmax())
        problem = f"{causes[row]!r} occurs again" if causes[row] else "no cause is named"
        msg = f"{path}: row {row:,}: {problem}; every cause has one row"
        raise LoadError(msg)


def _printed(frame: pd.DataFrame, path: Path) -> pd.Series:
    """Return the printed shares; an empty cell is one that was not printed."""
    shares = pd.Series(pd.NA, index=frame.index, dtype="Float64")
    if "printed_share" not in frame:
        return shares
    cells = frame["printed_share"].dropna()
    values = plain.numbers(cells.reset_index(drop=True), path)
    if (values > 1).any():
        row = cells.index[int((values > 1).to_numpy().argmax())]
        msg = (
            f"{path}: row {row:,}: printed_share is {cells[row]}, which is above 1; write 30.1 % "
            "as 0.301"
        )
        raise LoadError(msg)
    # Causes without a printed share stay unknown.
    shares[cells.index] = values.to_numpy()
    return shares
