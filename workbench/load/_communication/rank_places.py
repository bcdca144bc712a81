"""Where the ranks of a job run: nodes, rails and switches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.tables import RANK_PLACES

_NAMES = {"rank": "rank", "node": "node", "rail": "rail", "switch": "switch"}


def rank_places(path: str | Path, *, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read on which node each rank of a job runs, and where that hangs in the network.

    Parameters
    ----------
    path
        A CSV or Parquet file with a row per rank: ``rank``, ``node``, and perhaps ``rail`` (the
        adapter of the rank, counted alike on every node) and ``switch`` (leaf switch or pod of
        the node).
    columns
        Names of columns in the file that differ, e.g. ``{"node": "hostname"}``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.RANK_PLACES`, in order of rank: ``rank``, ``node``, ``rail``,
        ``switch``, ``basis``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, a rank or rail is not a whole number, a node has no name or a switch
        is told for some of its ranks only, a rank occurs twice, or a node hangs on two switches.
    """
    path = Path(path)
    rows = plain.read(path).rename(columns=lambda name: str(name).strip())
    read = plain.renamed(rows, path, names=_NAMES, columns=columns, optional=("rail", "switch"))
    table = pd.DataFrame({"rank": plain.whole(read["rank"], path, most=(1 << 31) - 1)})
    table["node"] = plain.texts(read["node"])
    plain.refuse_unless(read["node"], table["node"].notna().to_numpy(), path, "a name of a node")
    table = table.assign(switch=None, basis="topology file")
    table["rail"] = pd.array([None] * len(table), dtype="Int32")
    if "rail" in read and read["rail"].notna().any():
        table["rail"] = plain.whole(read["rail"], path, most=(1 << 31) - 1)
    if "switch" in read:
        table["switch"] = plain.texts(read["switch"])
    if twice := sorted(set(table.loc[table["rank"].duplicated(), "rank"].tolist())):
        msg = f"{path}: ranks {twice[:8]} occur twice; list every rank of one job once"
        raise LoadError(msg)
    switches = table.groupby("node")["switch"].nunique(dropna=False)
    if torn := switches.index[switches > 1].tolist():
        msg = f"{path}: nodes {torn[:8]} hang on several switches, or on one for some ranks only"
        raise LoadError(msg)
    return RANK_PLACES.of(
        table.sort_values("rank", ignore_index=True), attrs={"left_out": plain.left_out(path)}
    )
