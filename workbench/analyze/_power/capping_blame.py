"""Which capped device a synchronous job waited for."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._power.capped_steps import CAPPED, UNCAPPED, capped_steps, overlapped
from workbench.analyze._power.capping_cost import capping_cost
from workbench.tables import CAPPING_BLAME


def capping_blame(
    events: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    first_step_count: int = 1,
    longest_step_ratio: float = 2.0,
) -> pd.DataFrame:
    """Charge each capped step to the device that was held back most.

    All ranks of a synchronous job wait for the slowest. Of several devices that were capped in
    one step, the one whose clock fell most decides; the others cost nothing on top.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.CAPPING_EVENTS`, on the clock of the steps.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS` of one job.
    first_step_count, longest_step_ratio
        As for :func:`workbench.analyze.capping_cost`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.CAPPING_BLAME`, most blamed first.

    Raises
    ------
    TableError
        If a frame is not the table it should be.
    WorkbenchError
        If steps overlap each other, or an option makes no sense.

    Notes
    -----
    Held back most: the largest loss of clock; where a loss is not known, the lowest clock; where
    no clock is known, all devices capped in the step. Ties are charged to each, so shares may
    sum to more than 1. Time is against the median uncapped step of the attempt.
    """
    rows = capped_steps(
        events, steps, first_step_count=first_step_count, longest_step_ratio=longest_step_ratio
    )
    if events.empty:
        return CAPPING_BLAME.empty()
    kept = rows[rows["is_kept"]]
    free = kept[kept["state"] == UNCAPPED].groupby("attempt")["dur_s"].median()
    excess = kept["dur_s"] - kept["attempt"].map(free).astype("float64")
    pairs = _pairs(events, rows)
    pairs = pairs[pairs["at"].isin(kept.index[kept["state"] == CAPPED])]
    blamed = pairs[_is_most_held_back(pairs)]
    of_each = events.groupby("entity", sort=True)
    steps_of, blamed_of = (each.groupby("entity")["at"].nunique() for each in (pairs, blamed))
    time_of = (
        blamed.assign(excess=blamed["at"].map(excess)).groupby("entity")["excess"].sum(min_count=1)
    )
    all_steps = max(int(pairs["at"].nunique()), 1)
    names = of_each.size().index
    table = pd.DataFrame(
        {
            "event_count": of_each.size(),
            "capped_step_count": steps_of.reindex(names, fill_value=0),
            "blamed_step_count": blamed_of.reindex(names, fill_value=0),
            "blamed_share": blamed_of.reindex(names, fill_value=0) / all_steps,
            "blamed_s": time_of.reindex(names),
            "clock_loss_ratio": of_each["clock_loss_ratio"].median(),
        }
    )
    shared = blamed.groupby("at")["entity"].transform("size") > 1
    cost = capping_cost(
        events, steps, first_step_count=first_step_count, longest_step_ratio=longest_step_ratio
    )
    in_doubt = cost.loc[(cost["capped_step_count"] > 0) & (cost["doubt"] != ""), "doubt"]
    table["doubt"] = _doubts(table, set(blamed.loc[shared, "entity"]), list(in_doubt))
    table = table.rename_axis("entity").reset_index()
    table = table.sort_values(
        ["blamed_step_count", "capped_step_count", "entity"],
        ascending=[False, False, True], ignore_index=True,
    )  # fmt: skip
    return CAPPING_BLAME.check(CAPPING_BLAME.cast(table))


def _pairs(events: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Give every pair of step and device that was capped in it."""
    places = [
        np.arange(len(rows))[overlapped(rows, start, end)]
        for start, end in zip(events["start_ns"], events["end_ns"], strict=True)
    ]
    counts = [len(each) for each in places]
    columns = ["entity", "clock_loss_ratio", "clock_mhz"]
    pairs = events.loc[events.index.repeat(counts), columns].reset_index(drop=True)
    at = np.concatenate(places) if places else np.empty(0, dtype=np.int64)
    return pairs.assign(at=at)


def _is_most_held_back(pairs: pd.DataFrame) -> pd.Series:
    """Say of each pair whether no other device of the step was held back more."""
    all_told = pairs["clock_loss_ratio"].notna().groupby(pairs["at"]).transform("all")
    any_clock = pairs["clock_mhz"].notna().groupby(pairs["at"]).transform("all")
    measure = pairs["clock_loss_ratio"].where(all_told, -pairs["clock_mhz"])
    measure = measure.where(all_told | any_clock, 0.0)
    return measure >= measure.groupby(pairs["at"]).transform("max")


def _doubts(table: pd.DataFrame, sharing: set[str], in_doubt: list[str]) -> list[str]:
    """Say where the blame is thin; what is doubtful of the cost is so of its shares."""
    found = []
    for row in table.reset_index().to_dict("records"):
        said = list(dict.fromkeys(in_doubt)) if row["blamed_step_count"] else []
        if row["entity"] in sharing:
            said.append("other devices were held back as much in some steps")
        if np.isnan(row["clock_loss_ratio"]):
            said.append("no uncapped clock to compare with")
        if not row["capped_step_count"]:
            said.append("capped in no step that was kept")
        found.append("; ".join(said))
    return found
