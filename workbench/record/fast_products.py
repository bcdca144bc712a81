"""Time fast matrix multiplication beside the plain product on this CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from workbench._shared.numbers import whole_number
from workbench.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd


def fast_matmul_times(
    sizes: Sequence[int] = (1024, 2048),
    *,
    levels: int = 1,
    repeats: int = 15,
    dtype: Literal["float32", "float64"] = "float32",
    seed: int = 0,
) -> pd.DataFrame:
    """Time Winograd's variant of Strassen's algorithm and ``A @ B`` of NumPy, in turn.

    Parameters
    ----------
    sizes
        Sides of square products; each must divide by 2 to the power of ``levels``.
    levels
        Recursion levels.
    repeats
        Pairs of runs per size.
    dtype
        Type of the elements.
    seed
        Of the matrices, uniform between -1 and 1.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAST_MATMUL_TIMES`, one row per pair of runs.

    Raises
    ------
    RecordError
        If a size does not divide, or a number makes no sense.

    Notes
    -----
    Temporaries are allocated before; the order within a pair alternates, and one pair is not
    counted. BLAS uses as many threads as it is set to. Four blocks beside A, B and C are held.

    References
    ----------
    Douglas et al.: GEMMW, Journal of Computational Physics 110, 1994 (the order of the sums).
    """
    import numpy as np
    import pandas as pd

    from workbench.tables import FAST_MATMUL_TIMES

    levels, repeats = (
        whole_number("levels", levels, least=1),
        whole_number("repeats", repeats, least=1),
    )
    if dtype not in ("float32", "float64") or any(size % 2**levels or size < 1 for size in sizes):
        msg = f"sizes {list(sizes)} must divide by {2**levels}, and dtype be float32 or float64, "
        raise RecordError(msg + f"not {dtype!r}")
    rows = []
    for size in sizes:
        draw = np.random.default_rng(seed)
        a, b = draw.uniform(-1, 1, (2, size, size)).astype(dtype)
        plain, fast = np.empty_like(a), np.empty_like(a)
        work = [
            np.empty((3, size >> level, size >> level), dtype) for level in range(1, levels + 1)
        ]
        runs: list[Callable[[], Any]] = [
            partial(np.matmul, a, b, out=plain),
            partial(_winograd, a, b, fast, work),
        ]
        for repeat in range(repeats + 1):
            took = [0, 0]
            for which in (0, 1) if repeat % 2 else (1, 0):
                start = time.perf_counter_ns()
                runs[which]()
                took[which] = max(time.perf_counter_ns() - start, 1)
            error = float(np.abs(fast - plain).max() / np.abs(plain).max())
            rows += [(dtype, size, levels, repeat, *took, error)] * bool(repeat)
    table = pd.DataFrame(rows, columns=list(FAST_MATMUL_TIMES.columns))
    return FAST_MATMUL_TIMES.check(FAST_MATMUL_TIMES.cast(table))


def _winograd(a: Any, b: Any, c: Any, work: list[Any]) -> None:
    """Multiply by 7 products and 15 additions per level, with three blocks of workspace each."""
    import numpy as np

    if not work:
        np.matmul(a, b, out=c)
        return
    half, (s, t, x), deeper = len(a) // 2, work[0], work[1:]
    a11, a12, a21, a22 = _quarters(a, half)
    b11, b12, b21, b22 = _quarters(b, half)
    c11, c12, c21, c22 = _quarters(c, half)
    np.subtract(a11, a21, out=s)
    np.subtract(b22, b12, out=t)
    _winograd(s, t, c21, deeper)
    np.add(a21, a22, out=s)
    np.subtract(b12, b11, out=t)
    _winograd(s, t, c22, deeper)
    np.subtract(s, a11, out=s)
    np.subtract(b22, t, out=t)
    _winograd(s, t, c12, deeper)
    np.subtract(a12, s, out=s)
    _winograd(s, b22, c11, deeper)
    _winograd(a11, b11, x, deeper)
    # Sums that several blocks of the result share are completed one after the other.
    for into, summand in ((c12, x), (c21, c12), (c12, c22), (c22, c21), (c12, c11)):
        np.add(into, summand, out=into)
    np.subtract(t, b21, out=t)
    _winograd(a22, t, c11, deeper)
    np.subtract(c21, c11, out=c21)
    _winograd(a12, b21, c11, deeper)
    np.add(c11, x, out=c11)


def _quarters(matrix: Any, half: int) -> tuple[Any, Any, Any, Any]:
    top, bottom = matrix[:half], matrix[half:]
    return top[:, :half], top[:, half:], bottom[:, :half], bottom[:, half:]
