"""Dips: times at which power fell below what is usual, however long they last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from workbench._shared.numbers import Flags, not_negative, positive, share_between
from workbench.analyze._fleet.step_energy import middles_of
from workbench.analyze._lib import intervals
from workbench.analyze._lib.energy_curves import SECOND, Floats, offset_ns
from workbench.tables import DIP_CAUSES, FAILURES, LOGGED_SPANS, LOGGED_STEPS, POWER_DIPS

_AT_WORK = 0.9  # quantile of the series that stands for power at work
_ROUNDS = 4


def power_dips(
    totals: pd.DataFrame, *, below_share: float = 0.7, window_s: float = 60.0, least_s: float = 2.0
) -> pd.DataFrame:
    """Find the times at which power is far below what is usual around them.

    What is usual is the median of the window around a moment, over cells that are themselves no
    dip; inside an outage that is longer than the window it is carried over from both sides. So
    an outage of an hour does not become its own normal.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`: one uniform series.
    below_share
        A dip is below this share of what is usual.
    window_s
        Window of the median, in s.
    least_s
        Shorter dips are dropped, and shorter returns to usual power do not end a dip, in s. A
        dip is as long as straight lines between readings are low; one that is shorter than the
        time between readings may be missed altogether.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_DIPS`. ``shortfall_j`` is the energy that was not drawn,
        over the cells that are known. Unknown cells neither begin nor end a dip; between two low
        ones they belong to it.

    Raises
    ------
    WorkbenchError
        If the series is not uniform, or an option is not a positive number.

    Notes
    -----
    A cell is low if ``p < below_share * usual``. Usual power starts as the 90 % quantile of the
    series, then is the rolling median over the cells that are not low, by straight lines
    where the window holds none, until nothing changes (four rounds at most). A job that really
    works at less power for most of nine tenths of the time looks like one long dip.

    Examples
    --------
    >>> from workbench.tables import POWER_TOTALS
    >>> power_dips(POWER_TOTALS.empty()).empty
    True
    """
    low_share = share_between("below_share", below_share)
    window, least = positive("window_s", window_s), not_negative("least_s", least_s)
    _, watts = middles_of(totals)
    if np.isnan(watts).all() or len(watts) < 2:
        return POWER_DIPS.empty()
    period_ns = int(totals["time_ns"].iloc[1]) - int(totals["time_ns"].iloc[0])
    usual = _usual(watts, low_share, max(round(window * SECOND / period_ns), 1))
    first = _runs(watts < low_share * usual, watts, least * SECOND / period_ns)
    rows = [_row(totals, watts, usual, span, period_ns) for span in first]
    return POWER_DIPS.of(rows)


def _usual(watts: Floats, low_share: float, width: int) -> Floats:
    level = np.full(len(watts), np.nanquantile(watts, _AT_WORK))
    low = np.zeros(len(watts), dtype=bool)
    for number in range(_ROUNDS):
        now = watts < low_share * level
        if number > 0 and (now == low).all():
            break
        low = now
        level = _carried(watts, low, width, level)
    return level


def _carried(watts: Floats, low: Flags, width: int, otherwise: Floats) -> Floats:
    """Take the rolling median of the cells that are not low, and lines where there are none."""
    kept = pd.Series(np.where(low, np.nan, watts))
    median = kept.rolling(width, center=True, min_periods=max(width // 4, 1)).median().to_numpy()
    filled = np.flatnonzero(~np.isnan(median))
    if not len(filled):
        return otherwise
    level: Floats = np.interp(np.arange(len(watts)), filled, median[filled])
    return level


def _runs(low: Flags, watts: Floats, least_cells: float) -> list[tuple[int, int]]:
    """Return first and last low cell of each dip; short rises and unknown cells do not end it."""
    at = np.flatnonzero(low)
    if not len(at):
        return []
    # Known cells that are back at usual power, counted before each cell.
    back = np.cumsum(~low & ~np.isnan(watts))
    apart = np.diff(back[at])
    cut = (apart > 0) & (apart >= least_cells)
    firsts, lasts = at[np.r_[True, cut]], at[np.r_[cut, True]]
    long = lasts - firsts + 1 >= least_cells
    return list(zip(firsts[long].tolist(), lasts[long].tolist(), strict=True))


def _row(
    totals: pd.DataFrame, watts: Floats, usual: Floats, span: tuple[int, int], period_ns: int
) -> dict[str, object]:
    first, last = span
    cells = watts[first : last + 1]
    measured = ~np.isnan(cells)
    level = usual[first : last + 1][measured]
    short = np.maximum(level - cells[measured], 0.0)
    neighbours = [watts[at] if 0 <= at < len(watts) else np.nan for at in (first - 1, last + 1)]
    start = int(totals["time_ns"].iloc[first])
    return {
        "start_ns": start,
        "end_ns": start + (last - first + 1) * period_ns,
        "dur_s": (last - first + 1) * period_ns / SECOND,
        "usual_w": level.mean(),
        "mean_w": cells[measured].mean(),
        "lowest_w": cells[measured].min(),
        "depth_share": float(np.clip(1 - cells[measured].mean() / level.mean(), 0, 1)),
        "shortfall_j": short.sum() * period_ns / SECOND,
        "covered_share": measured.mean(),
        "is_cut": bool(np.isnan(neighbours).any()),
    }


NOT_EXPLAINED = "not explained"
# Segments that stop the work, whether or not the log has steps at that time.
_PAUSES = ("failure", "restart", "checkpoint", "evaluation", "initialisation")
_MOST_WORK = 0.5
_LEAST_OVERLAP = 0.2
_MOST_ALSO = 4


@dataclass(frozen=True)
class _Match:
    """One event that may be the cause of a dip; the highest rank wins."""

    cause: str
    evidence: str
    lag_s: float
    overlap_share: float
    rank: float


def dip_causes(
    dips: pd.DataFrame,
    *,
    steps: pd.DataFrame | None = None,
    spans: pd.DataFrame | None = None,
    failures: pd.DataFrame | None = None,
    clock_offset_s: float = 0.0,
    within_s: float = 10.0,
) -> pd.DataFrame:
    """Match every dip of power with what the logs say of that time.

    A failure explains a dip if it was reported shortly before its start or while it lasted; a
    named segment of the job does if it lasts a good part of the dip and holds no work. A failure
    goes before a restart, and a restart before the rest. What happened at the same time need not
    be the cause: ``evidence``, ``lag_s`` and ``overlap_share`` say how well it fits, and ``also``
    what else did.

    Parameters
    ----------
    dips
        Table :data:`workbench.tables.POWER_DIPS`.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`; dips before the first and after the last step
        are found by it.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`.
    failures
        Table :data:`workbench.tables.FAILURES`; those with a wall time count.
    clock_offset_s
        How far the clock of the meter is ahead of that of the logs, in s.
    within_s
        How long before a dip a failure may have been reported, and how far the clocks may differ.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DIP_CAUSES`, rows as in ``dips``. Without any fitting event
        the cause is ``not explained``.

    Raises
    ------
    WorkbenchError
        If ``within_s`` is negative, or ``clock_offset_s`` no finite number.

    Examples
    --------
    >>> dip_causes(POWER_DIPS.empty()).empty
    True
    """
    POWER_DIPS.check(dips)
    near = round(not_negative("within_s", within_s) * SECOND)
    shift = offset_ns(clock_offset_s)
    events = _Events(steps, spans, failures)
    rows = []
    for start, end in zip(dips["start_ns"] - shift, dips["end_ns"] - shift, strict=True):
        matches = sorted(events.near(int(start), int(end), near), key=lambda match: -match.rank)
        rows.append(_told(matches))
    names = ["cause", "evidence", "lag_s", "overlap_share", "also"]
    causes = pd.DataFrame(rows, columns=names, index=dips.index)
    table = pd.concat([dips[list(POWER_DIPS.columns)], causes], axis=1).reset_index(drop=True)
    return DIP_CAUSES.of(table)


class _Events:
    """Logged events, and those near a dip."""

    def __init__(
        self, steps: pd.DataFrame | None, spans: pd.DataFrame | None, failures: pd.DataFrame | None
    ) -> None:
        self.steps = LOGGED_STEPS.empty() if steps is None else LOGGED_STEPS.check(steps)
        ended = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
        ended = ended[ended["end_ns"].notna()].astype({"end_ns": "int64"})
        self.spans = ended[ended["kind"].isin(_PAUSES) | ~self._is_work(ended)]
        logged = FAILURES.empty() if failures is None else FAILURES.check(failures)
        logged = logged[(logged["clock"] == "epoch") & logged["start_ns"].notna()]
        self.failures = logged.astype({"start_ns": "int64"})

    def _is_work(self, spans: pd.DataFrame) -> pd.Series:
        """Return which segments hold work: of a run, an epoch, a block of training."""
        is_named = spans["kind"].isin(["run", "training"])
        starts, ends = intervals.union(self.steps["start_ns"], self.steps["end_ns"])
        edges = np.stack([starts, ends], axis=1).ravel()
        worked = np.stack([np.zeros(len(starts)), ends - starts], axis=1).ravel().cumsum()
        if not len(edges):
            return is_named
        until, since = (
            np.interp(spans[name] - edges[0], edges - edges[0], worked)
            for name in ("end_ns", "start_ns")
        )
        length = (spans["end_ns"] - spans["start_ns"]).clip(lower=1)
        return is_named | pd.Series((until - since) / length > _MOST_WORK, index=spans.index)

    def near(self, start: int, end: int, within: int) -> Iterator[_Match]:
        yield from self._failures(start, end, within)
        yield from self._spans(start, end)
        yield from self._outside(start, end)

    def _failures(self, start: int, end: int, within: int) -> Iterator[_Match]:
        at = self.failures["start_ns"]
        for row in self.failures[at.between(start - within, end)].to_dict("records"):
            lag = (start - row["start_ns"]) / SECOND
            host = "" if pd.isna(row["node"]) else f" on {row['node']}"
            fatal = row["severity"] == "fatal"
            # The first fatal one leads; what a log merely warns of explains less than a span.
            rank = (4.0 if fatal else 0.5) - 1e-4 * max(-lag, 0.0)
            yield _Match("failure", f"{row['cause']}{host}", lag, np.nan, rank)

    def _spans(self, start: int, end: int) -> Iterator[_Match]:
        begun, ended = self.spans["start_ns"], self.spans["end_ns"]
        for row in self.spans[(begun < end) & (ended > start)].to_dict("records"):
            shared = min(row["end_ns"], end) - max(row["start_ns"], start)
            share = shared / max(end - start, 1)
            # Short pauses that a long dip also holds do not explain it.
            rank = share + (2.0 if row["kind"] == "restart" else 1.0)
            lasted = (row["end_ns"] - row["start_ns"]) / SECOND
            if share >= _LEAST_OVERLAP:
                lag = (start - row["start_ns"]) / SECOND
                yield _Match(row["kind"], f"{row['kind']} of {lasted:.3g} s", lag, share, rank)

    def _outside(self, start: int, end: int) -> Iterator[_Match]:
        if self.steps.empty:
            return
        first, last = int(self.steps["start_ns"].min()), int(self.steps["end_ns"].max())
        length = max(end - start, 1)
        before, after = (min(first, end) - start) / length, (end - max(last, start)) / length
        if before >= 0.5:
            lag = (start - first) / SECOND
            yield _Match("before the job", "no step had begun", lag, before, 0.9 + 0.05 * before)
        if after >= 0.5:
            lag = (start - last) / SECOND
            yield _Match("after the job", "the last step was over", lag, after, 0.9 + 0.05 * after)


def _told(matches: list[_Match]) -> dict[str, object]:
    """Write the best match, and what else fits."""
    if not matches:
        return {"cause": NOT_EXPLAINED, "evidence": "", "also": ""}
    best, *further = matches
    also = list(dict.fromkeys(match.evidence for match in further if match.cause != best.cause))
    also += [f"{sum(match.cause == best.cause for match in further)} more like it"] * any(
        match.cause == best.cause for match in further
    )
    if len(also) > _MOST_ALSO:
        also = [*also[:_MOST_ALSO], f"{len(also) - _MOST_ALSO} others"]
    return {
        "cause": best.cause,
        "evidence": best.evidence,
        "lag_s": best.lag_s,
        "overlap_share": best.overlap_share,
        "also": "; ".join(also),
    }
