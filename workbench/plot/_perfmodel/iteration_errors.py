"""Predicted beside measured iteration times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.dots import log_ticks
from workbench.plot._style.style import COLOURS, finish, nothing
from workbench.plot._style.text import label, percent, plural, safe
from workbench.tables import ITERATION_ERRORS

_MOST_POINTS = 4_000
# Told apart by shape; shades repeat.
_SYMBOLS = (
    ("circle", "less"), ("diamond", "more"), ("square-open", "less"), ("triangle-up", "more"),
    ("star", "less"), ("circle-open", "more"),
)  # fmt: skip


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
        One point per configuration, on the line where the prediction is right, with a symbol
        for each group if there are few; crosses are the closed form alone, where it differs.
        The title states mean and largest error.
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
    for name, chosen, column, symbol, shade in _series(shown):
        figure.add_scatter(
            x=measured[chosen],
            y=shown.loc[chosen, column].to_numpy() / 1e9,
            mode="markers",
            name=name,
            marker={"symbol": symbol, "color": COLOURS[shade], "size": 8, "opacity": 0.8},
            customdata=[word for word, takes in zip(words, chosen, strict=True) if takes],
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


def _series(shown: pd.DataFrame) -> list[tuple[str, npt.NDArray[np.bool_], str, str, str]]:
    """Tell the series apart: name, rows, column, symbol and shade."""
    learned = (shown["analytic_ns"] != shown["dur_ns"]).to_numpy()
    found = []
    if learned.any():
        found.append(("closed form alone", learned, "analytic_ns", "x-thin-open", "all others"))
    groups = sorted(shown["group"].unique())
    if not 1 < len(groups) <= len(_SYMBOLS):
        return [*found, ("prediction", np.ones(len(shown), bool), "dur_ns", "circle", "less")]
    for group, (symbol, shade) in zip(groups, _SYMBOLS, strict=False):
        chosen = (shown["group"] == group).to_numpy(dtype=bool)
        found.append((label(group, 60), chosen, "dur_ns", symbol, shade))
    return found


def _note(errors: pd.DataFrame, shown: int) -> str:
    groups = errors["group"].unique()
    notes = [f"median {safe(percent(float(errors['error_ratio'].abs().median())))}"]
    if (errors["analytic_ns"] != errors["dur_ns"]).any():
        alone = float(errors["analytic_error_ratio"].abs().mean())
        notes.append(f"closed form alone {safe(percent(alone))} in the mean")
    known = errors["is_inside"].dropna()
    if len(known):
        notes.append(f"{safe(percent(float(known.astype(bool).mean())))} lie in their interval")
    notes.append(
        f"held out: {label(groups[0], 40)}" if len(groups) == 1 else f"{len(groups)} groups"
    )
    if shown < len(errors):
        notes.append(f"the {shown:,} worst of {len(errors):,} are drawn")
    return " · ".join(notes)
