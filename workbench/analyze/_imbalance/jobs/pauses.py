"""Garbage collections inside the pipeline, each tied to the computation that it delays."""

from __future__ import annotations

import pandas as pd

from workbench.analyze._imbalance.jobs.replay import COMPUTES, Operation

_WORKER = ["step", "dp_rank", "stage"]


def with_pauses(table: pd.DataFrame) -> tuple[pd.DataFrame, dict[Operation, Operation]]:
    """Renumber the collections between computations by the computation that comes next.

    Gives the table, with those before the same computation as one row, and the pause before
    each computation, by its key. Collections before the first or behind the last computation
    of a worker stay what they are.
    """
    texts = table["operation"].astype(str)
    is_gc, computes = texts.eq("gc"), texts.isin(COMPUTES)
    if not is_gc.any() or not computes.any():
        return table, {}
    table = table.assign(operation=texts)
    inside = _between(table[is_gc], table[computes])
    if inside.empty:
        return table.astype({"operation": "category"}), {}
    columns = (inside[name].tolist() for name in ("stage", "operation_next", "sequence_next"))
    following = [Operation(int(a), b, int(c)) for a, b, c in zip(*columns, strict=True)]
    # Beyond the numbers of all other collections.
    free = int(table.loc[is_gc, "sequence"].max()) + 1
    pauses = {
        key: Operation(key.stage, "gc", free + at) for at, key in enumerate(sorted(set(following)))
    }
    joined = inside.assign(sequence=[pauses[key].sequence for key in following])
    joined = joined.groupby([*_WORKER, "sequence"], as_index=False).agg(
        start_ns=("start_ns", "min"), dur_ns=("dur_ns", "sum")
    )
    table = table.drop(index=inside.index)
    table = pd.concat([table, joined.assign(operation="gc")], ignore_index=True)
    return table.astype({"operation": "category", "sequence": "int32"}), pauses


def _between(collections: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """Return the collections between two computations of their worker, with the next one."""
    table = collections.sort_values("start_ns", kind="stable")
    work = work.sort_values("start_ns", kind="stable")
    work = work[[*_WORKER, "start_ns", "operation", "sequence"]].assign(position=0)
    work["position"] = work.groupby(_WORKER).cumcount()
    found = pd.merge_asof(
        table, work, on="start_ns", by=_WORKER, direction="forward", suffixes=("", "_next")
    ).set_index(table.index)
    # Without a next one the position is missing, and before the first it is 0.
    return found[found["position"] > 0]
