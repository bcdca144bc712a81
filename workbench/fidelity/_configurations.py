"""Printed configurations as tables of measured iterations."""

from __future__ import annotations

from typing import Any

import pandas as pd

from workbench import analyze
from workbench.fidelity._published import published
from workbench.tables import ITERATIONS


def printed_iterations(name: str, **same: Any) -> pd.DataFrame:
    """Make a table of iterations from a file of printed ones.

    Parameters
    ----------
    name
        File in ``data/published``, without its suffix.
    same
        What the file does not print and holds for all rows: arguments of
        :class:`workbench.analyze.Layout`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.ITERATIONS`: ``gpu_count``, ``dur_ns``, ``source`` and what
        else makes a configuration.
    """
    return measured(
        *(
            (row, {**printed_layout(row), **same}, float(row["iteration_s"]))
            for row in published(name)
        )
    )


def printed_layout(row: dict[str, str]) -> dict[str, Any]:
    """Take what a row of a file tells about the layout."""
    names = {
        "tensor": "tensor_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel",
        "chunks": "chunk_count", "micro_batch": "micro_batch_count",
        "global_batch": "global_batch_count", "sequence": "sequence_tokens",
    }  # fmt: skip
    found: dict[str, Any] = {ours: int(row[name]) for ours, name in names.items() if name in row}
    if "recompute" in row:
        found["recompute"] = row["recompute"]
        found["sequence_parallel"] = row["has_sequence_parallel"] == "yes"
    return found


def measured(*rows: tuple[dict[str, str], dict[str, Any], float]) -> pd.DataFrame:
    """Put (printed row, layout, seconds) into a table of iterations."""
    each = []
    for row, layout, seconds in rows:
        shape = analyze.model_shape(row["model"])
        job = analyze.configurations(shape, analyze.Layout(**layout), gpu=row.get("gpu", "H100"))
        each.append(job.assign(dur_ns=round(seconds * 1e9), source=row["source"], doubt=""))
    return ITERATIONS.check(pd.concat(each, ignore_index=True))
