"""How far the goodput of single windows scatters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.sampling import extremes
from workbench.plot._style.style import MAX_LINES, distinct, finish, nothing
from workbench.plot._style.text import digits, label, percent
from workbench.tables import GOODPUT_WINDOWS

# A curve that only rises loses nothing with fewer points than a line that jumps.
_POINTS = 400


def goodput_windows(
    table: pd.DataFrame | Mapping[str, pd.DataFrame], *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show which share of the windows is at most how productive, for one case or several.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.GOODPUT_WINDOWS`, or several by the name of the case,
        e.g. a log and its Poisson twin.
    source
        Where the numbers come from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One cumulative curve per case. The title states the range of the first.
    """
    cases = {"all windows": table} if isinstance(table, pd.DataFrame) else dict(table)
    cases = {name: GOODPUT_WINDOWS.check(each) for name, each in cases.items()}
    known = {name: each for name, each in cases.items() if len(each)}
    if not known:
        return nothing(
            "There are no windows; analyze.goodput_windows makes them.",
            claim="No windows to compare",
            source=source,
            synthetic=synthetic,
        )
    figure = go.Figure()
    for at, (name, each) in enumerate(list(known.items())[:MAX_LINES]):
        share = np.sort(each["productive_share"].to_numpy())
        below = np.arange(1, len(share) + 1) / len(share)
        keep = extremes(share, _POINTS)
        figure.add_scatter(
            x=share[keep],
            y=below[keep],
            mode="lines+markers" if len(share) <= 40 else "lines",
            line={**distinct(at), "shape": "hv", "width": 2.5},
            name=f"{label(name, 34)} (mean {percent(float(share.mean()))})",
            hovertemplate="%{y:.0%} of the windows are at most %{x:.1%} productive<extra></extra>",
        )
    name, first = next(iter(known.items()))
    low, high = first["productive_share"].quantile([0.05, 0.95])
    starts = first.loc[first["run"] == first["run"].iloc[0], "start_min"].to_numpy()
    length = f"{digits(starts[1] - starts[0])}-min " if len(starts) > 1 else ""
    if len(starts) > 1 and (starts[1] - starts[0]) % 60 == 0:
        length = f"{digits((starts[1] - starts[0]) / 60)}-hour "
    claim = (
        f"{length}windows of {label(name, 34)} scatter from {percent(low)} to {percent(high)}"
        " (5 to 95 %)"
    )
    figure.update_xaxes(title="productive share of the window [%]", tickformat=".0%")
    figure.update_yaxes(title="windows at most so productive [%]", tickformat=".0%")
    more = len(known) - MAX_LINES
    note = f"{more} cases not shown" if more > 0 else ""
    return finish(
        figure, claim=claim[0].upper() + claim[1:], source=source, synthetic=synthetic, note=note
    )
