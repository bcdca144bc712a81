"""How far off predictions were where the truth is public, by class of model."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from workbench import datasets
from workbench.analyze._perfmodel.layouts.closed_form import Constants, parts
from workbench.analyze._perfmodel.layouts.columns import columns
from workbench.analyze._perfmodel.layouts.layout import (
    COUNTS,
    LAYOUT_COLUMNS,
    Layout,
    configurations,
)
from workbench.analyze._perfmodel.layouts.model_shape import model_shape
from workbench.tables import ITERATIONS

_FILE = "iteration_megatron_bridge.csv"
# Their recipes: fused attention, sequence parallelism; states are sharded over the replicas.
_RECIPE: dict[str, Any] = {"sequence_parallel": True, "flash_attention": True}


@cache
def public_iterations() -> pd.DataFrame:
    """Give the jobs whose throughput NVIDIA prints, as table ITERATIONS.

    Bundled as ``published/iteration_megatron_bridge.csv``: dense models and mixtures of
    experts on five kinds of GPUs, several releases of the software.
    """
    printed = pd.read_csv(datasets.path("published") / _FILE)
    jobs = []
    for row in printed.to_dict("records"):
        sizes: dict[str, Any] = {name: int(row[LAYOUT_COLUMNS[name]]) for name in COUNTS}
        layout = Layout(**sizes, sharding=row["sharding"], **_RECIPE)
        jobs.append(configurations(model_shape(row["model"]), layout, gpu=row["gpu"]))
    table = pd.concat(jobs, ignore_index=True)
    tokens = table["global_batch_count"] * table["sequence_tokens"]
    rate = printed["tokens_per_s_per_gpu"] * table["gpu_count"]
    table = table.assign(
        dur_ns=(1e9 * tokens / rate).round().astype("int64"), source=printed["source"], doubt=""
    )
    return ITERATIONS.check(ITERATIONS.cast(table))


@cache
def error_class(constants: Constants, *, is_routed: bool) -> str:
    """Say how far off a closed form was on the public rows of a class of models."""
    rows = public_iterations()
    rows = rows[(rows["expert_count"] > 1) == is_routed]
    seconds = np.sum(list(parts(columns(rows), constants).values()), axis=0)
    errors = np.abs(seconds / (rows["dur_ns"].to_numpy() / 1e9) - 1)
    middle, most = np.quantile(errors, [0.5, 0.9])
    kind = "mixtures of experts" if is_routed else "dense models"
    return (
        f"{kind}, constants not fitted: {len(rows)} public jobs were off by {middle:.0%} in the "
        f"median, nine of ten by at most {most:.0%}"
    )
