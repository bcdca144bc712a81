"""How far the clock of a meter is off: power compared with when the job log says it worked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench._shared.numbers import positive
from workbench.analyze._fleet.step_energy import middles_of
from workbench.analyze._lib import intervals
from workbench.analyze._lib.energy_curves import SECOND, Floats, Ints
from workbench.errors import WorkbenchError
from workbench.tables import LOGGED_SPANS, POWER_CLOCK_OFFSET, POWER_TOTALS

_FINE = 20  # offsets per cell, once the best cell is known
_DRAWS = 400
_LEAST_CELLS = 16
# Another offset that fits better in more than this share of resamplings is as good.
_BY_CHANCE = 0.05
_LEAST_CORRELATION = 0.3


def power_clock_offset(
    totals: pd.DataFrame,
    work: pd.DataFrame,
    *,
    longest_offset_s: float = 60.0,
    draws_more: bool = True,
    seed: int = 0,
) -> pd.DataFrame:
    """Find the offset at which power and the job log agree best about when the job worked.

    Power rises when steps begin and falls when they pause: for evaluations, checkpoints,
    restarts, and before and after the run. The log, moved by the right offset, has its pauses
    where power is low. Pauses that repeat alike fit again one repetition further on; then the
    answer is ambiguous and says so. Steps that follow each other without a pause tell nothing.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`: one uniform series, its cells not longer than
        the pauses.
    work
        Table :data:`workbench.tables.LOGGED_STEPS`; or rows of
        :data:`workbench.tables.LOGGED_SPANS` of kinds at which power is the same, e.g. evaluations.
    longest_offset_s
        Offsets up to this are tried, both ways, in s.
    draws_more
        Whether power is higher during ``work``: True for steps, False for evaluations.
    seed
        Of the resampling behind the interval.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_CLOCK_OFFSET`, one row. Pass ``offset_s`` on as
        ``clock_offset_s``. Where it cannot be told it is missing, and ``doubt`` says why.

    Raises
    ------
    WorkbenchError
        If the series is not uniform, or an option is not a positive number.

    Notes
    -----
    Per offset, the correlation over known cells of mean power and the share of the cell that
    ``work`` covers; cell by cell first, then in twentieths of a cell around the best. The interval
    resamples blocks of about thirty cells (400 times), and is never narrower than a twentieth. It
    does not hold what delays every reading alike: a sensor that averages, or steps that begin
    with little power. Ambiguous is what another offset beats in more than 5 % of resamplings.

    Examples
    --------
    >>> from workbench.tables import POWER_TOTALS
    >>> totals = pd.DataFrame({"time_ns": np.arange(300) * 10**9, "power_w": 100.0})
    >>> totals.loc[102:251, "power_w"] = 400.0
    >>> totals = totals.assign(entity_count=1, expected_count=1, covered_share=1.0)
    >>> work = pd.DataFrame({"start_ns": [100 * 10**9], "end_ns": [250 * 10**9]})
    >>> print(power_clock_offset(totals, work)["offset_s"].item())
    2.0
    """
    most = positive("longest_offset_s", longest_offset_s)
    pattern = _pattern(work)
    if not len(pattern[0]):
        return _table(doubt="there is no work to compare power with", cell_count=0)
    cells = _cells(totals, pattern, most)
    if len(cells.watts) < _LEAST_CELLS:
        doubt = (
            f"only {len(cells.watts)} cells with power lie within {most:g} s of the work; "
            f"{_LEAST_CELLS} are needed. Are power and job log of one time and zone?"
        )
        return _table(doubt=doubt, cell_count=len(cells.watts))
    sign = 1.0 if draws_more else -1.0
    coarse = np.arange(-np.ceil(most / cells.period_s), np.ceil(most / cells.period_s) + 1)
    coarse = coarse[np.abs(coarse * cells.period_s) <= most] * cells.period_s
    fit = sign * np.array([cells.correlation(offset) for offset in coarse])
    if np.isnan(fit).all():
        doubt = "power or work never changes, so no offset can be estimated"
        return _table(doubt=doubt, cell_count=len(cells.watts))
    best = _refined(cells, float(coarse[np.nanargmax(fit)]), sign)
    second = _second(coarse, fit)
    refined = _refined(cells, second, sign) if second is not None else None
    low, high = _interval(cells, best[0], sign, seed)
    row = {"offset_s": best[0], "low_s": low, "high_s": high, "correlation": sign * best[1]}
    if refined:
        row |= {"next_offset_s": refined[0], "next_correlation": sign * refined[1]}
    as_good = _as_good_share(cells, best[0], refined[0] if refined else None, sign, seed)
    return _table(**row, doubt=_doubt(best, refined, as_good, most), cell_count=len(cells.watts))


@dataclass(frozen=True)
class _Cells:
    """Cells with power, and the time of work up to any moment."""

    middle_ns: Ints
    watts: Floats
    period_s: float
    edges_ns: Ints
    worked_s: Floats  # up to each edge

    def work(self, offset_s: float) -> Floats:
        """Return the share of each cell that is work, if the meter's clock is ahead by this."""
        half, origin = self.period_s / 2, self.edges_ns[0]
        middle = (self.middle_ns - origin) / SECOND - offset_s
        at = (self.edges_ns - origin) / SECOND
        since, until = (np.interp(middle + by, at, self.worked_s) for by in (-half, half))
        return np.asarray((until - since) / self.period_s)

    def correlation(self, offset_s: float) -> float:
        """Correlate power with work at an offset; missing if either never changes."""
        work = self.work(offset_s)
        if work.std() < 1e-9 or self.watts.std() < 1e-9:
            return float("nan")
        return float(np.corrcoef(self.watts, work)[0, 1])


def _pattern(work: pd.DataFrame) -> tuple[Ints, Floats]:
    """Return the edges of the work, and the time of work up to each."""
    if misses := [name for name in ("start_ns", "end_ns") if name not in work]:
        msg = f"work needs the columns start_ns and end_ns, but {misses} is missing; pass steps"
        raise WorkbenchError(msg)
    ended = work[work["end_ns"].notna()]
    starts, ends = intervals.union(
        ended["start_ns"].to_numpy(dtype=np.int64), ended["end_ns"].to_numpy(dtype=np.int64)
    )
    edges = np.stack([starts, ends], axis=1).ravel()
    lasted = np.stack([np.zeros(len(starts)), (ends - starts) / SECOND], axis=1).ravel()
    return edges, np.cumsum(lasted)


def _cells(totals: pd.DataFrame, pattern: tuple[Ints, Floats], most_s: float) -> _Cells:
    middles, watts = middles_of(totals)
    edges, worked = pattern
    reach = round(most_s * SECOND)
    near = (middles >= edges[0] - reach) & (middles <= edges[-1] + reach) & ~np.isnan(watts)
    period_s = float(np.median(np.diff(middles))) / SECOND if len(middles) > 1 else 1.0
    return _Cells(middles[near], watts[near], period_s, edges, worked)


def _refined(cells: _Cells, around_s: float, sign: float) -> tuple[float, float]:
    """Return the best offset within a cell of one, and its correlation."""
    tried = around_s + np.arange(-_FINE, _FINE + 1) / _FINE * cells.period_s
    fit = np.array([sign * cells.correlation(offset) for offset in tried])
    at = int(np.nanargmax(np.where(np.isnan(fit), -np.inf, fit)))
    return round(float(tried[at]), 6), float(fit[at])


def _second(offsets: Floats, fit: Floats) -> float | None:
    """Return the highest other peak: beyond a valley, not merely beside the first."""
    values = np.nan_to_num(fit, nan=-1.0)
    best = int(values.argmax())
    inner = np.flatnonzero(
        (values >= np.r_[-np.inf, values[:-1]]) & (values >= np.r_[values[1:], -np.inf])
    )
    # A shoulder within noise of the peak is not a peak of its own.
    peaks = [
        at for at in inner.tolist()
        if at != best and values[min(at, best) : max(at, best) + 1].min() < 0.9 * values[at]
    ]  # fmt: skip
    return float(offsets[max(peaks, key=lambda at: values[at])]) if peaks else None


def _redrawn(cells: _Cells, offsets: Floats, sign: float, seed: int) -> Floats:
    """Correlate at some offsets, each for many resamplings of blocks of cells."""
    count = max(len(cells.watts) // 30, 8)
    block = np.arange(len(cells.watts)) * count // len(cells.watts)
    x = cells.watts - cells.watts.mean()
    sums = np.empty((5, len(offsets), count))
    for row, offset in enumerate(offsets):
        y = cells.work(offset)
        for term, values in enumerate((x, y, x * y, x * x, y * y)):
            sums[term, row] = np.bincount(block, weights=values, minlength=count)
    sizes = np.bincount(block, minlength=count)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=_DRAWS)
    n = weights @ sizes
    sx, sy, sxy, sxx, syy = (term @ weights.T for term in sums)
    with np.errstate(invalid="ignore", divide="ignore"):
        fit = (sxy - sx * sy / n) / np.sqrt((sxx - sx**2 / n) * (syy - sy**2 / n))
    return np.asarray(np.nan_to_num(sign * fit, nan=-2.0))


def _interval(cells: _Cells, best_s: float, sign: float, seed: int) -> tuple[float, float]:
    tried = best_s + np.arange(-2 * _FINE, 2 * _FINE + 1) / _FINE * cells.period_s
    offsets = tried[_redrawn(cells, tried, sign, seed).argmax(axis=0)]
    low, high = np.quantile(offsets, [0.025, 0.975])
    half = cells.period_s / _FINE / 2
    return min(float(low), best_s - half), max(float(high), best_s + half)


def _as_good_share(
    cells: _Cells, best_s: float, other_s: float | None, sign: float, seed: int
) -> float:
    """Return the share of resamplings in which another offset fits better than the best."""
    if other_s is None:
        return 0.0
    best, second = _redrawn(cells, np.array([best_s, other_s]), sign, seed)
    return float((second >= best).mean())


def _doubt(
    best: tuple[float, float], second: tuple[float, float] | None, as_good: float, most_s: float
) -> str:
    """Explain why an offset is not to be relied on."""
    if best[1] < _LEAST_CORRELATION:
        return (
            f"power hardly follows the work (correlation {best[1]:.2f}), so the offset means little"
        )
    if second and as_good > _BY_CHANCE:
        apart = abs(second[0] - best[0])
        return (
            f"{second[0]:+.1f} s fits as well (correlation {second[1]:.2f} against {best[1]:.2f}): "
            f"the pattern repeats every {apart:.1f} s"
        )
    if abs(best[0]) > 0.98 * most_s:
        return f"the best offset is the longest that was tried; try more than {most_s:g} s"
    return ""


def _table(*, doubt: str, cell_count: int, **row: float) -> pd.DataFrame:
    names = ("offset_s", "low_s", "high_s", "correlation", "next_offset_s", "next_correlation")
    values = dict.fromkeys(names, np.nan) | row
    for name in ("correlation", "next_correlation"):
        values[name] = float(np.clip(values[name], -1, 1))
    full = values | {"is_ambiguous": bool(doubt), "doubt": doubt, "cell_count": cell_count}
    return POWER_CLOCK_OFFSET.of([full])


def clock_correction_s(offset: pd.DataFrame, *, least_s: float = 2.0) -> float:
    """Return the offset to pass on as ``clock_offset_s``: the one found, if it is surely large.

    Sensors that average, and steps that begin with little power, delay power by a second or so
    on clocks that agree. An offset of half a minute is a clock that is wrong, and whatever is
    joined with the job log would be wrong with it.

    Parameters
    ----------
    offset
        Table :data:`workbench.tables.POWER_CLOCK_OFFSET`.
    least_s
        Offsets whose interval reaches below this, in s, are left alone.

    Returns
    -------
    float
        ``offset_s``, or 0 where it is missing, ambiguous or small.

    Raises
    ------
    WorkbenchError
        If ``least_s`` is not a positive number.

    Examples
    --------
    >>> found = {"offset_s": 29.9, "low_s": 29.6, "high_s": 30.1, "correlation": 0.9}
    >>> found |= {"next_offset_s": 3.0, "next_correlation": 0.2, "is_ambiguous": False}
    >>> clock_correction_s(pd.DataFrame([found | {"doubt": "", "cell_count": 600}]))
    29.9
    """
    POWER_CLOCK_OFFSET.check(offset)
    least = positive("least_s", least_s)
    if offset.empty:
        return 0.0
    row = offset.iloc[0]
    if pd.isna(row["offset_s"]) or row["is_ambiguous"]:
        return 0.0
    is_large = row["low_s"] > least or row["high_s"] < -least
    return float(row["offset_s"]) if is_large else 0.0


def power_during(totals: pd.DataFrame, spans: pd.DataFrame, *, kind: str = "run") -> pd.DataFrame:
    """Keep the cells from the first start to the last end of one kind of span.

    Meters run before a job and after it. What lies outside of the run belongs to its mean, its
    spectrum and its swings as little as another job does.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`.
    kind
        Kind of span. Without a span of this kind that has an end, all cells are kept.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_TOTALS`: ``time_ns``, ``power_w``, ``entity_count``,
        ``expected_count``, ``covered_share``, ``meter_period_s``. Only whole cells are kept;
        those before the first and after the last that has power are dropped as well, because
        the meters did not run.

    Examples
    --------
    >>> power_during(POWER_TOTALS.empty(), LOGGED_SPANS.empty()).empty
    True
    """
    POWER_TOTALS.check(totals)
    LOGGED_SPANS.check(spans)
    ended = spans[(spans["kind"] == kind) & spans["end_ns"].notna()]
    if ended.empty or len(totals) < 2:
        return totals
    cell_ns = int(totals["time_ns"].iloc[1] - totals["time_ns"].iloc[0])
    starts = totals["time_ns"].to_numpy()
    inside = (starts >= ended["start_ns"].min()) & (starts + cell_ns <= ended["end_ns"].max())
    measured = np.flatnonzero(inside & totals["power_w"].notna().to_numpy())
    if len(measured):
        inside[: measured[0]] = inside[measured[-1] + 1 :] = False
    return POWER_TOTALS.check(totals.loc[inside].reset_index(drop=True))
