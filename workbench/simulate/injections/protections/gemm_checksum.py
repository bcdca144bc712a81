"""A checksum that notices soft errors in a quantised matrix product."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._arguments import sizes, whole_number
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.bits import as_masks
from workbench.tables import DETECTOR_TRIALS

MODULUS = 127
_PADDED_TO = 8
_LONGEST_SUM = 2**31 // 128**2
_EXACT_SUM = 2**24 // 128**2


class ChecksumGemm:
    """Multiplies by an int8 matrix B, and checks every row of the result.

    One more column of B holds what its rows add up to, modulo 127. One product with
    ``[B | checksum]`` gives the result and what its rows should add up to.

    Parameters
    ----------
    b
        int8 tensor [k x n], as it is now: later changes of ``encoded`` are what the check
        is there to notice.

    Attributes
    ----------
    encoded
        ``[B | checksum | zeros]``, int8, padded to a multiple of 8 columns.

    Raises
    ------
    InjectionError
        If ``b`` is not an int8 matrix, or k is so large that int32 could overflow.

    Notes
    -----
    s_k = (Σ_j B_kj) mod 127 fits int8; row m is sound if (Σ_j C_mj - C_m,s) mod 127 = 0, summed
    in int64. 127 divides no power of two, so every flip of one bit in C is noticed; one in row k
    of B is noticed on row m unless A_mk is a multiple of 127. Faults in A cannot be noticed:
    the check only says that the product fits its operands.

    References
    ----------
    Li et al.: Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
    Models. arXiv:2103.00130. The modulus is chosen here.
    """

    def __init__(self, b: Any) -> None:
        _refuse_matrix(b, "B")
        self.shape: tuple[int, int] = tuple(b.shape)
        rows, columns = self.shape
        if rows >= _LONGEST_SUM:
            msg = (
                f"B has {rows:,} rows; int32 sums of int8 products are exact below {_LONGEST_SUM:,}"
            )
            raise InjectionError(msg)
        width = -(-(columns + 1) // _PADDED_TO) * _PADDED_TO
        self.encoded = torch().zeros((rows, width), dtype=torch().int8, device=b.device)
        self.encoded[:, :columns] = b
        self.encoded[:, columns] = b.sum(1, dtype=torch().int64) % MODULUS

    def product(self, a: Any) -> Any:
        """Give A x [B | checksum | zeros] in int32, unchecked."""
        return int8_product(a, self.encoded)

    def residuals(self, product: Any) -> Any:
        """Say per row how far a product is from its checksum, modulo 127; 0 is sound."""
        columns = self.shape[1]
        total = product[:, :columns].sum(1, dtype=torch().int64)
        return (total - product[:, columns]) % MODULUS

    def run(self, a: Any) -> tuple[Any, Any]:
        """Multiply int8 A [m x k] by B.

        Returns
        -------
        tuple
            C, int32 [m x n]; whether the check of each row found an error, bool [m].
        """
        product = self.product(a)
        return product[:, : self.shape[1]], self.residuals(product) != 0


def int8_product(a: Any, b: Any) -> Any:
    """Multiply int8 matrices into int32, exactly.

    Notes
    -----
    ``torch._int_mm`` is private, not for every device and shape, and slow on processors
    without 8-bit instructions. Elsewhere blocks of 1024 columns are multiplied in floating
    point: products of int8 add up to less than 2**24 there, so float32 holds them exactly.
    """
    _refuse_matrix(a, "A")
    fast = getattr(torch(), "_int_mm", None)
    if fast is not None and _has_byte_products(a):
        # It refuses shapes and devices that it has no kernel for.
        with contextlib.suppress(RuntimeError):
            return fast(a, b)
    exact = torch().float32 if a.device.type == "cpu" else torch().float64
    product = torch().zeros((len(a), b.shape[1]), dtype=torch().int32, device=a.device)
    for start in range(0, a.shape[1], _EXACT_SUM):
        block = slice(start, start + _EXACT_SUM)
        product += (a[:, block].to(exact) @ b[block].to(exact)).to(torch().int32)
    return product


def _has_byte_products(values: Any) -> bool:
    """Say whether the device multiplies bytes faster than floats."""
    if values.device.type != "cpu":
        return True
    return str(torch().backends.cpu.get_cpu_capability()).startswith("AVX512")


def _refuse_matrix(values: Any, name: str) -> None:
    if values.dtype != torch().int8 or values.ndim != 2:
        kind = f"{values.dtype} of shape {tuple(values.shape)}"
        msg = f"{name} is {kind}; the checksum is for int8 matrices"
        raise InjectionError(msg)


def gemm_checksum_trials(
    shape: tuple[int, int, int] = (32, 512, 512), *, count: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Flip single bits around a checked int8 product, and run it as often without a fault.

    Parameters
    ----------
    shape
        (m, k, n): A is [m x k] with values 0 .. 127, B is [k x n] with values -128 .. 127.
    count
        Flips in B after its encoding; as many in C before its check; as many clean runs.
    seed
        Of operands and flips.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTOR_TRIALS`, one row per product; ``residual`` is the
        largest of its rows, modulo 127: every fault above 0 is noticed.

    Raises
    ------
    InjectionError
        If a size is no whole number from 1.
    MissingExtraError
        If PyTorch is not installed.

    References
    ----------
    arXiv:2103.00130, see :class:`ChecksumGemm`.
    """
    m, k, n = sizes("shape", shape, 3)
    count = whole_number("count", count, least=1)
    draws = np.random.default_rng(seed)
    b = torch().from_numpy(draws.integers(-128, 128, (k, n)).astype(np.int8))
    gemm = ChecksumGemm(b)
    rows: list[tuple[str, int | None, float, float]] = []
    for _ in range(count):
        a = torch().from_numpy(draws.integers(0, 128, (m, k)).astype(np.int8))
        golden = gemm.product(a)
        rows.append(("nothing", None, 0.0, _worst(gemm, golden)))
        place, bit = (int(draws.integers(k)), int(draws.integers(n))), int(draws.integers(8))
        _flip(gemm.encoded, place, bit)
        faulty = gemm.product(a)
        _flip(gemm.encoded, place, bit)
        rows.append(("operand B", bit, _change(faulty, golden, n), _worst(gemm, faulty)))
        place, bit = (int(draws.integers(m)), int(draws.integers(n))), int(draws.integers(32))
        faulty = golden.clone()
        _flip(faulty, place, bit)
        rows.append(("output C", bit, _change(faulty, golden, n), _worst(gemm, faulty)))
    return trials("gemm_checksum", rows)


def trials(detector: str, rows: list[tuple[str, int | None, float, float]]) -> pd.DataFrame:
    """Give (place, bit, change of the output, residual) as the table of detector trials."""
    frame = pd.DataFrame(rows, columns=["place", "bit", "output_change", "residual"])
    frame["bit"] = frame["bit"].astype("Int16")
    frame["detector"] = detector
    frame["is_faulty"] = frame["bit"].notna().astype(bool)
    frame["is_effective"] = (frame["output_change"] > 0).astype(bool)
    return DETECTOR_TRIALS.check(frame[list(DETECTOR_TRIALS.columns)])


def _worst(gemm: ChecksumGemm, product: Any) -> float:
    return float(gemm.residuals(product).max())


def _change(faulty: Any, golden: Any, columns: int) -> float:
    """Give the largest change over the largest output."""
    golden = golden[:, :columns].double()
    most = float(golden.abs().max())
    return float((faulty[:, :columns].double() - golden).abs().max()) / (most or 1.0)


def _flip(values: Any, place: tuple[int, int], bit: int) -> None:
    """Flip a bit of one integer in place."""
    values[place] ^= as_masks(1 << bit, values)
