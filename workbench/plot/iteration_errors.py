"""Predicted beside measured iteration times."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from workbench.plot._dots import log_ticks
from workbench.plot._text import label, percent, plural, safe
from workbench.plot.style import COLOURS, finish, nothing
from workbench.tables import ITERATION_ERRORS

_MOST_POINTS = 4_000


def iteration_errors(
    errors: pd.DataFrame, *, source: str = "", synthetic: bool = False
) -> go.Figure:
    """Show how far predictions lie from what was measured.

    Parameters
    ----------
    errors
        Table :data:`workbench.tables.ITERATION_ERRORS`.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    plotly.graph_objects.Figure
        One point per configuration, on the line where the prediction is right; crosses are
        the closed form alone. The title states mean and largest error.
    """
    ITERATION_ERRORS.check(errors)
    if errors.empty:
        return nothing(
            "No configuration was both measured and predicted.",
            claim="No errors to show",
            source=source,
            synthetic=synthetic,
        )
    far = errors["error_ratio"].abs()
    shown = errors.loc[far.nlargest(_MOST_POINTS // 2).index]
    words = [
        f"{label(name, 80)}<br>{label(group, 60)}: {error:+.1%}"
        for name, group, error in zip(
            shown["configuration"], shown["group"], shown["error_ratio"], strict=True
        )
    ]
    figure = go.Figure()
    measured = shown["measured_ns"].to_numpy() / 1e9
    looks = {
        "analytic_ns": ("closed form alone", "x-thin-open", "all others"),
        "dur_ns": ("prediction", "circle", "less"),
    }
    for column, (name, symbol, shade) in looks.items():
        figure.add_scatter(
            x=measured,
            y=shown[column].to_numpy() / 1e9,
            mode="markers",
            name=name,
            marker={"symbol": symbol, "color": COLOURS[shade], "size": 7, "opacity": 0.8},
            customdata=words,
            hovertemplate="%{customdata}<br>measured %{x:.3~g} s, here %{y:.3~g} s<extra></extra>",
        )
    ends = [float(measured.min()), float(measured.max())]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", name="as measured", hoverinfo="skip",
        line={"color": COLOURS["neutral"], "dash": "dot", "width": 1},
    )  # fmt: skip
    ticks = log_ticks(measured)
    figure.update_xaxes(title="measured iteration [s], logarithmic", type="log", **ticks)
    figure.update_yaxes(title="predicted [s], logarithmic", type="log", **ticks)
    figure.update_layout(height=380)
    return finish(
        figure,
        claim=(
            f"Predictions of {plural(len(errors), 'configuration')} are "
            f"{safe(percent(far.mean()))} off in the mean, {safe(percent(far.max()))} at most"
        ),
        source=source,
        synthetic=synthetic,
        note=_note(errors, len(shown)),
    )


def _note(errors: pd.DataFrame, shown: int) -> str:
    groups = errors["group"].unique()
    alone = float(errors["analytic_error_ratio"].abs().mean())
    notes = [
        f"median {safe(percent(float(errors['error_ratio'].abs().median())))}",
        f"closed form alone {safe(percent(alone))} in the mean",
    ]
    known = errors["is_inside"].dropna()
    if len(known):
        notes.append(f"{safe(percent(float(known.astype(bool).mean())))} lie in their interval")
    notes.append(
        f"held out: {label(groups[0], 40)}" if len(groups) == 1 else f"{len(groups)} groups"
    )
    if shown < len(errors):
        notes.append(f"the {shown:,} worst of {len(errors):,} are drawn")
    return " · ".join(notes)
