"""What can be read of any input, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from workbench.load.injections import injections
from workbench.load.kinds import kinds_of
from workbench.load.traces import traces


def quality(path: str | Path, *, progress: bool = True) -> pd.DataFrame:
    """Read traces or injection results and report on their state, not on their content.

    Parameters
    ----------
    path
        A file, directory or archive.
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
        If nothing can be read; names file, place and remedy.
    """
    if kinds_of(path) == {"injections"}:
        return injections(path, progress=progress).quality
    return traces(path, progress=progress).quality
