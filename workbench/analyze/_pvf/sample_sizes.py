"""How many faults to inject for an error of a given size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workbench._numbers import share_between
from workbench.analyze._pvf.strata import strata
from workbench.errors import WorkbenchError
from workbench.tables import INJECTION_SAMPLE_SIZES, ExhaustiveInjections, Injections

_INPUTS = ("one", "all")


def injection_sample_sizes(
    pilot_or_truth: Injections | Sequence[Injections] | ExhaustiveInjections,
    *,
    relative_error: float | Sequence[float] = 0.1,
    absolute_error: float = 0.01,
    level_share: float | Sequence[float] = 0.95,
) -> pd.DataFrame:
    """Say how many faults to inject, under each of the designs in use.

    The usual count (Leveugle) asks for an error of 1 percentage point, which says nothing about
    factors far below 1 %: expect less than one wrong output then. A relative error needs more
    sites, and strata by bit need far fewer of them.

    Parameters
    ----------
    pilot_or_truth
        A first campaign of single flips, or every fault; what to expect is taken from it.
    relative_error
        Half the width of the interval over the factor; several give the rows of each.
    absolute_error
        Half the width of the interval itself, for ``leveugle``.
    level_share
        Confidence of the interval; several give the rows of each.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INJECTION_SAMPLE_SIZES`, rows by confidence, component,
        design, whether a site is judged on one input or all, and error.

    Raises
    ------
    WorkbenchError
        If an error or the confidence is out of range, or the bits are not known.

    Notes
    -----
    With z of the confidence, r the relative error, P the factor, W the share of the bits in a
    stratum (a bit place) and s the spread between its sites: uniform n = (z/r)**2 s**2 / P**2,
    proportional (z/r)**2 sum(W s**2) / P**2, Neyman (z/r)**2 sum(W s)**2 / P**2. With one input
    per site s**2 = p (1 - p). A pilot that saw no event in a stratum takes its spread for 0: then
    these are lower ends. Wrong outputs of ``leveugle`` are counted with one input per site.

    References
    ----------
    R. Leveugle and others, DATE 2009, 502. J. Neyman, J. R. Stat. Soc. 97 (1934), 558.
    """
    errors = [share_between("relative_error", each) for each in _listed(relative_error)]
    levels = [share_between("level_share", each) for each in _listed(level_share)]
    share_between("absolute_error", absolute_error)
    rows: list[dict[str, Any]] = []
    parts = list(strata(pilot_or_truth, ("bit",)).groupby("part", sort=False))
    for share, (component, part) in itertools.product(levels, parts):
        known = _known(part)
        count = leveugle_count(known["bits"], error=absolute_error, level_share=share)
        shared = {"group": str(component), "pvf": known["pvf"], "level_share": share}
        rows.append(
            {"design": "leveugle", "inputs": "one", "error": absolute_error,
             "error_kind": "absolute", "site_count": count,
             "expected_event_count": count * known["pvf"]} | shared
        )  # fmt: skip
        z = float(stats.norm.isf((1 - share) / 2))
        rows += [
            {"inputs": inputs, "error": error, "error_kind": "relative"} | shared | each
            for inputs, error in itertools.product(_INPUTS, errors)
            for each in _designs(part, known["pvf"], (z / error) ** 2, inputs)
        ]
    return INJECTION_SAMPLE_SIZES.check(INJECTION_SAMPLE_SIZES.cast(pd.DataFrame(rows)))


def _listed(values: float | Sequence[float]) -> list[float]:
    listed: list[float] = np.atleast_1d(values).tolist()
    return listed


def _known(part: pd.DataFrame) -> dict[str, float]:
    bits = float(part["bit_count"].sum())
    return {"bits": bits, "pvf": float((part["bit_count"] * part["pvf"]).sum() / bits)}


def _designs(part: pd.DataFrame, factor: float, scale: float, inputs: str) -> list[dict[str, Any]]:
    weight = (part["bit_count"] / part["bit_count"].sum()).to_numpy()
    mean, event = part["pvf"].to_numpy(), part["event_share"].to_numpy()
    spread = part["spread"].to_numpy()
    whole = float((weight * (spread**2 + mean**2)).sum()) - factor**2
    if inputs == "one":
        spread, event = np.sqrt(mean * (1 - mean)), mean
        whole = factor * (1 - factor)
    needed = {
        "uniform": whole,
        "proportional": float((weight * spread**2).sum()),
        "neyman": float((weight * spread).sum()) ** 2,
    }
    drawn = dict.fromkeys(needed, weight)
    if needed["neyman"] > 0:
        drawn["neyman"] = weight * spread / (weight * spread).sum()
    rows = []
    for design, variance in needed.items():
        count = scale * variance / factor**2 if factor > 0 else np.nan
        events = count * float((drawn[design] * event).sum())
        rows.append({"design": design, "site_count": count, "expected_event_count": events})
    return rows


def leveugle_count(
    population: float, *, error: float = 0.01, share: float = 0.5, level_share: float = 0.95
) -> float:
    """Give the number of faults by the formula that most campaigns cite.

    Parameters
    ----------
    population
        Faults that could be injected.
    error
        Half the width of the interval, as a share: 0.01 is one percentage point.
    share
        The share that is expected; 0.5 is the worst case.
    level_share
        Confidence.

    Returns
    -------
    float
        Faults to inject; round up.

    Raises
    ------
    WorkbenchError
        If an argument is out of range.

    Notes
    -----
    n = N / (1 + e**2 (N - 1) / (z**2 p (1 - p))).

    References
    ----------
    R. Leveugle and others, Statistical fault injection, DATE 2009, 502, equation 3.

    Examples
    --------
    >>> round(leveugle_count(821_280))
    9493
    """
    share_between("level_share", level_share)
    if not (population >= 1 and error > 0 and 0 < share < 1):
        msg = (
            f"population={population!r} must be 1 or more, error={error!r} above 0 and "
            f"share={share!r} between 0 and 1"
        )
        raise WorkbenchError(msg)
    z = float(stats.norm.isf((1 - level_share) / 2))
    return population / (1 + error**2 * (population - 1) / (z**2 * share * (1 - share)))
