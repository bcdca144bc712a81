"""What each interruption of a job cost: the energy of lost steps and of the restart."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench._numbers import not_negative
from workbench.analyze._fleet.run_states import last_ends, lost_steps, restarts_of, run_window
from workbench.analyze._lib.energy_curves import SECOND, EnergyCurves
from workbench.tables import FAILURES, INCIDENT_ENERGY, LOGGED_SPANS, LOGGED_STEPS

NOT_TOLD = "not told"
_GAP_PERIODS = 3.0
_LEAST_COVERED_SHARE = 0.95
_MOST_ALSO = 4


def incident_energy(
    power: pd.DataFrame,
    steps: pd.DataFrame,
    spans: pd.DataFrame | None = None,
    *,
    failures: pd.DataFrame | None = None,
    before_s: float = 60.0,
    clock_offset_s: float = 0.0,
) -> pd.DataFrame:
    """Give every interruption of a job its cause, and the energy that it cost.

    An interruption costs what the steps drew that had to be done again, and what everything drew
    until the next step: nodes that wait draw idle power. The job log tells when it was
    interrupted, the failure log why: the first fatal failure from shortly before the
    interruption until the next step leads, others of that time stand beside it. All attempts are
    taken as runs of one job.

    Parameters
    ----------
    power
        Table :data:`workbench.tables.POWER` of one scope, of all nodes that were there for the
        job, spares included.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS`; its restarts, else the time between the last
        step of an attempt and the first of the next.
    failures
        Table :data:`workbench.tables.FAILURES`; those with a wall time count.
    before_s
        How long before an interruption its failure may have been reported, in s.
    clock_offset_s
        How far the clock of the meter is ahead of that of the logs, in s.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INCIDENT_ENERGY`. Energies are missing where readings cover
        less than 95 % of the time; fatal failures that interrupted nothing follow as rows without
        a cost. ``attrs["run_j"]`` is what ``energy_share`` is a share of: the run from its start
        to its end, not all that was metered.

    Raises
    ------
    WorkbenchError
        If a GPU and its node are both in ``power``.

    Notes
    -----
    ``energy = E(lost steps) + E(last step to interruption) + E(interruption to next step)``,
    summed over all entities, by the trapezoid; readings further apart than 3 periods leave a gap.

    Examples
    --------
    >>> from workbench.tables import POWER
    >>> incident_energy(POWER.empty(), LOGGED_STEPS.empty()).empty
    True
    """
    LOGGED_STEPS.check(steps)
    named = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
    told = _dated(failures)
    curves = EnergyCurves(power, longest_gap_periods=_GAP_PERIODS, clock_offset_s=clock_offset_s)
    window = run_window(steps, named) or (0, 0)
    run = curves.between([window[0]], [window[1]])
    restarts = restarts_of(steps, named)
    near = round(not_negative("before_s", before_s) * SECOND)
    costs = _costs(curves, steps, restarts)
    causes, used = _causes(restarts, told, near)
    table = pd.concat([costs, causes], axis=1).reindex(columns=list(INCIDENT_ENERGY.columns))
    whole = float(run.energy_j[0])
    if whole > 0:
        table["energy_share"] = (table["energy_j"] / whole).clip(upper=1.0)
    others = _others(told[~told.index.isin(used)])
    parts = [part for part in (table, others) if len(part)]
    if not parts:
        table = INCIDENT_ENERGY.empty()
    else:
        rows = [row for part in parts for row in part.astype(object).to_dict("records")]
        table = INCIDENT_ENERGY.cast(_missing(pd.DataFrame(rows)))
    table.attrs["run_j"] = whole
    return INCIDENT_ENERGY.check(table)


def _missing(table: pd.DataFrame) -> pd.DataFrame:
    """Write everything missing as None, which every dtype of a table takes."""
    return table.astype(object).where(table.notna(), None)


def _dated(failures: pd.DataFrame | None) -> pd.DataFrame:
    """Keep the fatal failures that have a wall time, in order of it."""
    told = FAILURES.empty() if failures is None else FAILURES.check(failures)
    kept = told[(told["clock"] == "epoch") & told["start_ns"].notna()]
    kept = kept[kept["severity"] == "fatal"].astype({"start_ns": "int64"})
    return kept.sort_values("start_ns", kind="stable").reset_index(drop=True)


def _costs(curves: EnergyCurves, steps: pd.DataFrame, restarts: pd.DataFrame) -> pd.DataFrame:
    """Give each restart its lost steps, its times and its energies."""
    lost = steps[lost_steps(steps)]
    starts = restarts["start_ns"].to_numpy(dtype=np.int64)
    ends = restarts["end_ns"].to_numpy(dtype=np.int64)
    # A lost step belongs to the first restart after it.
    owner = np.searchsorted(starts, lost["start_ns"].to_numpy(), side="right")
    of_step = curves.between(lost["start_ns"].to_numpy(), lost["end_ns"].to_numpy())
    cut_from = last_ends(steps, restarts)
    of_cut, of_restart = curves.between(cut_from, starts), curves.between(starts, ends)
    rows = []
    for number in range(len(restarts)):
        mine = owner == number
        step_s = (lost["end_ns"] - lost["start_ns"]).to_numpy()[mine] / SECOND
        cut_s, restart_s = (
            float(span) / SECOND
            for span in (starts[number] - cut_from[number], ends[number] - starts[number])
        )
        covered = float((of_step.covered_share[mine] * step_s).sum())
        covered += of_cut.covered_share[number] * cut_s
        covered += of_restart.covered_share[number] * restart_s
        work_s = float(step_s.sum()) + cut_s
        share = covered / (work_s + restart_s) if work_s + restart_s > 0 else 0.0
        known = 1.0 if share >= _LEAST_COVERED_SHARE else np.nan
        work_j = (of_step.energy_j[mine].sum() + of_cut.energy_j[number]) * known
        restart_j = of_restart.energy_j[number] * known
        rows.append(
            {
                "start_ns": starts[number],
                "end_ns": ends[number],
                "attempt": restarts["attempt"].iloc[number],
                "lost_step_count": int(mine.sum()),
                "lost_work_s": work_s,
                "restart_s": restart_s,
                "lost_work_j": work_j,
                "restart_j": restart_j,
                "energy_j": work_j + restart_j,
                "covered_share": min(share, 1.0),
            }
        )
    return pd.DataFrame(rows)


def _causes(
    restarts: pd.DataFrame, told: pd.DataFrame, near: int
) -> tuple[pd.DataFrame, list[object]]:
    """Give each restart the failure that fits it best; and the failures that were used."""
    rows: list[dict[str, object]] = []
    used: list[object] = []
    for start, end in zip(restarts["start_ns"], restarts["end_ns"], strict=True):
        fits = told[told["start_ns"].between(start - near, end) & ~told.index.isin(used)]
        used += fits.index.tolist()
        if fits.empty:
            rows.append({"cause": NOT_TOLD, "also": ""})
            continue
        first = fits.iloc[0]
        # Several logs may tell of one failure, and not all of them name the host.
        hosts = fits["node"].dropna()
        others = [text for text in _words(fits.iloc[1:]) if text != _words(fits.iloc[:1])[0]]
        rows.append(
            {
                "node": hosts.iloc[0] if len(hosts) else None,
                "cause": first["cause"],
                "failure_lag_s": (first["start_ns"] - start) / SECOND,
                "also": "; ".join(others[:_MOST_ALSO])
                + (f"; {len(others) - _MOST_ALSO} others" if len(others) > _MOST_ALSO else ""),
            }
        )
    return pd.DataFrame(rows), used


def _words(failures: pd.DataFrame) -> list[str]:
    """Say of some failures what they are, each once."""
    said = [
        row["cause"] if pd.isna(row["node"]) else f"{row['cause']} on {row['node']}"
        for row in failures.to_dict("records")
    ]
    return list(dict.fromkeys(said))


def _others(told: pd.DataFrame) -> pd.DataFrame:
    """Make rows without a cost of failures that fit no interruption."""
    rows = told.reindex(columns=list(INCIDENT_ENERGY.columns))
    return rows.assign(cause=told["cause"], also="no interruption in the job log", end_ns=None)
