"""What can be read of any input, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._findings import quality_frame
from workbench.load._power_part import Unit
from workbench.load.fleet import NOT_THERE, fleet
from workbench.load.injections import injections
from workbench.load.kinds import kinds_of
from workbench.load.traces import traces

_LOGS = {"failure logs", "job logs", "power logs"}
_NOT_CHECKED = "logs beside the traces that cannot be read as they are"


def quality(
    path: str | Path, *, tz: str | None = None, unit: Unit | None = None, progress: bool = True
) -> pd.DataFrame:
    """Read traces, logs or injection results and report on their state, not on their content.

    Logs beside traces are checked, too; if they cannot be read (because ``tz`` is not given,
    say), that is a finding.

    Parameters
    ----------
    path
        A file, directory or archive.
    tz
        Time zone of power and failure logs whose stamps have none.
    unit
        Unit of columns of power that name none, e.g. ``"W"``.
    progress
        Whether to show a progress bar if reading takes more than a second.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.QUALITY`: ``source``, ``finding``, ``what``,
        ``count``, ``where``. Findings other than
        :data:`workbench.tables.HARMLESS` need a look.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing can be read, or a log needs ``tz`` or ``unit``; names file, place and remedy.
    """
    kinds = kinds_of(path)
    if kinds == {"injections"}:
        return injections(path, progress=progress).quality
    if not kinds & _LOGS or kinds - _LOGS - {"traces"}:
        return traces(path, progress=progress).quality
    try:
        found = fleet(path, tz=tz, unit=unit, progress=progress).quality
    except LoadError as error:
        if kinds <= _LOGS:
            raise
        of_logs = quality_frame([(str(path), "left out", f"{_NOT_CHECKED}: {error}", 1, None)])
        return pd.concat([traces(path, progress=progress).quality, of_logs], ignore_index=True)
    # A file of one kind lacks nothing because it is not of the others.
    before, after = NOT_THERE.split("{}")
    absent = found["what"].str.startswith(before) & found["what"].str.endswith(after)
    return found[~absent].reset_index(drop=True)
