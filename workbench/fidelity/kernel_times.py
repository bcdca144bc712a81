"""Claims about kernel models: errors on matrix products and collectives that were held out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pandas as pd

from workbench import analyze, load
from workbench.errors import MissingExtraError
from workbench.fidelity._published import published
from workbench.fidelity._registry import Reading, claim

_GPUS = ("H100", "H200")
_SOURCE = "measured by NVIDIA, in the package aiconfigurator-core"


@claim(
    noun="kernel_times",
    name="matrix products of other (n, k)",
    source=_SOURCE,
)
def matrix_products() -> Iterator[Reading]:
    """Predict every bfloat16 product from those of other (n, k), in four folds.

    483 different (n, k) with 74 m each are cut into four folds at random with a fixed seed; the
    whole model is fitted to three and judged on the fourth. ``training`` is m, n, k >= 1024.
    The roofline with the peaks of the data sheet is printed beside it, as what it must beat.
    """
    errors = analyze.gemm_errors(load.gemm_times(gpus=_GPUS), fold_count=4)
    if not (errors["model"] == "hybrid").any():
        msg = "the trees need scikit-learn; pip install 'ai-infra-workbench[kernels]'"
        raise MissingExtraError(msg)
    mean = errors.set_index(["gpu", "model", "shapes"])["mean_ratio"]
    for row in published("kernel_models"):
        if row["model"] == "matrix product":
            gpu, shapes, limit = row["gpu"], row["what"], float(row["mean_pct"])
            yield _limit(f"{gpu}, {shapes} shapes", limit, mean[(gpu, "hybrid", shapes)], row)
            naive = 100 * float(mean[(gpu, "roofline", shapes)])
            yield Reading(
                what=f"{gpu}, {shapes} shapes, roofline alone",
                printed=limit,
                here=naive,
                unit="%",
                bound="at least",
                source="what a model must beat: the peaks of the data sheet",
            )


@claim(
    noun="kernel_times",
    name="collectives of a size left out",
    source=_SOURCE,
)
def collectives_left_out() -> Iterator[Reading]:
    """Leave out one size at a time, its repeats and element types with it; 21 sizes each.

    512 bytes to 512 MiB in powers of two, on one node. The first and the last are left out too,
    where the lines are extrapolated.
    """
    yield from _collectives("collective, size left out", "held_out_ns")


@claim(
    noun="kernel_times",
    name="collectives by three lines",
    source=_SOURCE,
)
def collectives_fitted() -> Iterator[Reading]:
    """Compare the lines with the very sizes they were fitted to, as is often done."""
    yield from _collectives("collective, all sizes fitted", "modelled_ns")


def _collectives(model: str, column: str) -> Iterator[Reading]:
    beside = _beside()
    error = (beside[column] / beside["dur_ns"] - 1).abs()
    key = [beside["gpu"], beside["collective"], beside["rank_count"]]
    mean = error.groupby(key).mean()
    for row in published("kernel_models"):
        if row["model"] == model:
            ranks = int(row["rank_count"])
            here = mean[(row["gpu"], row["what"], ranks)]
            name = f"{row['gpu']}, {row['what']}, {ranks} ranks"
            yield _limit(name, float(row["mean_pct"]), here, row)


@cache
def _beside() -> pd.DataFrame:
    return analyze.collective_times(load.collective_times(gpus=_GPUS))


def _limit(what: str, limit: float, here: float, row: dict[str, str]) -> Reading:
    return Reading(
        what=what,
        printed=limit,
        here=100 * float(here),
        unit="%",
        bound="at most",
        source=row["source"],
        reached=float(row["reached_pct"]) if row["reached_pct"] else None,
    )
