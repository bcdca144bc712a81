"""Ramps and bands of power, and the energy of many entities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from claims._tables import BAND_SHARES, ENERGY_TOTAL, POWER_RAMPS
from workbench._shared.numbers import not_negative, positive
from workbench.analyze._lib import intervals
from workbench.analyze._lib.energy_curves import refuse_double_counting
from workbench.analyze._power.series import uniform
from workbench.analyze._power.spectrum import periodogram, ramps_of
from workbench.errors import WorkbenchError
from workbench.tables import ENERGY

_NS = 1e9


def power_ramps(totals: pd.DataFrame, *, windows_s: Sequence[float] = (1, 10, 60)) -> pd.DataFrame:
    """Find the fastest rise and fall of power over each window.

    The same fall is 45 kW/s over 2 s and 1 kW/s over a minute. A window shorter than a cell, or
    than the time between two readings, is listed without a number.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    windows_s
        Windows in seconds; each is measured over the nearest whole number of cells.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.POWER_RAMPS`, two rows per window. ``note`` says why a
        number is missing, or that the meter may have seen a part of the change only.

    Raises
    ------
    WorkbenchError
        If there is no window, one is not above 0, or the totals are not uniform.

    Notes
    -----
    The ramp over a window of *w* is ``max |P(t + w) - P(t)| / w`` over all *t* at which both
    cells are known. Nothing is interpolated.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": range(0, 4_000_000_000, 1_000_000_000)})
    >>> cells = cells.assign(power_w=[5.0, 5, 9, 8], entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> power_ramps(cells, windows_s=[1])["ramp_w_per_s"].tolist()
    [4.0, 1.0]
    """
    windows = [positive("each of windows_s", window) for window in windows_s]
    if not windows:
        msg = "windows_s is empty; give at least one window in seconds"
        raise WorkbenchError(msg)
    series = uniform(totals)
    return POWER_RAMPS.of([row for window in windows for row in ramps_of(series, window)])


def band_shares(
    totals: pd.DataFrame, bands: Sequence[tuple[float, float]], *, longest_gap_cells: int = 2
) -> pd.DataFrame:
    """Split the AC component of power over bands of frequencies.

    Specifications limit the share of the energy inside a band. The share is of what the meter can
    see; ``visible_share`` says how much of a band's width is below Nyquist.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    bands
        Pairs of lower and upper end in Hz; they may overlap or leave gaps.
    longest_gap_cells
        As in :func:`power_spectrum`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.BAND_SHARES`, one row per band, in the order given.

    Raises
    ------
    WorkbenchError
        If there is no band, one is not a pair of rising numbers, or the totals are not uniform.

    Notes
    -----
    One periodogram of the whole (Hann window, mean removed), because averaged segments cannot
    tell frequencies below ``1 / segment`` from a trend. The share of a band is its sum over
    ``low < f <= high``, divided by the sum over all ``f > 0``.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": np.arange(512) * 1_000_000_000})
    >>> cells = cells.assign(power_w=9 + np.sin(np.arange(512) * np.pi / 4), entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> band_shares(cells, [(0, 0.1), (0.1, 0.2)])["energy_share"].round(3).tolist()
    [0.0, 1.0]
    """
    pairs = [_ends(band) for band in bands]
    if not pairs:
        msg = "bands is empty; give pairs of frequencies in Hz, e.g. [(0.1, 20)]"
        raise WorkbenchError(msg)
    series = uniform(totals)
    result = periodogram(series, longest_gap_cells=longest_gap_cells)
    nyquist = series.nyquist_hz
    rows = []
    for low, high in pairs:
        seen = low < nyquist
        visible = (min(high, nyquist) - low) / (high - low) if seen else 0.0
        share, rms = (result.share(low, high), result.rms(low, high)) if seen else (np.nan, np.nan)
        rows.append((low, high, share, rms, visible, nyquist, result.covered_share))
    return BAND_SHARES.of(rows)


def _ends(band: Sequence[float]) -> tuple[float, float]:
    if len(band) != 2:
        msg = f"a band is a pair of frequencies in Hz, not {band!r}"
        raise WorkbenchError(msg)
    low = not_negative("the lower end of a band", band[0])
    high = positive("the upper end of a band", band[1])
    if low >= high:
        msg = f"the band {low:g}-{high:g} Hz is empty; its lower end must come first"
        raise WorkbenchError(msg)
    return low, high


def energy_total(energy: pd.DataFrame, *, entities: pd.DataFrame | None = None) -> pd.DataFrame:
    """Sum the energy of many entities, with the share of their time that is known.

    A GPU and the node around it must not be summed, nor the AC and the DC meter of one host;
    ``entities`` chooses.

    Parameters
    ----------
    energy
        Table :data:`workbench.tables.ENERGY` of one window and one method.
    entities
        Rows of table :data:`workbench.tables.POWER_ENTITIES` to sum, e.g.
        ``entities[entities.scope == "node_ac"]``; those without an energy count as expected
        and unknown. By default all of ``energy``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.ENERGY_TOTAL`, one row.

    Raises
    ------
    WorkbenchError
        If windows or methods differ, nothing is to be summed, or one entity holds another.

    Examples
    --------
    >>> readings = pd.DataFrame(
    ...     {"time_ns": [0, 10**9] * 2, "entity": list("aabb"), "power_w": [100.0, 300, 50, 50]}
    ... ).astype({"entity": "category"})
    >>> from workbench.analyze import energy
    >>> energy_total(energy(readings))[["energy_j", "entity_count"]].values.tolist()
    [[250.0, 2.0]]
    """
    ENERGY.check(energy)
    expected = refuse_double_counting(energy["entity"], entities)
    chosen = energy[energy["entity"].isin(expected)]
    if chosen.empty:
        msg = "there is no energy to sum; none of the entities has a row"
        raise WorkbenchError(msg)
    kinds = chosen[["method", "start_ns", "end_ns"]].drop_duplicates()
    if len(kinds) > 1 or chosen["entity"].duplicated().any():
        msg = (
            "energies of different windows or methods, or of one entity twice, do not add up; "
            f"the first differ in:\n{kinds.head(3).to_string(index=False)}"
        )
        raise WorkbenchError(msg)
    (kind,) = kinds.to_dict("records")
    window_s = (kind["end_ns"] - kind["start_ns"]) / _NS
    covered_s = float((window_s - chosen["unknown_s"]).clip(lower=0).sum())
    row = kind | {
        "energy_j": chosen["energy_j"].sum(min_count=1),
        "bridged_j": chosen["bridged_j"].sum(min_count=1),
        # One entity without an upper end leaves the sum without one.
        "highest_j": chosen["highest_j"].sum(min_count=len(expected)),
        "mean_w": _mean_w(chosen),
        "covered_share": min(covered_s / (window_s * len(expected)), 1.0),
        "unknown_s": max(window_s * len(expected) - covered_s, 0.0),
        "entity_count": int(chosen["energy_j"].notna().sum()),
        "expected_count": len(expected),
    }
    return ENERGY_TOTAL.of([row])


def _mean_w(energy: pd.DataFrame) -> float:
    """Weigh the mean of each entity by the time that it was metered, of that of any."""
    valid = energy[energy["mean_w"].notna() & energy["first_ns"].notna()]
    first, last = (valid[name].to_numpy(dtype=np.int64) for name in ("first_ns", "last_ns"))
    any_ns = intervals.measure(first, last)
    if any_ns == 0:
        return float("nan")
    return float((valid["mean_w"].to_numpy() * (last - first)).sum() / any_ns)
