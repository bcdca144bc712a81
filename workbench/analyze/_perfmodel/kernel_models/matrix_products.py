"""The matrix products of a model, from its layout or from a trace, and the peaks of GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

import pandas as pd

from workbench import datasets
from workbench.analyze._perfmodel.kernel_models.hardware import hardware
from workbench.errors import PerformanceModelError
from workbench.tables import CONFIGURATIONS, MATRIX_PEAKS, MATRIX_PRODUCTS

_DIMS = "input_shapes"
# Where the two operands stand among the inputs of an operator, and how many dimensions they have.
_OPERATORS = {
    "aten::mm": (0, 2),
    "aten::addmm": (1, 2),
    "aten::bmm": (0, 3),
    "aten::baddbmm": (1, 3),
}


def matrix_products(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the sizes of the matrix products of a model: from its layout, or from a trace.

    Parameters
    ----------
    rows
        Table :data:`workbench.tables.CONFIGURATIONS`, e.g. from ``analyze.configurations`` or a
        plan: the products of a forward pass, per rank and micro-batch. Or the events of a
        trace that was recorded with shapes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MATRIX_PRODUCTS`: ``product``, ``m_count``, ``n_count``,
        ``k_count``, ``call_count``, ``basis``; the same sizes are one row.

    Raises
    ------
    PerformanceModelError
        If the rows are neither, the trace recorded no shapes, or has no matrix product.

    Notes
    -----
    Layout: m is the tokens of a rank in a micro-batch; tensor parallelism divides n or k. The two
    products of the backward pass have the same three sizes in another order. Scores of attention
    are left out: they are many products, each as thin as a head.
    """
    if "layer_count" in rows:
        CONFIGURATIONS.check(rows)
        shapes = [shape for row in rows.to_dict("records") for shape in _of_layout(row)]
        basis = "layout"
    elif _DIMS in rows and "name" in rows:
        shapes, basis = list(_of_trace(rows)), "trace"
    else:
        msg = "matrix products come from configurations, or from events of a profile with "
        msg += "record_shapes=True; these rows have neither layers nor shapes"
        raise PerformanceModelError(msg)
    if not shapes:
        msg = f"no {' or '.join(_OPERATORS)} with recorded shapes in these events; profile with "
        raise PerformanceModelError(msg + "record_shapes=True")
    table = pd.DataFrame(shapes, columns=["product", "m_count", "n_count", "k_count", "call_count"])
    keys = ["product", "m_count", "n_count", "k_count"]
    counts = table.groupby(keys, sort=False)["call_count"].sum().reset_index()
    return MATRIX_PRODUCTS.of(counts.assign(basis=basis))


def _of_layout(row: Mapping[Any, Any]) -> Iterator[tuple[Any, ...]]:
    tensor, hidden, width = row["tensor_parallel"], row["hidden"], row["head_width"]
    tokens = row["micro_batch_count"] * row["sequence_tokens"] // row["context_parallel"]
    layers = -(-row["layer_count"] // row["pipeline_parallel"])
    heads, ffn = row["head_count"] * width // tensor, row["ffn"]
    keys = 2 * row["kv_head_count"] * width // tensor
    up = (2 if row["is_gated"] else 1) * ffn
    yield "query, key, value", tokens, max(heads + keys, 1), hidden, layers
    yield "attention output", tokens, hidden, heads, layers
    if row["expert_count"] > 1:
        # A rank holds whole experts, and gets their tokens from all expert-parallel ranks.
        held = row["expert_count"] // row["expert_parallel"]
        routed = tokens * row["routed_count"] * row["expert_parallel"] // row["expert_count"]
        yield "expert, up", max(routed, 1), up, hidden, layers * held
        yield "expert, down", max(routed, 1), hidden, ffn, layers * held
    else:
        yield "feed-forward, up", tokens, max(up // tensor, 1), hidden, layers
        yield "feed-forward, down", tokens, hidden, max(ffn // tensor, 1), layers
    yield "output layer", tokens, max(row["vocabulary_count"] // tensor, 1), hidden, 1


def _of_trace(events: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    called = events[events["name"].isin(list(_OPERATORS)) & events[_DIMS].notna()]
    counts = called.groupby(["name", _DIMS], observed=True, sort=False).size()
    for key, count in counts.items():
        name, dims = cast("tuple[Any, Any]", key)
        first, rank = _OPERATORS[str(name)]
        operands = _sizes(dims)[first : first + 2]
        if len(operands) == 2 and all(len(size) == rank and min(size) > 0 for size in operands):
            (*batch, m, k), (*_, n) = operands
            yield str(name), m, n, k, int(count) * (batch[0] if batch else 1)


def _sizes(dims: Any) -> list[list[int]]:
    sizes = json.loads(dims) if isinstance(dims, str) else dims
    return [size if isinstance(size, list) else [] for size in sizes]


def matrix_peaks() -> pd.DataFrame:
    """Return the peaks of GPUs by the type of the operands: dense, from data sheets.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MATRIX_PEAKS`: ``gpu``, ``dtype``, ``element_bytes``,
        ``peak_flop_per_s``, ``memory_bytes_per_s``. Append rows of your own, e.g. of a CPU.

    Notes
    -----
    Types of 16 and 8 bits are those of :func:`hardware`; single precision without matrix units, and
    the V100, are in ``published/fp32_peaks.csv``.
    """
    return _peaks().copy()


@cache
def _peaks() -> pd.DataFrame:
    wide = hardware()
    rows = [
        wide.assign(dtype=dtype, element_bytes=size, peak_flop_per_s=wide[column])
        for dtype, size, column in (
            ("bfloat16", 2, "bf16_flop_per_s"),
            ("fp8", 1, "fp8_flop_per_s"),
        )
    ]
    table = pd.concat([printed_peaks("fp32_peaks"), *rows], ignore_index=True).dropna(
        subset=["peak_flop_per_s"]
    )
    return MATRIX_PEAKS.of(table.reset_index(drop=True))


def printed_peaks(name: str) -> pd.DataFrame:
    printed = pd.read_csv(datasets.path("published") / f"{name}.csv")
    printed["peak_flop_per_s"] = printed["peak_tflops"] * 1e12
    printed["memory_bytes_per_s"] = printed["memory_gb_per_s"] * 1e9
    return printed
