"""A checksum that notices soft errors in quantised embedding tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import InjectionError
from workbench.simulate.injections._arguments import sizes, whole_number
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.protections.gemm_checksum import trials
from workbench.tables import DETECTOR_TRIALS

_ROWS, _CHUNK = 20_000, 256
_BITS, _HIGH_BITS = 8, 4


class ChecksumBags:
    """Adds up rows of a quantised table, and checks every sum by the sums of the rows.

    Parameters
    ----------
    codes
        uint8 tensor [rows x dim]; a value is code x scale + bias of its row.
    scale, bias
        float32 tensors [rows].

    Raises
    ------
    InjectionError
        If the shapes or types do not fit.

    Notes
    -----
    r = Σ_c code_c is stored for every row. The elements of a bag's sum, added up, must be
    Σ_l (r_l · scale_l + dim · bias_l) over its rows l. Both sides round, so the check needs
    a tolerance: alarm if |difference| > tolerance · max(1, |right side|).

    References
    ----------
    Li et al.: Efficient Soft-Error Detection for Low-precision Deep Learning Recommendation
    Models. arXiv:2103.00130.
    """

    def __init__(self, codes: Any, scale: Any, bias: Any) -> None:
        if codes.dtype != torch().uint8 or codes.ndim != 2:
            kind = f"{codes.dtype} of shape {tuple(codes.shape)}"
            msg = f"codes is {kind}; give a uint8 table [rows x dim]"
            raise InjectionError(msg)
        for name, each in (("scale", scale), ("bias", bias)):
            if each.shape != codes.shape[:1]:
                msg = f"{name} has shape {tuple(each.shape)} for {len(codes)} rows; one per row"
                raise InjectionError(msg)
        self.codes, self.scale, self.bias = codes, scale.float(), bias.float()
        self.row_sums = codes.sum(1, dtype=torch().int32)

    def run(self, rows: Any, *, tolerance: float = 1e-6) -> tuple[Any, Any]:
        """Add up bags of rows [bags x rows per bag].

        Returns
        -------
        tuple
            Sums, float32 [bags x dim]; whether the check of each bag found an error, bool.
        """
        sums = self.sums(rows, self.codes[rows])
        return sums, ~(self.residuals(rows, sums) <= tolerance)

    def sums(self, rows: Any, codes: Any) -> Any:
        """Add up looked-up codes [bags x rows per bag x dim], scaled as their rows are."""
        return (codes.float() * self.scale[rows][..., None] + self.bias[rows][..., None]).sum(1)

    def residuals(self, rows: Any, sums: Any) -> Any:
        """Say per bag how far its sum is from the checksum, relative to max(1, |checksum|)."""
        dim = self.codes.shape[1]
        expected = self.row_sums[rows].float() * self.scale[rows] + dim * self.bias[rows]
        return relative(sums.sum(1), expected.sum(1))


def relative(found: Any, expected: Any) -> Any:
    """Give |difference| over max(1, |expected|); infinite where it is not a number."""
    residual = (found - expected).abs() / expected.abs().clamp(min=1)
    return torch().nan_to_num(residual, nan=float("inf"))


def embedding_bag_checksum_trials(
    shape: tuple[int, int] = (100, 64), *, count: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Flip single bits of looked-up rows, and add up as many bags without a fault.

    Parameters
    ----------
    shape
        (rows per bag, dim) of a table of 20,000 rows; codes are uniform, scales 0.001 to
        0.003, biases -0.3 to 0.
    count
        Flips in the high nibble of a code; as many in the low one; as many clean bags.
    seed
        Of table, bags and flips.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DETECTOR_TRIALS`, one row per bag. ``residual`` is
        |difference| / max(1, |checksum|), so any tolerance can be tried on it; ``place`` names
        the nibble: flips in the high one are those that matter.

    Raises
    ------
    InjectionError
        If a size is no whole number from 1.
    MissingExtraError
        If PyTorch is not installed.

    References
    ----------
    arXiv:2103.00130, see :class:`ChecksumBags`.
    """
    pooling, dim = sizes("shape", shape, 2)
    count = whole_number("count", count, least=1)
    draws = np.random.default_rng(seed)
    bags = ChecksumBags(
        torch().from_numpy(draws.integers(0, 256, (_ROWS, dim)).astype(np.uint8)),
        torch().from_numpy(draws.uniform(1e-3, 3e-3, _ROWS)),
        torch().from_numpy(draws.uniform(-0.3, 0, _ROWS)),
    )
    parts = [
        _chunk(bags, draws, (min(_CHUNK, count - start), pooling), place)
        for place in ("nothing", "table row, high nibble", "table row, low nibble")
        for start in range(0, count, _CHUNK)
    ]
    return DETECTOR_TRIALS.check(pd.concat(parts, ignore_index=True))


def _chunk(
    bags: ChecksumBags, draws: np.random.Generator, shape: tuple[int, int], place: str
) -> pd.DataFrame:
    """Try one chunk of bags, each with one flip or none."""
    count, pooling = shape
    rows = torch().from_numpy(draws.integers(0, _ROWS, shape))
    codes = bags.codes[rows]
    golden = bags.sums(rows, codes)
    bits: list[int | None] = [None] * count
    if place != "nothing":
        lowest = _BITS - _HIGH_BITS if "high" in place else 0
        flipped = draws.integers(lowest, lowest + _HIGH_BITS, count)
        hit = torch().from_numpy(draws.integers(0, pooling, count))
        column = torch().from_numpy(draws.integers(0, codes.shape[2], count))
        # A row that is in the bag twice is read twice, with the fault both times.
        mask = torch().zeros_like(codes)
        twice = rows == rows.gather(1, hit[:, None])
        bag, repeat = torch().nonzero(twice, as_tuple=True)
        mask[bag, repeat, column[bag]] = torch().from_numpy((1 << flipped).astype(np.uint8))[bag]
        codes = codes ^ mask
        bits = flipped.tolist()
    sums = bags.sums(rows, codes)
    residual = bags.residuals(rows, sums).double().tolist()
    change = (sums - golden).abs().amax(1) / golden.abs().amax(1)
    listed = zip(bits, change.double().tolist(), residual, strict=True)
    return trials("embedding_bag_checksum", [(place, *each) for each in listed])
