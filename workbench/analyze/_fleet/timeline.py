"""One axis of time for what a fleet drew, did and suffered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench.analyze._lib.energy_curves import SECOND, EnergyCurves, offset_ns
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, FLEET_TIMELINE, LOGGED_SPANS, LOGGED_STEPS, RANKS

ALL = "all entities"
PANELS = ("power", "step time", "job", "failures", "traces")
_LEAST_COVERED_SHARE = 0.999
_MOST_READINGS = 1_000_000
_EPOCH_FROM_NS = 31_536_000 * SECOND  # stamps of the year 1970 are of a clock of their own


def fleet_timeline(
    power: pd.DataFrame | None = None,
    *,
    steps: pd.DataFrame | None = None,
    spans: pd.DataFrame | None = None,
    failures: pd.DataFrame | None = None,
    ranks: pd.DataFrame | None = None,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Put power, steps, spans, failures and traces on one axis of time.

    A fall of power, a step that took long and a line of a kernel log mean little alone. Below each
    other, at the same moment, they tell what happened. Whatever there is none of is dropped.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope, on wall time.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`. What the log never ended lasts to the end of
        everything else.
    failures
        Table :data:`workbench.tables.FAILURES`; what has no wall time is dropped and counted in
        ``attrs["left_out"]``.
    ranks
        Table :data:`workbench.tables.RANKS` of traces: of each rank the time that its trace covers.
        Those with a clock of their own are dropped and counted.
    clock_offset_s
        How far the clock of the meter is ahead of the others, in s; see
        :func:`workbench.analyze.power_clock_offset`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.FLEET_TIMELINE`. Power of all entities together is their sum
        per period of the meter; a period that readings of any entity do not cover has none. Of
        more than a million readings only the sum is given.

    Raises
    ------
    WorkbenchError
        If a meter has a clock of its own, or a GPU and its node are both in ``power``.

    Examples
    --------
    >>> fleet_timeline().empty
    True
    """
    panels = [
        *([] if power is None or power.empty else _power(power, clock_offset_s)),
        *([] if steps is None or steps.empty else _steps(steps)),
        *([] if spans is None or spans.empty else _spans(spans)),
    ]
    failed, left_out = _failures(failures)
    traced, other_clock = _traces(ranks)
    panels += [panel for panel in (failed, traced) if len(panel)]
    left_out |= other_clock
    if not panels:
        return FLEET_TIMELINE.empty()
    names = list(FLEET_TIMELINE.columns)
    timeline = pd.concat([_filled(panel) for panel in panels], ignore_index=True)[names]
    last = int(
        timeline["start_ns"].max() if timeline["end_ns"].isna().all() else timeline["end_ns"].max()
    )
    timeline["end_ns"] = timeline["end_ns"].fillna(max(last, int(timeline["start_ns"].max())))
    timeline["panel"] = pd.Categorical(timeline["panel"], categories=PANELS)
    timeline = timeline.sort_values(["panel", "lane", "start_ns"], kind="stable", ignore_index=True)
    table = FLEET_TIMELINE.of(timeline)
    if left_out:
        table.attrs["left_out"] = left_out
    return table


def _filled(panel: pd.DataFrame) -> pd.DataFrame:
    """Add all columns to a part, in dtypes that can be joined."""
    full = panel.reindex(columns=list(FLEET_TIMELINE.columns))
    full["end_ns"] = full["end_ns"].astype("Int64")
    full[["power_w", "dur_s"]] = full[["power_w", "dur_s"]].astype("float64")
    return full.astype(dict.fromkeys(("panel", "lane", "node", "text"), object))


def _power(power: pd.DataFrame, clock_offset_s: float) -> Iterator[pd.DataFrame]:
    """Yield the readings of each entity, and their sum on a grid of the meter's period."""
    curves = EnergyCurves(power, longest_gap_periods=3.0, clock_offset_s=clock_offset_s)
    first, last = curves.reach()
    if first < _EPOCH_FROM_NS:
        msg = (
            f"power has a clock of its own (it begins at {first / SECOND:g} s), so it has no "
            "place beside the others; leave it out, or shift its times to wall time"
        )
        raise WorkbenchError(msg)
    shift = offset_ns(clock_offset_s)
    if len(power) <= _MOST_READINGS or len(curves.names) < 2:
        time = power["time_ns"].to_numpy() - shift
        names = power["entity"].astype(object)
        yield pd.DataFrame(
            {
                "panel": "power",
                "lane": names.to_numpy(),
                "start_ns": time,
                "end_ns": time,
                "power_w": power["power_w"].to_numpy(dtype=np.float64),
                "node": names.astype(str).str.split("/").str[0].to_numpy(),
                "text": "",
            }
        )
    period = max(round(curves.period_s() * SECOND), 1)
    if len(curves.names) < 2 or last - first < period:
        return
    edges = np.arange(first, last + 1, period, dtype=np.int64)
    drawn = curves.between(edges[:-1], edges[1:])
    watts = drawn.energy_j / (period / SECOND)
    middle = edges[:-1] + period // 2
    is_known = drawn.covered_share >= _LEAST_COVERED_SHARE
    watts = np.where(is_known, watts, np.nan)
    total = {"panel": "power", "lane": ALL, "start_ns": middle, "end_ns": middle}
    yield pd.DataFrame({**total, "power_w": watts, "text": ""})


def _steps(steps: pd.DataFrame) -> Iterator[pd.DataFrame]:
    LOGGED_STEPS.check(steps)
    lane = "attempt " + steps["attempt"].astype(str)
    yield pd.DataFrame(
        {
            "panel": "step time",
            "lane": lane,
            "start_ns": steps["start_ns"],
            "end_ns": steps["end_ns"],
            "dur_s": (steps["end_ns"] - steps["start_ns"]) / SECOND,
            "text": "step " + steps["step"].astype(str),
        }
    )


def _spans(spans: pd.DataFrame) -> Iterator[pd.DataFrame]:
    LOGGED_SPANS.check(spans)
    yield pd.DataFrame(
        {
            "panel": "job",
            "lane": spans["kind"],
            "start_ns": spans["start_ns"],
            "end_ns": spans["end_ns"],
            "text": spans["kind"] + ", attempt " + spans["attempt"].astype(str),
        }
    )


def _failures(failures: pd.DataFrame | None) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the failures that have a wall time, and how many have none."""
    checked = FAILURES.empty() if failures is None else FAILURES.check(failures)
    dated = checked[(checked["clock"] == "epoch") & checked["start_ns"].notna()]
    node = dated["node"].astype(object).where(dated["node"].notna(), "host not told")
    code = dated["kind"].astype(str) + " " + dated["code"].fillna("").astype(str)
    text = code.str.strip() + ": " + dated["cause"].astype(str)
    panel = pd.DataFrame(
        {
            "panel": "failures",
            "lane": node,
            "start_ns": dated["start_ns"].astype("int64"),
            "end_ns": dated["end_ns"].fillna(dated["start_ns"]),
            "node": dated["node"],
            "text": text + " (" + dated["severity"].astype(str) + ")",
        }
    )
    without = len(checked) - len(dated)
    return panel, {"failures without a wall time": without} if without else {}


def _traces(ranks: pd.DataFrame | None) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the time that the trace of each rank covers, and how many have another clock."""
    checked = RANKS.empty() if ranks is None else RANKS.check(ranks)
    timed = checked[(checked["clock"] == "epoch") & checked["first_ns"].notna()]
    panel = pd.DataFrame(
        {
            "panel": "traces",
            "lane": "rank " + timed["rank"].astype(str),
            "start_ns": timed["first_ns"].astype("int64"),
            "end_ns": timed["last_ns"],
            "text": "trace",
        }
    )
    without = len(checked) - len(timed)
    return panel, {"traces with a clock of their own": without} if without else {}
