"""Claims about sharding: torchrec's costs and measures, skewed rows, real look-ups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from workbench import analyze, load, simulate
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_FLOAT = 1e-12  # relative; the same sum in another order
_DRAW = 0.5  # of max / mean, what another seed of the random placement changes
_SHAPE_SHARE, _SHAPE_EVEN, _EVEN = 0.5, 0.05, 1.2
_ROWS_SHARE = 0.005


@claim(
    noun="sharding",
    name="costs of torchrec's planner",
    source="torchrec, distributed/planner/tests/test_shard_estimators.py",
)
def costs() -> Iterator[Reading]:
    """Compare the time of each shard with the one that torchrec's own tests expect."""
    parts = ("forward_compute", "forward_communication", "backward_compute")
    for row in published("sharding_torchrec_perf"):
        table = pd.DataFrame(
            {
                "table": ["table_0"],
                "row_count": [int(row["row_count"])],
                "dim_count": [int(row["dim_count"])],
                "pooling_ratio": [float(row["pooling_ratio"])],
                "element_bytes": [int(row["element_bytes"])],
            }
        )
        shards = analyze.table_sharding(
            table,
            ranks=int(row["ranks"]),
            scheme=row["scheme"],  # type: ignore[arg-type]
            assumptions=analyze.ShardingAssumptions(batch_count=int(row["batch_count"])),
        )
        whole = sum(float(row[f"{part}_ms"]) for part in (*parts, "backward_communication"))
        for rank, here in zip(shards["rank"], shards["perf_ms"], strict=True):
            what = f"{row['scheme']}, shard on rank {rank}"
            yield Reading(what, whole, here, "ms", _FLOAT * whole, row["source"])


@claim(
    noun="sharding",
    name="measures of imbalance",
    source="torchrec, distributed/planner/tests/test_stats.py, and by hand",
)
def imbalance() -> Iterator[Reading]:
    """Compare every measure with its printed value, to the digits printed."""
    for row in published("sharding_imbalance"):
        loads = [float(load) for load in row["loads"].split()]
        # torchrec tests KL before it divides by ln k.
        here = _measured(loads, row["measure"]) * float(row["scale"])
        near = 0.5 * 10.0 ** -int(row["digits"])
        what = f"{row['measure']} of {row['loads']}"
        yield Reading(what, float(row["value"]), here, "", near, row["source"])


def _measured(loads: Any, measure: str) -> float:
    table = analyze.load_imbalance(loads)
    return float(table.loc[table["measure"] == measure, "value_ratio"].iloc[0])


@claim(
    noun="sharding",
    name="rows of Zipf popularity",
    source="separate implementation of the model, after UpDLRM (arXiv:2406.13941)",
)
def rows() -> Iterator[Reading]:
    """Compare max / mean of each placement, to the digits printed; random ones to a draw."""
    tables: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in published("sharding_rows"):
        key = (row["exponent"], row["row_count"], row["unit_count"])
        if key not in tables:
            tables[key] = _placed(float(key[0]), int(key[1]), int(key[2]))
        name = row["placement"]
        near = _DRAW if name == "random" else 0.5 * 10.0 ** -int(row["digits"])
        what = f"exponent {row['exponent']}, {name}"
        here = tables[key][name]
        yield Reading(what, float(row["max_to_mean_ratio"]), here, "", near, row["source"])


def _placed(exponent: float, rows: int, units: int) -> dict[str, float]:
    """Give max / mean of every placement, and the bound."""
    table = analyze.row_sharding(simulate.row_popularity(rows, exponent), units=units)
    found = dict(zip(table["placement"], table["max_to_mean_ratio"], strict=True))
    return {**found, "bound": float(table["bound_ratio"].iloc[0])}


@claim(
    noun="sharding",
    name="shape of planners on 788 tables",
    source="separate implementation with other draws of the tables and simpler costs",
)
def shape() -> Iterator[Reading]:
    """Compare max / mean of each planner as a shape: the tables are another random draw.

    Balanced plans (below 1.2) agree to 0.05. Elsewhere the few largest tables of the draw
    decide, and values agree to half; other seeds differ by as much.
    """
    tables = simulate.embedding_tables()
    for row in published("sharding_tables"):
        shards = analyze.table_sharding(
            tables,
            ranks=int(row["ranks"]),
            planner=row["planner"],  # type: ignore[arg-type]
            balance_by=row["balance_by"],  # type: ignore[arg-type]
            scheme=row["scheme"],  # type: ignore[arg-type]
        )
        here = _measured(analyze.shard_balance(shards)["perf_ms"], "max / mean")
        printed = float(row["max_to_mean_ratio"])
        near = _SHAPE_EVEN if printed < _EVEN else _SHAPE_SHARE * printed
        what = f"{row['ranks']} ranks, {row['planner']} by {row['balance_by']}, {row['scheme']}"
        yield Reading(what, printed, here, "", near, row["source"])


@claim(
    noun="sharding",
    name="reuse of real look-ups",
    source="facebookresearch/dlrm_datasets, embedding_bag",
    needs=("dlrm-locality",),
)
def reuse(folder: Path) -> Iterator[Reading]:
    """Compare totals and histograms with those printed, exactly; rows from bins to 0.5 %.

    The reuse factor is worked out from the two totals and agrees to the digit printed. The
    number of rows follows from shares of three digits.
    """
    for row in published("sharding_dlrm_reuse"):
        histogram = load.reuse_histogram(folder / row["year"] / "locality_stats.txt")
        batch = histogram[histogram["batch"] == row["batch"]]
        quantity, printed, source = row["quantity"], float(row["value"]), row["source"]
        what = f"{row['year']}, {quantity}"
        if row["above_count"]:
            (here,) = batch.loc[batch["above_count"] == int(row["above_count"]), quantity]
            yield Reading(f"{what} above {row['above_count']}", printed, here, "", 0, source)
        elif quantity == "reuse_ratio":
            here = batch["lookup_count"].iloc[0] / batch["unique_count"].iloc[0]
            yield Reading(what, printed, here, "", 0.05, source)
        else:
            yield Reading(what, printed, batch[quantity].iloc[0], "", 0, source)
        if quantity == "unique_count":
            rows = analyze.row_popularity(batch)["row_count"].sum()
            what = f"{row['year']}, rows that the bins hold together"
            yield Reading(what, printed, rows, "rows", _ROWS_SHARE * printed, source)
