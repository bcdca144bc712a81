"""Fast matrix multiplication: what an algorithm saves, and from which size on that pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench._shared.numbers import Floats, whole_number
from workbench.analyze._perfmodel.kernel_models.matrix_products import matrix_peaks
from workbench.errors import PerformanceModelError
from workbench.tables import (
    FAST_ALGORITHMS,
    FAST_COEFFICIENTS,
    FAST_MATMUL,
    FAST_MATMUL_CROSSOVER,
    MATRIX_PEAKS,
    MATRIX_PRODUCTS,
)

# Name, parts of m, k, n, products, additions of A, B, C, saving, growth of the error bound (Higham,
# chapter 23). Winograd's variant of Strassen's algorithm computes common sums once.
_STANDARD = (
    ("Strassen", 2, 2, 2, 7, 5, 5, 8, 1 / 7, 3.0, 0.0),
    ("Winograd", 2, 2, 2, 7, 4, 4, 7, 1 / 7, 4.5, 0.0),
)
_SUMMED = ("bfloat16", "float16", "fp8")


def fast_algorithms(coefficients: pd.DataFrame | None = None) -> pd.DataFrame:
    """Verify fast algorithms, and count what each saves and adds per level.

    Parameters
    ----------
    coefficients
        Table :data:`workbench.tables.FAST_COEFFICIENTS`; Strassen's algorithm and Winograd's
        variant of it if None.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAST_ALGORITHMS`, one row per algorithm.

    Notes
    -----
    With U, V, W (rows: blocks of A, B, C; columns: products) an algorithm is right if
    ``sum_r U[ip,r] V[qj,r] W[xy,r]`` is 1 where p = q, i = x, j = y and 0 elsewhere (Brent's
    equations); ``residual_ratio`` is the largest deviation. Saving: m k n / products - 1.
    Additions: entries other than 0, less one per sum. Error: one level multiplies the bound on
    ``max |C - computed|`` by ``max_c sum_r |W[c,r]| |U[:,r]|_1 |V[:,r]|_1 / k^2``, compared with
    the bound of the plain product.

    References
    ----------
    Benson and Ballard: A framework for practical parallel fast matrix multiplication, PPoPP 2015.
    Higham: Accuracy and Stability of Numerical Algorithms, chapter 23.
    """
    if coefficients is None:
        rows: list[Any] = list(_STANDARD)
    else:
        FAST_COEFFICIENTS.check(coefficients)
        groups = coefficients.groupby("algorithm", sort=False, observed=True)
        rows = [_examined(str(name), coefficient_rows) for name, coefficient_rows in groups]
    return FAST_ALGORITHMS.of(rows)


def _examined(name: str, rows: pd.DataFrame) -> tuple[Any, ...]:
    m, k, n = (int(rows[f"{side}_part_count"].iloc[0]) for side in "mkn")
    rank = int(rows["product"].max()) + 1
    u, v, w = (np.zeros((blocks, rank)) for blocks in (m * k, k * n, m * n))
    for operand, dense in zip("ABC", (u, v, w), strict=True):
        of_operand = rows[rows["operand"] == operand]
        at = of_operand["block"].to_numpy(), of_operand["product"].to_numpy()
        dense[at] = of_operand["coefficient_ratio"]
    exact = np.einsum("pq,ix,jy->ipqjxy", np.eye(k), np.eye(m), np.eye(n))
    computed = np.einsum("ar,br,cr->abc", u, v, w)
    residual = np.abs(computed - exact.reshape(computed.shape)).max()
    growth = (np.abs(w) * np.abs(u).sum(axis=0) * np.abs(v).sum(axis=0)).sum(axis=1).max()
    sums = [np.count_nonzero(u) - rank, np.count_nonzero(v) - rank, np.count_nonzero(w) - m * n]
    return (name, m, k, n, rank, *sums, m * k * n / rank - 1, growth / k**2, residual)


def fast_matmul_crossover(
    peaks: pd.DataFrame | None = None,
    *,
    algorithms: pd.DataFrame | None = None,
    levels: int = 1,
) -> pd.DataFrame:
    """Work out from which size on fast multiplication beats the plain product, by GPU and type.

    Parameters
    ----------
    peaks
        Table :data:`workbench.tables.MATRIX_PEAKS`; :func:`matrix_peaks` if None.
    algorithms
        Table :data:`workbench.tables.FAST_ALGORITHMS` to choose from; Strassen and Winograd if
        None.
    levels
        Recursion levels; the last one is compared with one less.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAST_MATMUL_CROSSOVER`, one row per GPU and type, for the
        algorithm whose unfused crossover is smallest.

    Raises
    ------
    WorkbenchError
        If ``levels`` is not a whole number from 1, or no algorithm saves anything.

    Notes
    -----
    Square products of side n, w bytes per element, peak P, memory bandwidth B. Unfused: each
    addition reads two blocks and writes one, which nothing hides: ``n = 3/2 w P/B s / saved`` with
    s the additions per block of A, B and C, saved = 1 - products / (m k n); 45 w P/B for Winograd.
    Hidden: the kernel sums while it multiplies, and pays from where it is not memory-bound; a lower
    bound, since shared sums count once. A real fused kernel lies between.

    References
    ----------
    Huang, Yu, van de Geijn: Strassen's Algorithm Reloaded on GPUs, arXiv:1808.07984.
    """
    levels = whole_number("levels", levels, least=1)
    table = MATRIX_PEAKS.check(matrix_peaks() if peaks is None else peaks).reset_index(drop=True)
    per_byte = table["element_bytes"] * table["peak_flop_per_s"] / table["memory_bytes_per_s"]
    # P/B only scales the crossover, so one algorithm is best on all GPUs.
    best = min(_useful(algorithms), key=lambda a: a.unfused)
    deeper = best.blocks ** ((levels - 1) / 3)
    table = table.assign(
        algorithm=best.name, level_count=levels, bound_ratio=(1 + best.saving) ** levels,
        unfused_count=deeper * best.unfused * per_byte,
        hidden_count=deeper * best.moved(1).sum() / 2 * per_byte,
    )  # fmt: skip
    return FAST_MATMUL_CROSSOVER.of(table)


def fast_matmul(
    products: pd.DataFrame,
    *,
    gpu: str = "H100",
    dtype: str = "bfloat16",
    levels: int = 1,
    algorithms: pd.DataFrame | None = None,
    peaks: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Predict what fast multiplication would gain for each of your matrix products.

    Parameters
    ----------
    products
        Table :data:`workbench.tables.MATRIX_PRODUCTS`.
    gpu, dtype
        A row of ``peaks``.
    levels
        Recursion levels.
    algorithms, peaks
        As for :func:`fast_matmul_crossover`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAST_MATMUL`, one row per product, each for the algorithm
        that is fastest unfused.

    Raises
    ------
    WorkbenchError
        If ``levels`` is not a whole number from 1, no algorithm saves anything, or the GPU and type
        have no peak.

    Notes
    -----
    Plain: ``max(2 m n k / P, w (m k + k n + m n) / B)``. Unfused, per level: the products of
    blocks, and three blocks of traffic per addition. Hidden: the larger of the arithmetic and the
    traffic, sums included. A product gains as much as a square one whose side is the harmonic
    mean of m, n, k, weighted by the additions: ``effective_count``.
    """
    levels = whole_number("levels", levels, least=1)
    MATRIX_PRODUCTS.check(products)
    listed = MATRIX_PEAKS.check(matrix_peaks() if peaks is None else peaks)
    chosen = listed[(listed["gpu"] == gpu) & (listed["dtype"] == dtype)]
    if chosen.empty:
        pairs = (listed["gpu"] + " " + listed["dtype"]).tolist()
        msg = f"no peak of {gpu} for {dtype}; there are {pairs}, or append a row to peaks"
        raise PerformanceModelError(msg)
    peak, useful = chosen.iloc[0], _useful(algorithms)
    m, n, k = sides = products[["m_count", "n_count", "k_count"]].to_numpy(dtype=np.float64).T
    plain = _plain(sides, peak)
    unfused = np.array([_unfused(algorithm, sides, peak, levels) for algorithm in useful])
    best = unfused.argmin(axis=0)
    hidden = np.array([_hidden(algorithm, sides, peak, levels) for algorithm in useful])
    rows = np.arange(len(products))
    added = np.array([algorithm.added for algorithm in useful])[best].T
    slow, fast = unfused[best, rows], np.minimum(hidden, unfused)[best, rows]
    table = products.assign(
        gpu=gpu, dtype=dtype, level_count=levels, plain_ns=plain * 1e9,
        algorithm=[useful[at].name for at in best],
        effective_count=added.sum(axis=0) / (added / np.array([n, m, k])).sum(axis=0),
        crossover_count=_crossovers(useful, peak, levels)[best],
        unfused_ratio=plain / slow, hidden_ratio=plain / fast,
        bound_ratio=np.array([(1 + algorithm.saving) ** levels for algorithm in useful])[best],
        error_growth_ratio=np.array([algorithm.growth**levels for algorithm in useful])[best],
        verdict=np.select([slow < plain, fast < plain], ["pays", "only fused"], "does not pay"),
    )  # fmt: skip
    parts = np.array([algorithm.parts for algorithm in useful])[best].T ** levels
    table["doubt"] = _doubts(
        {
            "memory-bound: arithmetic is not what it waits for": plain
            > 1.001 * 2 * m * n * k / peak["peak_flop_per_s"],
            "sizes do not divide: padding is not counted": (np.array([m, k, n]) % parts).any(
                axis=0
            ),
            "sums need more bits than the type has": np.full(len(m), dtype in _SUMMED),
        }
    )
    return FAST_MATMUL.of(table)


class _Algorithm:
    """One row of FAST_ALGORITHMS, with what the times of its levels are made of."""

    def __init__(self, row: Any) -> None:
        self.name, self.saving, self.growth = (
            row.algorithm,
            row.saving_ratio,
            row.error_growth_ratio,
        )
        self.parts = m, k, n = row.m_part_count, row.k_part_count, row.n_part_count
        self.blocks, self.products = m * k * n, row.product_count
        self.of = np.array([m * k, k * n, m * n], dtype=np.float64)
        sums = [row.a_addition_count, row.b_addition_count, row.c_addition_count]
        self.added = np.array(sums) / self.of
        self.unfused = 1.5 * self.added.sum() / (1 - self.products / self.blocks)

    def moved(self, levels: int) -> Floats:
        """Count the passes over A, B and C if sums are read while they are multiplied."""
        read = (self.added + self.products / self.of)[:2] ** levels
        # Each block of C is written once, and read and written again for every further product.
        return np.append(read, 2 * (self.added[2] + 1) ** levels - 1)


def _useful(algorithms: pd.DataFrame | None) -> list[_Algorithm]:
    table = fast_algorithms() if algorithms is None else FAST_ALGORITHMS.check(algorithms)
    saving = table[table["saving_ratio"] > 0]
    if useful := [_Algorithm(row) for row in saving.itertuples()]:
        return useful
    msg = "no algorithm here saves a product; pass rows of analyze.fast_algorithms, or None"
    raise PerformanceModelError(msg)


def _crossovers(useful: list[_Algorithm], peak: pd.Series, levels: int) -> Floats:
    per_byte = peak["element_bytes"] * peak["peak_flop_per_s"] / peak["memory_bytes_per_s"]
    return np.array([a.blocks ** ((levels - 1) / 3) * a.unfused * per_byte for a in useful])


def _areas(sides: Any) -> Floats:
    m, n, k = sides
    return np.array([m * k, k * n, m * n])


def _plain(sides: Any, peak: pd.Series) -> Any:
    moved = peak["element_bytes"] * _areas(sides).sum(axis=0) / peak["memory_bytes_per_s"]
    return np.maximum(2 * np.prod(sides, axis=0) / peak["peak_flop_per_s"], moved)


def _unfused(algorithm: _Algorithm, sides: Any, peak: pd.Series, levels: int) -> Any:
    if not levels:
        return _plain(sides, peak)
    m, k, n = algorithm.parts
    blocks = _unfused(algorithm, sides / np.array([[m], [n], [k]]), peak, levels - 1)
    moved = 3 * peak["element_bytes"] * (algorithm.added @ _areas(sides))
    return algorithm.products * blocks + moved / peak["memory_bytes_per_s"]


def _hidden(algorithm: _Algorithm, sides: Any, peak: pd.Series, levels: int) -> Any:
    done = 2 * np.prod(sides, axis=0) / (1 + algorithm.saving) ** levels / peak["peak_flop_per_s"]
    moved = peak["element_bytes"] * (algorithm.moved(levels) @ _areas(sides))
    return np.maximum(done, moved / peak["memory_bytes_per_s"])


def _doubts(reasons: dict[str, Any]) -> list[str]:
    marked = [np.where(applies, words, "") for words, applies in reasons.items()]
    return ["; ".join(filter(None, words)) for words in zip(*marked, strict=True)]
