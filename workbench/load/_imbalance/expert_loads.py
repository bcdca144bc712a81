"""How much was routed to each expert of a mixture-of-experts model, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.errors import LoadError
from workbench.load._files import tables as plain
from workbench.load._files.findings import guarded
from workbench.tables import EXPERT_LOADS

_NAMES = {name: name for name in EXPERT_LOADS.columns}
_MOST = 50_000_000
_LAYER = re.compile(r"layer|unnamed: 0|", re.IGNORECASE)  # pandas writes its index unnamed
_EXPERT = re.compile(r"(?:expert|e)?[ _-]?([0-9]+)", re.IGNORECASE)


def expert_loads(
    path: str | Path, *, columns: Mapping[str, str] | None = None, header: bool | None = None
) -> pd.DataFrame:
    """Read expert loads, as a matrix or one row per layer and expert.

    Parameters
    ----------
    path
        A CSV file (by its ending) or a Parquet file. Either with columns for layer, expert
        and load, or a matrix with one row per layer and one column per expert. Columns of
        a matrix with names are called after their expert (``3``, ``e3``, ``expert_3``); a
        first column ``layer``, or without a name, tells the layers.
    columns
        Names in the file of columns for layer, expert and load, by name in the table:
        ``{"load_count": "tokens"}``.
    header
        Whether the first line of a matrix in CSV names its columns. Found out from the
        file, unless that line counts experts (0, 1, 2, ... or 1, 2, 3, ... in any order):
        then it could be either.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.EXPERT_LOADS`: ``layer``, ``expert``, ``load_count``, by
        layer and expert. Hand it to ``analyze.load_imbalance`` with ``by="layer"``.
        In a file with one row per layer and expert, an expert that other layers have and
        this one does not gets a load of 0; ``attrs["filled_count"]`` counts these.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file or a number cannot be read, an expert occurs twice in a layer, a column
        of a matrix is not called after an expert, or it cannot be told whether the first
        line is a header.
    """
    path = Path(path)
    frame = plain.read(path)
    names = {**_NAMES, **(columns or {})}
    filled = 0
    if columns or {names["expert"], names["load_count"]} <= set(frame.columns):
        named = plain.renamed(frame, path, names=_NAMES, columns=columns)
        table, filled = _filled(_long(named, path), path)
    else:
        plain.refuse_cut_row(frame, path, frame.columns)
        is_bare = plain.is_csv(path) and not _has_header(frame, path, header)
        with guarded(str(path), "a matrix"):
            if is_bare:
                table = _unrolled(plain.lines(path), path)
            else:
                table = _unrolled(*_experts(frame, path))
    table = EXPERT_LOADS.cast(table).sort_values(["layer", "expert"], ignore_index=True)
    table.attrs = {"filled_count": filled, "left_out": plain.left_out(path)}
    return EXPERT_LOADS.check(table, str(path))


def _long(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    table = pd.DataFrame({name: plain.whole(frame[name], path) for name in ("layer", "expert")})
    table["load_count"] = plain.numbers(frame["load_count"], path)
    twice = table.duplicated(["layer", "expert"])
    if twice.any():
        row = int(twice.to_numpy().argmax())
        layer, expert = table.loc[row, ["layer", "expert"]].astype(int)
        msg = f"{path}: expert {expert} of layer {layer} occurs again in row {row:,}"
        raise LoadError(msg)
    return table


def _filled(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, int]:
    """Add the experts that other layers have, with a load of 0, and count them.

    Who writes down routed tokens writes nothing for an expert that got none.
    """
    layers, experts = table["layer"].nunique(), table["expert"].nunique()
    if layers * experts > _MOST:
        msg = f"{path}: {layers:,} layers of {experts:,} experts are more than {_MOST:,} loads"
        raise LoadError(msg)
    every = pd.MultiIndex.from_product(
        [table["layer"].unique(), table["expert"].unique()], names=["layer", "expert"]
    )
    full = table.set_index(["layer", "expert"]).reindex(every, fill_value=0.0).reset_index()
    return full, len(full) - len(table)


def _has_header(frame: pd.DataFrame, path: Path, header: bool | None) -> bool:
    """Return whether the first line of a matrix holds names; refuse what could be either."""
    if header is not None:
        return header
    cells = [name for name in frame.columns if name]
    first = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce")
    if first.isna().any():
        return True
    counts = sorted(first.tolist()) in ([*range(len(first))], [*range(1, len(first) + 1)])
    if counts and frame.columns[0] == "" and len(cells) == len(frame.columns) - 1:
        # As pandas writes a frame: its index counts, too.
        index = pd.to_numeric(frame.iloc[:, 0], errors="coerce")
        counts = index.tolist() != list(range(len(frame)))
        if not counts:
            return True
    if counts and len(first) > 1:
        msg = (
            f"{path}: the first line counts ({', '.join(cells[:3])}, ...): names of columns, or "
            "loads? Say header=True or header=False"
        )
        raise LoadError(msg)
    return False


def _experts(
    frame: pd.DataFrame, path: Path
) -> tuple[pd.DataFrame, Path, NDArray[np.int64] | None, list[int]]:
    """Tell the layers and the experts of a matrix from the names of its columns."""
    names = [str(name).strip() for name in frame.columns]
    layers = None
    if names and _LAYER.fullmatch(names[0]):
        layers = plain.whole(frame.iloc[:, 0], path).to_numpy()
        frame, names = frame.iloc[:, 1:], names[1:]
        if len(np.unique(layers)) < len(layers):
            msg = f"{path}: a layer occurs twice; a matrix has one row per layer"
            raise LoadError(msg)
    matches = [_EXPERT.fullmatch(name) for name in names]
    if foreign := [name for name, match in zip(names, matches, strict=True) if not match]:
        msg = (
            f"{path}: columns {foreign[:5]} are not called after an expert (3, e3 or expert_3); "
            "rename them or leave them out"
        )
        raise LoadError(msg)
    experts = [int(match[1]) for match in matches if match]
    if len(set(experts)) < len(experts):
        twice = next(number for number in experts if experts.count(number) > 1)
        msg = f"{path}: expert {twice} has two columns; a matrix has one per expert"
        raise LoadError(msg)
    return frame, path, layers, experts


def _unrolled(
    matrix: pd.DataFrame,
    path: Path,
    layers: NDArray[np.int64] | None = None,
    experts: list[int] | None = None,
) -> pd.DataFrame:
    """Turn one row per layer and one column per expert into one row per both."""
    if matrix.empty:
        msg = f"{path}: a matrix of {matrix.shape[0]} layers and {matrix.shape[1]} experts is empty"
        raise LoadError(msg)
    layers = np.arange(len(matrix)) if layers is None else layers
    experts = list(range(matrix.shape[1])) if experts is None else experts
    loads = [plain.numbers(matrix.iloc[:, at], path).to_numpy() for at in range(matrix.shape[1])]
    of_layer, of_expert = np.tile(layers, len(loads)), np.repeat(experts, len(layers))
    counts = np.concatenate(loads)
    return pd.DataFrame({"layer": of_layer, "expert": of_expert, "load_count": counts})
