"""Why GPUs or streams had nothing to run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.bars import grouped_labels, stacked
from workbench.plot._style.style import finish, nothing
from workbench.plot._style.text import duration, label, percent
from workbench.tables import IDLE_TIME

_ORDER = (
    "host late", "host wait", "launch overhead", "kernel gap", "kernel wait", "sync wait",
    "dark", "other cause", "unknown",
)  # fmt: skip
_WORDS = {
    "host late": "the CPU launched too late",
    "host wait": "the CPU launched too late",
    "launch overhead": "the launch was on its way",
    "kernel gap": "short gaps between kernels",
    "kernel wait": "short gaps between kernels",
    "sync wait": "waiting for other work",
    "dark": "the cause is not in the trace",
    "other cause": "neither the host nor a short gap",
    "unknown": "the launch is not in the trace",
}


def idle_time(idle: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show how long every GPU (or stream) had nothing to run, by cause.

    Parameters
    ----------
    idle
        Table :data:`workbench.tables.IDLE_TIME`, by device or by stream.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        Stacks, one trace per cause; the title states the largest cause and its share,
        the line below the detail that makes up most of it.
    """
    IDLE_TIME.check(idle)
    drawn = idle[idle["idle_ns"] > 0]
    if drawn.empty:
        return nothing(
            "There is no gap between GPU work, or no GPU work at all.",
            claim="No idle time to show",
            source=source,
            synthetic=synthetic,
        )
    drawn = drawn.assign(
        cause=drawn["cause"].astype("object").replace("other", "other cause"),
        column=_columns(idle).loc[drawn.index],
    )
    table = drawn.pivot_table(
        index="column", columns="cause", values="idle_ns", aggfunc="sum", fill_value=0, sort=False
    )
    causes = sorted(table.columns, key=_place)
    parts = {cause: table[cause].to_numpy(dtype=np.float64) for cause in causes}
    title = "rank" if drawn["stream"].isna().all() else "stream"
    figure, note = stacked(_labels(table.index), parts, title=title)
    figure.update_yaxes(title=figure.layout.yaxis.title.text.replace("time", "idle time"))
    return finish(
        figure,
        claim=_claim(parts),
        source=source,
        synthetic=synthetic,
        note=" · ".join(filter(None, [_main_detail(drawn, parts), note])),
    )


def _columns(idle: pd.DataFrame) -> pd.Series:
    """Name the GPU or stream of each row; the GPU only where a rank has several."""
    names = idle["rank"].astype(str)
    if idle.groupby("rank")["device"].nunique().gt(1).any():
        names = names + " GPU " + idle["device"].astype(str)
    if idle["stream"].isna().all():
        return names
    return idle["stream"].astype("string").fillna("?").astype(str) + "\nrank " + names


def _labels(columns: pd.Index) -> list[str]:
    parts = [str(name).partition("\n") for name in columns]
    return grouped_labels([part[0] for part in parts], [part[2] for part in parts])


def _place(cause: str) -> int:
    return _ORDER.index(cause) if cause in _ORDER else len(_ORDER)


def _claim(parts: dict[str, np.ndarray]) -> str:
    totals = {cause: float(part.sum()) for cause, part in parts.items()}
    worst = max(totals, key=lambda cause: totals[cause])
    share = percent(totals[worst] / sum(totals.values()))
    why = f" ({_WORDS[worst]})" if worst in _WORDS else ""
    return f"{share} of the {duration(sum(totals.values()))} of idle time is {worst}{why}"


def _main_detail(drawn: pd.DataFrame, parts: dict[str, np.ndarray]) -> str:
    """Say what the largest cause is mostly made of."""
    worst = max(parts, key=lambda cause: float(parts[cause].sum()))
    details = drawn[drawn["cause"] == worst].groupby("detail")["idle_ns"].sum()
    if details.empty or not details.max():
        return ""
    share = percent(details.max() / float(parts[worst].sum()))
    detail = f"{label(details.idxmax(), 70)} ({share})"
    if worst == "host late":
        return f"what the launching thread did meanwhile, mostly: {detail}"
    return f"{worst}, mostly: {detail}"
