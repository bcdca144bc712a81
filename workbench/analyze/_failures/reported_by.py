"""Whom to believe of several who reported the same failures."""

from __future__ import annotations

import pandas as pd

from workbench.analyze._failures.failure_rows import LEFT_OUT, counted, reporters
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES


def reported_by(failures: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the failures that one kind of reporter tells of.

    A GPU that falls off the bus is told by the kernel, by the scheduler and by the job. Rates
    and shares count every row, so they need one of them.

    Parameters
    ----------
    failures
        Table :data:`workbench.tables.FAILURES`.
    kind
        Reporter to believe: ``"kernel"`` (Xid, SXid and amdgpu errors), or a kind such as
        ``"slurm"``; by default the one with the most failures that count (informational,
        planned and follow-on rows do not).

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAILURES`. ``attrs["left_out"]`` counts the rows of
        other reporters, by kind.

    Raises
    ------
    WorkbenchError
        If nobody of that kind reported.

    Examples
    --------
    >>> len(reported_by(FAILURES.empty()))
    0
    """
    FAILURES.check(failures)
    if failures.empty:
        return failures
    who = reporters(failures["kind"])
    if kind is None:
        rows = counted(failures, LEFT_OUT)[0]
        kind = str(who[rows.index if len(rows) else who.index].value_counts().index[0])
    chosen = (who == kind) | (failures["kind"] == kind)
    if not chosen.any():
        msg = f"no failure was reported by {kind!r}; there are {who.value_counts().to_dict()}"
        raise WorkbenchError(msg)
    kept = failures[chosen].reset_index(drop=True)
    kept.attrs["left_out"] = {
        f"reported by {other}": int(n) for other, n in who[~chosen].value_counts().items()
    }
    return FAILURES.check(kept)
