"""Kernel times measured beforehand: attention of one document, everything else of one batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.tables import as_floats, read_csv, refuse_unless, without_cut_row
from workbench.tables import ATTENTION_PROFILE, LINEAR_PROFILE, Table

_NS_PER_MS = 1_000_000
# Name in the table -> names in DistCA's and Megatron's profiles.
_ATTENTION: Mapping[str, tuple[str, ...]] = {
    "length_tokens": ("L", "seq_len"),
    "tensor_parallel": ("tp",),
    "context_parallel": ("cp",),
    "dur_ns": ("duration_per_doc", "latency(ms)"),
}
_NOT_PER_LAYER = ("emb",)


def attention_profile(path: str | Path) -> pd.DataFrame:
    """Read measured times of the attention kernel.

    Parameters
    ----------
    path
        CSV file with the columns of hao-ai-lab/DistCA: ``L,cp,tp,duration_per_doc`` or
        ``seq_len,latency(ms),tp,cp``; times in milliseconds.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ATTENTION_PROFILE`: ``length_tokens``,
        ``tensor_parallel``, ``context_parallel``, ``dur_ns``. ``attrs["left_out"]`` counts a
        last line without a line end, which may be cut.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, or a value is not a number above 0.

    Notes
    -----
    Files differ in the number of heads they were taken with, which some do not record.
    """
    frame, left_out = _read(path)
    columns = {
        name: next((alias for alias in names if alias in frame), None)
        for name, names in _ATTENTION.items()
    }
    if missing := [" or ".join(_ATTENTION[name]) for name, column in columns.items() if not column]:
        msg = f"{path}: no column {missing}; it has {list(frame.columns)}"
        raise LoadError(msg)
    table = pd.DataFrame({name: frame[column] for name, column in columns.items()})
    return _checked(table, ATTENTION_PROFILE, path, left_out)


def linear_profile(path: str | Path, *, embedding_size: int | None = None) -> pd.DataFrame:
    """Read measured times of all operators of a layer but attention.

    Parameters
    ----------
    path
        CSV file with the columns of microsoft/vidur's ``mlp.csv``: ``num_tokens``,
        ``num_tensor_parallel_workers`` and ``time_stats.<operator>.mean`` in milliseconds.
    embedding_size
        Model width (``n_embd``) to keep, if the file holds several.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LINEAR_PROFILE`: ``token_count``, ``tensor_parallel``,
        ``dur_ns``, the sum over operators; the embedding is not part of a layer.
        ``attrs["left_out"]`` as of :func:`attention_profile`.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a column is missing, the file holds several models and none is chosen, or a value
        is not a number above 0.
    """
    frame, left_out = _read(path)
    means = [n for n in map(str, frame) if n.startswith("time_stats.") and n.endswith(".mean")]
    times = [name for name in means if name.split(".")[1] not in _NOT_PER_LAYER]
    needed = ("num_tokens", "num_tensor_parallel_workers")
    missing = [name for name in needed if name not in frame]
    if missing or not times:
        wanted = [*missing, *([] if times else ["time_stats.<operator>.mean"])]
        msg = f"{path}: no column {wanted}; it has {list(frame.columns)}"
        raise LoadError(msg)
    if "n_embd" in frame:
        sizes = sorted(frame["n_embd"].unique().tolist())
        if embedding_size is None and len(sizes) > 1:
            msg = f"{path}: holds models of width {sizes}; choose one with embedding_size="
            raise LoadError(msg)
        if embedding_size is not None:
            frame = frame[frame["n_embd"] == embedding_size].reset_index(drop=True)
        if frame.empty:
            msg = f"{path}: no model of width {embedding_size}; it holds {sizes}"
            raise LoadError(msg)
    numbers = frame[times].apply(pd.to_numeric, errors="coerce")
    columns = {"token_count": needed[0], "tensor_parallel": needed[1]}
    table = pd.DataFrame({name: frame[column] for name, column in columns.items()})
    table["dur_ns"] = numbers.sum(axis=1, skipna=False)
    return _checked(table, LINEAR_PROFILE, path, left_out)


def _read(path: str | Path) -> tuple[pd.DataFrame, dict[str, int]]:
    frame = read_csv(path)
    frame, left_out = without_cut_row(frame, Path(path), [str(name) for name in frame])
    if frame.empty:
        msg = f"{path}: holds no measurements"
        raise LoadError(msg)
    return frame, left_out


def _checked(
    table: pd.DataFrame, fits: Table, path: str | Path, left_out: dict[str, int]
) -> pd.DataFrame:
    for name, column in fits.columns.items():
        numbers = as_floats(table[name])
        is_integer = column.dtype == "int64"
        good = np.isfinite(numbers) & (numbers > 0)
        if is_integer:
            good &= numbers == np.floor(numbers)
        kind = "a whole number" if is_integer else "a number"
        refuse_unless(table[name], good, path, f"{kind} above 0")
        table[name] = numbers * (_NS_PER_MS if name == "dur_ns" else 1)
    table = fits.cast(table)
    table.attrs["left_out"] = left_out
    return fits.check(table, str(path))
