"""What a grid allows a large load: ramps, range, and movement in critical frequencies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd

from workbench import datasets
from workbench._numbers import not_negative, positive, share_between
from workbench.errors import WorkbenchError

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
        Largest share of the energy of the movement of power inside that band.
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
        """Refuse a limit whose window or ends are missing."""
        has_ramp = self.ramp_up_w_per_s is not None or self.ramp_down_w_per_s is not None
        band = (self.band_low_hz, self.band_high_hz, self.band_share)
        problem = ""
        if has_ramp and self.ramp_window_s is None:
            problem = "a ramp needs its window; give ramp_window_s (60 for a limit per minute)"
        elif self.range_w is not None and self.range_window_s is None:
            problem = "a range needs range_window_s, the time power is averaged over (0: instants)"
        elif any(each is not None for each in band) and any(each is None for each in band):
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
        One of :func:`grid_spec_names`.

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
    known = _known()
    if name not in known:
        msg = f"no grid specification {name!r}; there are {list(known)}, or make a GridSpec(...)"
        raise WorkbenchError(msg)
    return known[name]


def grid_spec_names() -> list[str]:
    """Return the names of the bundled specifications.

    Returns
    -------
    list of str
        Names that :func:`grid_spec` knows.

    Examples
    --------
    >>> "critical band" in grid_spec_names()
    True
    """
    return list(_known())


@cache
def _known() -> dict[str, GridSpec]:
    rows = pd.read_csv(datasets.path("published") / _FILE).to_dict("records")
    return {str(row["name"]): _from_row({str(key): row[key] for key in row}) for row in rows}


def _from_row(row: dict[str, Any]) -> GridSpec:
    """Turn megawatts per window into house units."""
    number = {
        key: None if pd.isna(value) else float(value)
        for key, value in row.items()
        if key not in ("name", "trust", "source")
    }

    def scaled(key: str, by: float | None) -> float | None:
        value = number[key]
        return None if value is None or by is None else value * by

    window = number["ramp_window_s"]
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
