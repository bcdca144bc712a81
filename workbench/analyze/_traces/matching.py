"""Which kernels of different ranks are the same collective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.operations import NOT_MATCHED, OPERATIONS
from workbench.analyze._lib.rows import MISSING, Ints, grouped

Texts: TypeAlias = NDArray[np.object_]

CONFIDENCES = ("high", "medium", "low", "none")
_HIGH, _MEDIUM, _LOW, _NONE = range(len(CONFIDENCES))
_SAME_SIZE = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")


def match(comm: pd.DataFrame, ranks: Iterable[int]) -> pd.DataFrame:
    """Say which kernels of different ranks are the same collective, by giving them one number.

    Parameters
    ----------
    comm
        One row per communication kernel, in order of rank and start, with the columns
        ``rank``, ``stream``, ``step``, ``team`` (number of the process group, -1 if not
        recorded), ``group_size``, ``seq``, ``operation``, ``size``, ``dtype`` and
        ``name``, all integers, -1 for missing.
    ranks
        Every rank that could have taken part.

    Returns
    -------
    pandas.DataFrame
        Columns ``instance`` (-1 if not matched), ``confidence`` (position in
        CONFIDENCES) and ``note`` (why not matched), in the order of ``comm``.

    Notes
    -----
    The best key at hand is taken for each process group: sequence number (high
    confidence); order inside the group (medium); with nothing recorded, order on the
    stream (low). Order is trusted as far as operation, type and size agree on all ranks
    that have the group, and on the stream only if they agree to the end.
    """
    result = pd.DataFrame(
        {"instance": MISSING, "confidence": _NONE, "note": ""}, index=comm.index
    ).astype({"note": object})
    excluded = _excluded(comm)
    result.loc[excluded != "", "note"] = excluded[excluded != ""]
    rest = comm[excluded == ""]
    recorded = rest["team"] != MISSING
    has_seq = rest["seq"].ne(MISSING).groupby(rest["team"]).transform("all") & recorded
    levels = (
        (_HIGH, rest[has_seq], _by_sequence),
        (_MEDIUM, rest[recorded & ~has_seq], _by_group_order),
        (_LOW, rest[~recorded], lambda rows: _by_stream_order(rows, set(ranks))),
    )
    first = 0
    for confidence, rows, matched_by in levels:
        if rows.empty:
            continue
        instance, note = matched_by(rows)
        found = instance != MISSING
        result.loc[rows.index, "instance"] = np.where(found, instance + first, MISSING)
        result.loc[rows.index, "confidence"] = np.where(found, confidence, _NONE)
        result.loc[rows.index, "note"] = note
        first += int(instance.max()) + 1
    return _only_groups(result, comm)


def _only_groups(result: pd.DataFrame, comm: pd.DataFrame) -> pd.DataFrame:
    """Take back what has one rank alone, or more ranks than its process group."""
    found = result["instance"] != MISSING
    ranks = comm["rank"][found].groupby(result["instance"]).transform("size")
    size = comm["group_size"][found]
    too_many, alone = (size != MISSING) & (ranks > size), ranks == 1
    for wrong, note in (
        (too_many, "more ranks than the group has members: pass process_groups"),
        (alone & (size != 1), "only one rank of the group is loaded"),
        (alone & (size == 1), "a group of one rank"),
    ):
        rows = wrong.index[wrong]
        result.loc[rows, ["instance", "confidence"]] = [MISSING, _NONE]
        result.loc[rows, "note"] = note
    return result


def _excluded(comm: pd.DataFrame) -> pd.Series:
    """Say why some rows cannot be matched whatever is recorded; empty text for the rest."""
    reasons = [f"{name}: {NOT_MATCHED[name]}" if name in NOT_MATCHED else "" for name in OPERATIONS]
    reason = pd.Series(np.array(reasons, dtype=object)[comm["operation"]], index=comm.index)
    paired = comm["operation"].eq(OPERATIONS.index("send-receive")) & comm["team"].ne(MISSING)
    return reason.mask(paired, "send-receive: its partner is not recorded")


def _by_sequence(rows: pd.DataFrame) -> tuple[Ints, Texts]:
    keys = ["team", "seq"]
    instance = _numbered(rows, [*keys, _order_within(rows, [*keys, "rank"])])
    agrees = _agrees(rows, instance)
    note = np.where(agrees, "", "ranks disagree on what has this sequence number")
    return np.where(agrees, instance, MISSING), note


def _by_group_order(rows: pd.DataFrame) -> tuple[Ints, Texts]:
    """Match by order inside the group; where that breaks, by order inside each step."""
    plain = _numbered(rows, ["team", _order_within(rows, ["team", "rank"])])
    good = pd.Series(_agrees(rows, plain) & _has_all_ranks(rows, plain), index=rows.index)
    whole = good.groupby(rows["team"]).transform("all").to_numpy()
    order = _order_within(rows, ["team", "step", "rank"])
    by_step = _numbered(rows, ["team", "step", order])
    fits = _agrees(rows, by_step) & _has_all_ranks(rows, by_step)
    broken_at = order.where(~fits, np.iinfo(np.int64).max)
    first_break = broken_at.groupby([rows["team"], rows["step"]]).transform("min")
    usable = (order < first_break).to_numpy()
    instance = np.where(whole, plain, np.where(usable, by_step + len(rows), MISSING))
    note = np.where(whole | usable, "", "ranks of the group differ from here on in the step")
    return instance, note


def _by_stream_order(rows: pd.DataFrame, ranks: set[int]) -> tuple[Ints, Texts]:
    """Match by order on the stream, if all ranks ran the same names in the same order."""
    if len(ranks) < 2:
        return np.full(len(rows), MISSING), np.full(len(rows), "only one rank is loaded", object)
    streams = rows[["rank", "stream"]].drop_duplicates().sort_values(["rank", "stream"])
    streams["lane"] = streams.groupby("rank").cumcount()
    lane = rows.merge(streams, on=["rank", "stream"], how="left")["lane"].to_numpy()
    rows = rows.assign(team=lane)
    instance = _numbered(rows, ["team", _order_within(rows, ["team", "rank"])])
    counts = rows.groupby(["team", "rank"]).size().groupby("team").agg(["size", "min", "max"])
    even = (counts["size"] == len(ranks)) & (counts["min"] == counts["max"])
    same_count = even.reindex(lane).to_numpy()
    same_name = rows.groupby(instance)["name"].transform("nunique").eq(1)
    same_order = same_name.groupby(lane).transform("all").to_numpy()
    note = np.select(
        [~same_count, ~same_order],
        [
            "no process group recorded, and ranks differ in the number of collectives",
            "no process group recorded, and ranks differ in the order of collectives",
        ],
        "",
    )
    return np.where(same_count & same_order, instance, MISSING), note


def _order_within(rows: pd.DataFrame, keys: list[str]) -> pd.Series:
    return rows.groupby(keys).cumcount()


def _numbered(rows: pd.DataFrame, keys: Sequence[str | pd.Series]) -> Ints:
    columns = [rows[key] if isinstance(key, str) else key for key in keys]
    return grouped(*(column.to_numpy().astype(np.int64) for column in columns)).number


def _agrees(rows: pd.DataFrame, instance: Ints) -> NDArray[np.bool_]:
    """Say whether all ranks of an instance ran the same operation, type and size."""
    same_size = rows["operation"].isin([OPERATIONS.index(name) for name in _SAME_SIZE])
    signature = _numbered(rows, ["operation", "dtype", rows["size"].where(same_size, MISSING)])
    by_instance = pd.Series(signature).groupby(instance)
    same = by_instance.transform("min") == by_instance.transform("max")
    return np.asarray(same, dtype=bool)


def _has_all_ranks(rows: pd.DataFrame, instance: Ints) -> NDArray[np.bool_]:
    """Say whether an instance has every rank that its group was seen on."""
    expected = rows.groupby("team")["rank"].transform("nunique").to_numpy()
    found = pd.Series(rows["rank"].to_numpy()).groupby(instance).transform("nunique")
    return np.asarray(found.to_numpy() == expected)
