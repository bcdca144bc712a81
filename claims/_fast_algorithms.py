"""Coefficients of fast matrix multiplication, and tensor contractions as matrix products."""

from __future__ import annotations

import re
from fractions import Fraction
from math import isqrt, prod
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import guarded
from workbench.load._files.tables import left_out, whole_text
from workbench.tables import FAST_COEFFICIENTS, MATRIX_PRODUCTS

_CONTRACTION = re.compile(r"(\w+) +(\w+) +(\w+) *& *((?:\w:\d+;)+)")


def fast_algorithms(path: str | Path) -> pd.DataFrame:
    """Read coefficients of fast matrix multiplication.

    Parameters
    ----------
    path
        A file with the three matrices U, V, W of an algorithm, separated by lines that begin with
        ``#`` (rows: blocks of A, B, C; columns: products), or a folder of such files.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FAST_COEFFICIENTS`, one row per coefficient other than 0;
        algorithms are called as their files.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a file does not hold three matrices of fitting shapes; names the file and the line.
    """
    path = Path(path)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.suffix)
        files = [file for file in files if file.name != "LICENSE"]
    rows = [row for file in files for row in _rows(file)]
    if not rows:
        msg = f"{path}: no file of coefficients; files of fmm-gen have no suffix"
        raise LoadError(msg)
    table = pd.DataFrame(rows, columns=list(FAST_COEFFICIENTS.columns))
    return FAST_COEFFICIENTS.check(FAST_COEFFICIENTS.cast(table), str(path))


def _rows(path: Path) -> list[tuple[Any, ...]]:
    matrices: list[list[list[float]]] = [[]]
    for number, line in enumerate(whole_text(path).splitlines(), start=1):
        if line.startswith("#") and matrices[-1]:
            matrices.append([])
        elif line.strip() and not line.startswith("#"):
            try:
                matrices[-1].append([float(Fraction(cell)) for cell in line.split()])
            except (ValueError, ArithmeticError):
                msg = f"{path}, line {number}: {line[:60]!r} is not a row of numbers"
                raise LoadError(msg) from None
    matrices = [rows for rows in matrices if rows]
    widths = {len(row) for rows in matrices for row in rows}
    # U has m k rows, V k n, W m n, so their product is a square.
    heights = [len(rows) for rows in matrices]
    m = isqrt(heights[0] * heights[2] // heights[1]) if len(heights) == 3 else 0
    if (
        not m
        or len(widths) > 1
        or heights != [m * (k := heights[0] // m), k * (n := heights[2] // m), m * n]
    ):
        msg = f"{path}: {len(heights)} matrices of {heights} rows and {sorted(widths)} columns; "
        raise LoadError(
            msg + "three of m k, k n and m n rows with one column per product are needed"
        )
    return [
        (path.name, m, k, n, operand, block, product, value)
        for operand, rows in zip("ABC", matrices, strict=True)
        for block, row in enumerate(rows)
        for product, value in enumerate(row)
        if value
    ]


def tensor_contractions(path: str | Path) -> pd.DataFrame:
    """Read tensor contractions and fold each into a matrix product.

    Parameters
    ----------
    path
        A text file with lines such as ``abc acd db & a:480;b:480;c:480;d:480;``: the indices of
        C, A and B, and their sizes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MATRIX_PRODUCTS`: ``product`` (the indices), ``m_count``,
        ``n_count``, ``k_count``, ``call_count`` (1), ``basis``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If a line is not a contraction, or an index has no size or stands in one tensor only.

    Notes
    -----
    Indices of C and A make m, those of C and B make n, those of A and B make k.
    """
    rows = []
    for number, line in enumerate(whole_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        match = _CONTRACTION.fullmatch(line.strip())
        c, a, b = (set(match[at]) for at in (1, 2, 3)) if match else (set(), set(), set())
        sizes = dict(re.findall(r"(\w):(\d+)", match[4])) if match else {}
        sides = (c & a, c & b, a & b)
        if not match or set.union(*sides) != c | a | b or c & a & b or (c | a | b) - sizes.keys():
            msg = f"{path}, line {number}: {line[:60]!r} is not a contraction like "
            raise LoadError(msg + "'ab ac cb & a:8;b:8;c:8;' with each index in two tensors")
        with guarded(f"{path}, line {number}", "a contraction"):
            counts = [prod(int(sizes[index]) for index in side) for side in sides]
        rows.append((f"{match[1]} = {match[2]} {match[3]}", *counts, 1, "contraction"))
    table = pd.DataFrame(rows, columns=list(MATRIX_PRODUCTS.columns))
    return MATRIX_PRODUCTS.of(table, attrs={"left_out": left_out(Path(path))})
