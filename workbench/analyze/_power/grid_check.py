"""Whether power stays within what a grid allows, and whether the meter could tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from workbench import datasets
from workbench._shared.numbers import not_negative, positive, share_between
from workbench.analyze._power.series import Series, at_meter_pace, longest_stretch, uniform
from workbench.analyze._power.spectrum import half_power_hz, periodogram, ramps_of
from workbench.errors import WorkbenchError
from workbench.tables import GRID_CHECK

_LEAST_CELLS = 16


def grid_check(
    totals: pd.DataFrame,
    spec: GridSpec,
    *,
    site_w: float | None = None,
    averaging_s: float | None = None,
    least_covered_share: float = 0.99,
) -> pd.DataFrame:
    """Compare power with every requirement of a grid: pass, fail, or unknown.

    A slow meter shows too little fluctuation, never too much: it can prove a violation, but
    compliance only where it could have shown one. Else a requirement is ``unknown``.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spec
        What is allowed; see :func:`grid_spec`.
    site_w
        Rating of what the totals meter. Limits in watts of a specification for a site of
        another rating are scaled in proportion; it is needed for those.
    averaging_s
        Time each reading is the mean of; None counts as at most one cell.
    least_covered_share
        With less of the time known, nothing is passed: the worst may lie in a gap.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.GRID_CHECK`, one row per requirement.

    Raises
    ------
    WorkbenchError
        If the specification is for a site and ``site_w`` is not given, an option is out of its
        range, or the totals are not uniform.

    Notes
    -----
    A ramp over a window passes only if the window is at least two cells, and twice the time
    between readings and the averaging time: a step shows in full across two. A range passes
    only if its averaging is at least a cell and the time between readings. A band passes only
    if it ends below Nyquist and below ``0.443 / averaging_s``; if more than the cap lies in the
    visible part it fails, which takes for granted that not much moves above the band.

    Examples
    --------
    >>> cells = pd.DataFrame({"time_ns": np.arange(512) * 1_000_000_000})
    >>> cells = cells.assign(power_w=9 + np.sin(np.arange(512) * np.pi / 40), entity_count=1)
    >>> cells = cells.assign(expected_count=1, covered_share=1.0)
    >>> band = GridSpec("band", band_low_hz=0.1, band_high_hz=20, band_share=0.2)
    >>> grid_check(cells, band)["verdict"].tolist()
    ['unknown']
    """
    if averaging_s is not None:
        not_negative("averaging_s", averaging_s)
    # 1 allows no gap at all; share_between would refuse it.
    if least_covered_share != 1:
        share_between("least_covered_share", least_covered_share)
    series = uniform(totals)
    rows = list(checked(series, _for_site(spec, site_w, series), averaging_s, least_covered_share))
    return GRID_CHECK.of(rows)


def _for_site(spec: GridSpec, site_w: float | None, series: Series) -> GridSpec:
    if spec.site_w is None:
        return spec
    if site_w is None:
        peak = float(np.nanmax(series.power_w))
        msg = (
            f"specification {spec.name!r} is for a site of {spec.site_w / 1e6:g} MW; give site_w, "
            f"the rating of what the totals meter (their peak is {peak / 1e6:.4g} MW), and its "
            "limits are scaled"
        )
        raise WorkbenchError(msg)
    return spec.scaled_to(site_w)


def checked(
    series: Series, spec: GridSpec, averaging_s: float | None, least_covered_share: float
) -> Iterator[dict[str, Any]]:
    resolved_s = max(series.resolved_s, averaging_s or 0.0)
    for row in (*_ramps(series, spec, resolved_s), *_range(series, spec, resolved_s)):
        yield _judged(row, spec, least_covered_share)
    if spec.band_share is not None:
        yield _judged(_band(series, spec, averaging_s), spec, least_covered_share)


def _ramps(series: Series, spec: GridSpec, resolved_s: float) -> Iterator[dict[str, Any]]:
    limits = {"up": spec.ramp_up_w_per_s, "down": spec.ramp_down_w_per_s}
    if spec.ramp_window_s is None:
        return
    window = spec.ramp_window_s
    # A change over a long window is also the mean of shorter ones, so it can prove too much.
    result = ramps_of(series, max(window, series.resolved_s))
    # Two means that do not overlap are needed for a change.
    seen = window >= 2 * resolved_s * (1 - 1e-9)
    why = f"largest change over {result[0]['measured_s']:g} s"
    if not seen:
        why += f"; {resolved_s:g} s of averaging show ramps over {window:g} s in part"
    for row in result:
        limit = limits[row["direction"]]
        if limit is not None:
            yield {
                "requirement": f"ramp {row['direction']} over {window:g} s",
                "limit": limit, "measured": row["ramp_w_per_s"], "unit": "W/s",
                "visible_share": 1.0 if seen else min(window / (2 * resolved_s), 1.0),
                "covered_share": row["covered_share"],
                "why": row["note"] if np.isnan(row["change_w"]) else why,
            }  # fmt: skip


def _range(series: Series, spec: GridSpec, resolved_s: float) -> Iterator[dict[str, Any]]:
    if spec.range_w is None or spec.range_window_s is None:
        return
    window = spec.range_window_s
    cells = max(round(window / series.period_s), 1)
    # A mean over a gap would be one of fewer cells, so windows with gaps drop out.
    power = pd.Series(series.power_w).rolling(cells).mean().dropna()
    seen = window >= resolved_s * (1 - 1e-9)
    why = f"largest - smallest mean of {cells * series.period_s:g} s"
    if not seen:
        why += f"; shorter extremes than {resolved_s:g} s are averaged away"
    yield {
        "requirement": "range of instants" if window == 0 else f"range of means of {window:g} s",
        "limit": spec.range_w,
        "measured": float(power.max() - power.min()) if len(power) else np.nan,
        "unit": "W",
        "visible_share": 1.0 if seen else window / resolved_s,
        "covered_share": series.known_share,
        "why": why,
    }


def _band(series: Series, spec: GridSpec, averaging_s: float | None) -> dict[str, Any]:
    low, high = float(spec.band_low_hz or 0), float(spec.band_high_hz or 0)
    nyquist = series.nyquist_hz
    # Beyond its half-power frequency the sensor averages away more than half of the power.
    top = min(high, nyquist, half_power_hz(averaging_s or 0.0))
    visible = max(top - low, 0.0) / (high - low)
    row = {
        "requirement": f"energy in {low:g}-{high:g} Hz", "limit": spec.band_share, "unit": "share",
        "low_hz": low, "high_hz": high, "visible_share": min(visible, 1.0),
        "measured": np.nan, "covered_share": series.known_share,
    }  # fmt: skip
    if low >= nyquist:
        return row | {"why": f"the band is above Nyquist ({nyquist:g} Hz): nothing of it is seen"}
    # Cells finer than the meter repeat its readings, and would pass as resolution.
    stretch = longest_stretch(at_meter_pace(series), longest_gap_cells=2, least_cells=1)
    if len(stretch.power_w) < _LEAST_CELLS:
        return row | {"why": f"fewer than {_LEAST_CELLS} cells without a gap", "visible_share": 0.0}
    result = periodogram(series, longest_gap_cells=2)
    why = "share of the energy at 0 < f <= Nyquist"
    if visible < 1:
        cause = "Nyquist" if top == nyquist else "the sensor's averaging"
        why = f"{visible:.1%} of the band is visible: {cause} ends it at {top:.3g} Hz"
    return row | {
        "measured": result.share(low, min(high, nyquist)), "why": why,
        "covered_share": result.covered_share,
    }  # fmt: skip


def _judged(row: dict[str, Any], spec: GridSpec, least_covered_share: float) -> dict[str, Any]:
    # What is seen can fail; a requirement passes only if all of it could be seen.
    measured, limit = row["measured"], row["limit"]
    verdict = "unknown"
    why = row["why"]
    # A share or sum at its limit may miss it by its rounding.
    if measured > limit * (1 + 1e-9):
        verdict = "fail"
    elif not np.isnan(measured) and row["visible_share"] >= 1 - 1e-9:
        verdict = "pass"
        if row["covered_share"] < least_covered_share:
            verdict = "unknown"
            why += f"; only {row['covered_share']:.1%} of the time is known"
    return {
        "low_hz": np.nan, "high_hz": np.nan, **row,
        "spec": spec.name, "margin": limit - measured, "verdict": verdict, "why": why,
    }  # fmt: skip


# What a grid allows a large load: ramps, range, and fluctuation in critical frequencies.

_FILE = "grid_specs.csv"
_MEGA = 1e6


@dataclass(frozen=True)
class GridSpec:
    """Limits of a utility; what is None is not limited.

    Parameters
    ----------
    name
        What it is called in tables.
    ramp_up_w_per_s, ramp_down_w_per_s
        Fastest rise and fall of power, as a change over ``ramp_window_s``.
    ramp_window_s
        Window of both ramps: a limit per minute says nothing of a second.
    range_w
        Largest minus smallest power.
    range_window_s
        Time over which power is averaged before its range is taken; 0 for instants.
    band_low_hz, band_high_hz
        Critical band of frequencies.
    band_share
        Largest share of the energy of the AC component of power inside that band.
    site_w
        Rating of the site that ramps and range are for; None if they hold for any.
    trust
        Where it comes from: ``grid code``, ``example`` (of a paper), ``secondary`` or ``own``.
    source
        Reference, as printed under figures.

    Raises
    ------
    WorkbenchError
        If a number is out of its range, or one that needs another stands alone.
    """

    name: str
    ramp_up_w_per_s: float | None = None
    ramp_down_w_per_s: float | None = None
    ramp_window_s: float | None = None
    range_w: float | None = None
    range_window_s: float | None = None
    band_low_hz: float | None = None
    band_high_hz: float | None = None
    band_share: float | None = None
    site_w: float | None = None
    trust: str = "own"
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("ramp_up_w_per_s", "ramp_down_w_per_s", "ramp_window_s", "range_w", "site_w"):
            if (value := getattr(self, name)) is not None:
                positive(name, value)
        if self.range_window_s is not None:
            not_negative("range_window_s", self.range_window_s)
        if self.band_share is not None:
            share_between("band_share", self.band_share)
        self._check_pairs()

    def _check_pairs(self) -> None:
        has_ramp = self.ramp_up_w_per_s is not None or self.ramp_down_w_per_s is not None
        band = (self.band_low_hz, self.band_high_hz, self.band_share)
        problem = ""
        if has_ramp and self.ramp_window_s is None:
            problem = "a ramp needs its window; give ramp_window_s (60 for a limit per minute)"
        elif self.range_w is not None and self.range_window_s is None:
            problem = "a range needs range_window_s, the time power is averaged over (0: instants)"
        elif any(end is not None for end in band) and any(end is None for end in band):
            problem = "a critical band needs band_low_hz, band_high_hz and band_share"
        elif not has_ramp and self.range_w is None and band[0] is None:
            problem = "it limits nothing; give ramps, range_w or a band"
        elif band[0] is not None and band[1] is not None:
            not_negative("band_low_hz", band[0])
            if positive("band_high_hz", band[1]) <= band[0]:
                problem = f"the band {band[0]:g}-{band[1]:g} Hz is empty"
        if problem:
            msg = f"specification {self.name!r}: {problem}"
            raise WorkbenchError(msg)

    def scaled_to(self, site_w: float) -> GridSpec:
        """Return the limits of a site of another rating, in proportion to it.

        Raises
        ------
        WorkbenchError
            If ``site_w`` is not above 0, or the specification names no site.
        """
        positive("site_w", site_w)
        if self.site_w is None:
            msg = f"specification {self.name!r} names no site, so nothing can be scaled"
            raise WorkbenchError(msg)
        ratio = site_w / self.site_w

        def scaled(limit: float | None) -> float | None:
            return None if limit is None else limit * ratio

        return replace(
            self,
            site_w=float(site_w),
            ramp_up_w_per_s=scaled(self.ramp_up_w_per_s),
            ramp_down_w_per_s=scaled(self.ramp_down_w_per_s),
            range_w=scaled(self.range_w),
        )


def grid_spec(name: str) -> GridSpec:
    """Look up a specification by its name, in the bundled ``published/grid_specs.csv``.

    Limits differ from utility to utility and few are public. These are for orientation; for a
    site make a :class:`GridSpec` of what its contract says.

    Parameters
    ----------
    name
        Such as ``"critical band"`` or ``"10 MW/min"``; an unknown one is answered with all names.

    Returns
    -------
    GridSpec
        Its limits; ``dataclasses.replace`` changes any of them, ``scaled_to`` all in watts.

    Raises
    ------
    WorkbenchError
        If it is not in the file.

    Examples
    --------
    >>> grid_spec("critical band").band_high_hz
    20.0
    >>> round(grid_spec("10 MW/min").scaled_to(15e6).ramp_up_w_per_s * 60)
    1000000
    """
    specs = _known()
    if name not in specs:
        msg = f"no grid specification {name!r}; there are {list(specs)}, or make a GridSpec(...)"
        raise WorkbenchError(msg)
    return specs[name]


@cache
def _known() -> dict[str, GridSpec]:
    rows = pd.read_csv(datasets.path("published") / _FILE).to_dict("records")
    return {str(row["name"]): _from_row({str(key): row[key] for key in row}) for row in rows}


def _from_row(row: dict[str, Any]) -> GridSpec:
    number = {
        key: None if pd.isna(value) else float(value)
        for key, value in row.items()
        if key not in ("name", "trust", "source")
    }

    def scaled(key: str, by: float | None) -> float | None:
        value = number[key]
        return None if value is None or by is None else value * by

    window = number["ramp_window_s"]
    # The file has megawatts per window, as utilities write them.
    per_window = None if window is None else _MEGA / window
    return GridSpec(
        name=str(row["name"]),
        ramp_up_w_per_s=scaled("ramp_up_mw", per_window),
        ramp_down_w_per_s=scaled("ramp_down_mw", per_window),
        ramp_window_s=window,
        range_w=scaled("range_mw", _MEGA),
        range_window_s=number["range_window_s"],
        band_low_hz=number["band_low_hz"],
        band_high_hz=number["band_high_hz"],
        band_share=number["band_share"],
        site_w=scaled("site_mw", _MEGA),
        trust=str(row["trust"]),
        source=str(row["source"]),
    )
