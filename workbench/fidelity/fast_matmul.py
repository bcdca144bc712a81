"""Claims about fast matrix multiplication."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path

import pandas as pd

from workbench import analyze, load
from workbench.fidelity.registry import Reading, claim, published
from workbench.tables import MATRIX_PRODUCTS

# The abstract does not print the size of its largest speed-up; this is a large product.
_LARGE, _SPEED = 16_384, 0.03
_ENDS = ("hidden", "unfused")
_COLUMNS = list(MATRIX_PRODUCTS.columns)


@claim(
    noun="fast_matmul",
    name="coefficients of 31 algorithms",
    source="flame/fmm-gen, meta/algorithms: rank and nonzeros in the names of the files",
    needs=("fast-matmul",),
)
def coefficients(folder: Path) -> Iterator[Reading]:
    """Verify every algorithm by Brent's equations to 1e-12; names tell rank and nonzeros."""
    for row in analyze.fast_algorithms(load.fast_algorithms(folder)).to_dict("records"):
        yield Reading(f"{row['algorithm']}, deviation", 0, row["residual_ratio"], "", 1e-12)
        if name := re.fullmatch(r"\w+?\d\d\d-(\d+)-(\d+)", row["algorithm"]):
            rank = row["product_count"]
            sums = sum(row[f"{operand}_addition_count"] for operand in "abc")
            nonzeros = sums + 2 * rank + row["m_part_count"] * row["n_part_count"]
            yield Reading(f"{row['algorithm']}, rank", int(name[1]), rank, "")
            yield Reading(f"{row['algorithm']}, nonzeros", int(name[2]), nonzeros, "")


@claim(
    noun="fast_matmul", name="Strassen on a V100, and for contractions", source="arXiv:1808.07984"
)
def strassen() -> Iterator[Reading]:
    """Hold the printed numbers against the bounds of the model; they are not measured here.

    A fused kernel lies between sums in memory and sums that are hidden, so the printed crossover
    must, too. The second level pays at twice the size of the first or later. The printed speed-up
    of one level is compared at 16,384, with sums in memory, to 0.03.
    """
    square = MATRIX_PRODUCTS.cast(
        pd.DataFrame([("square", _LARGE, _LARGE, _LARGE, 1, "layout")], columns=_COLUMNS)
    )
    first = float("nan")
    for row in published("fast_matmul"):
        quantity, levels, printed = row["what"], int(row["level_count"]), float(row["value"])
        label, source = f"{row['gpu']}, {levels} level, {quantity}", row["source"]
        if quantity == "crossover" and levels == 1:
            first = printed
            sides = analyze.fast_matmul_crossover().query("gpu == 'V100' and dtype == 'float32'")
            hidden, memory = (float(sides[f"{name}_count"].iloc[0]) for name in _ENDS)
            yield Reading(f"{label}, sums hidden", printed, hidden, "", 0, source, "at most")
            yield Reading(f"{label}, sums in memory", printed, memory, "", 0, source, "at least")
        elif quantity == "crossover":
            yield Reading(f"{label}, of the first", printed / first, 2, "x", 0, source, "at most")
        else:
            bound = (8 / 7) ** levels
            yield Reading(f"{label}, bound", printed, bound, "x", 0, source, "at least")
        if quantity == "speed-up" and levels == 1:
            gain = analyze.fast_matmul(square, gpu=row["gpu"], dtype=row["dtype"])
            modelled = float(gain["unfused_ratio"].iloc[0])
            yield Reading(f"{label}, at 16,384", printed, modelled, "x", _SPEED, source)


@claim(
    noun="fast_matmul",
    name="folded contractions",
    source="flame/tblis-strassen, bin/tcb.txt: sizes of the indices",
    needs=("tensor-contractions",),
)
def contractions(folder: Path) -> Iterator[Reading]:
    """Compare the work of each folded product with the product of the sizes of its indices."""
    path = folder / "tcb.txt"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    table = load.tensor_contractions(path)
    for row, line in zip(table.to_dict("records"), lines, strict=True):
        printed = prod(int(size) for size in re.findall(r":(\d+)", line))
        folded = row["m_count"] * row["n_count"] * row["k_count"]
        yield Reading(row["product"], printed, folded, "")
