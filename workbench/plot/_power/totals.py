"""The power of many meters together over time, with what the job was doing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.plot._style.bars import panels
from workbench.plot._style.lanes import MAX_POINTS, extremes
from workbench.plot._style.palette import VEIL
from workbench.plot._style.style import COLOURS, Frame, colour
from workbench.plot._style.text import amount, label, plural, power_unit, seconds, time_axis
from workbench.tables import LOGGED_SPANS, LOGGED_STEPS, POWER_TOTALS

_HEIGHT_PX = 300
# A series that is not so much longer than the zoom needs no second panel.
_WORTH_ZOOMING = 2.0


def power_totals(
    totals: pd.DataFrame,
    spans: pd.DataFrame | None = None,
    steps: pd.DataFrame | None = None,
    *,
    zoom_s: float = 120.0,
    source: str = "",
    synthetic: bool = False,
) -> go.Figure:
    """Show power over time: all of it, and beside it a segment in which steps can be seen.

    One panel, or two if the series is longer than twice ``zoom_s``. Peaks and dips are
    never lost, and cells that lack meters are gaps. The title states mean, peak and swing.

    Parameters
    ----------
    totals
        Table :data:`workbench.tables.POWER_TOTALS`.
    spans
        Table :data:`workbench.tables.LOGGED_SPANS` of the job; evaluations, checkpoints and the
        like are shaded and labelled. Kinds that take more than half of the time, such as
        ``run`` and ``training``, are not.
    steps
        Table :data:`workbench.tables.LOGGED_STEPS`; their starts are ticks at the foot, where
        they can be told apart.
    zoom_s
        Length of the second panel, in s: around one of the shaded spans near the middle, or
        else the middle of what is known.

    Raises
    ------
    ValueError
        If ``zoom_s`` is not a positive time.
    """
    frame = Frame(source, synthetic)
    POWER_TOTALS.check(totals)
    spans = LOGGED_SPANS.empty() if spans is None else LOGGED_SPANS.check(spans)
    steps = LOGGED_STEPS.empty() if steps is None else LOGGED_STEPS.check(steps)
    if not zoom_s > 0:
        msg = f"zoom_s must be a time above 0, in s; got {zoom_s!r}"
        raise ValueError(msg)
    if not totals["power_w"].notna().any():
        return frame.nothing(_why_nothing(totals), claim="No power to show")
    total = (int(totals["time_ns"].iloc[0]), int(totals["time_ns"].iloc[-1]) + _cell_ns(totals))
    spans = shaded(spans, total)
    known_ns = totals.loc[totals["power_w"].notna(), "time_ns"].to_numpy()
    unit_ns, title = time_axis(*total)
    windows = [total]
    if total[1] - total[0] > _WORTH_ZOOMING * zoom_s * 1e9:
        windows.append(choose_zoom(total, spans, known_ns, round(zoom_s * 1e9)))
    views = [View(*ends, total[0], unit_ns, column) for column, ends in enumerate(windows, 1)]
    names = [seconds((view.end_ns - view.start_ns) / 1e9) for view in views]
    names = [names[0], f"{names[-1]} of it, enlarged"] if len(views) > 1 else [""]
    figure = panels(names, height_px=_HEIGHT_PX, shared_y=False)
    scale, unit = power_unit(float(totals["power_w"].max()))
    for view in views:
        foot = _draw(figure, totals, view, scale=scale, unit=unit)
        mark_spans(figure, spans, view)
        mark_steps(figure, steps, view, foot=foot)
    figure.update_xaxes(title=title)
    figure.update_yaxes(tickformat=",.4~g")
    figure.update_layout(yaxis_title=f"power [{unit}]")
    figure.update_layout(hovermode="closest")
    return frame.finish(figure, claim=_claim(totals), note=_note(totals))


def _why_nothing(totals: pd.DataFrame) -> str:
    if totals.empty:
        return "The table has no cells; analyze.power_totals makes them."
    return (
        "No cell has a sum, because some meters have no readings. Lower the least_covered_share "
        "of analyze.power_totals to see the sum of those that have."
    )


def _cell_ns(totals: pd.DataFrame) -> int:
    time = totals["time_ns"].to_numpy()
    return int(np.diff(time).min()) if len(time) > 1 else 10**9


def _draw(figure: go.Figure, totals: pd.DataFrame, view: View, *, scale: float, unit: str) -> float:
    cell_ns = _cell_ns(totals)
    time = totals["time_ns"].to_numpy()
    shown = totals[(time > view.start_ns - cell_ns) & (time < view.end_ns)]
    power = shown["power_w"].to_numpy() / scale
    keep = extremes(power, MAX_POINTS // 2)
    starts = shown["time_ns"].to_numpy()[keep]
    is_whole = view.column == 1
    figure.add_scatter(
        # Both ends of every cell, so that one between two gaps has a width.
        x=view.at(np.column_stack([starts, starts + cell_ns]).ravel()), y=np.repeat(power[keep], 2),
        mode="lines", name="power", showlegend=is_whole,
        line={"color": colour("gpu work"), "width": 1 if is_whole else 2},
        hovertemplate="%{y:,.4~g} " + unit + "<extra></extra>",
        row=1, col=view.column,
    )  # fmt: skip
    valid = power[~np.isnan(power)]
    low, high = (float(valid.min()), float(valid.max())) if len(valid) else (0.0, 1.0)
    reach = max(high - low, 0.02 * high, 1e-9)
    # The whole time is drawn from 0, so that a swing looks as large as it is.
    foot, top = (0.0, 1.2 * high or 1.0) if is_whole else (low - 0.12 * reach, high + 0.3 * reach)
    ends = [float(view.at(view.start_ns)), float(view.at(view.end_ns))]
    figure.update_xaxes(range=ends, row=1, col=view.column)
    figure.update_yaxes(range=[foot, top], row=1, col=view.column)
    return foot + 0.03 * (top - foot)


def _note(totals: pd.DataFrame) -> str:
    words = [f"means of {seconds(_cell_ns(totals) / 1e9)}"] if len(totals) > 1 else []
    if blank := int(totals["power_w"].isna().sum()):
        words.append(f"{blank:,} of {plural(len(totals), 'cell')} blank: meters are missing there")
    partial = totals["power_w"].notna() & (totals["entity_count"] < totals["expected_count"])
    if partial.any():
        words.append(f"<b>{plural(int(partial.sum()), 'cell')} without some of the meters</b>")
    return " · ".join(words)


def _claim(totals: pd.DataFrame) -> str:
    power = totals["power_w"].dropna()
    low, high = power.quantile([0.01, 0.99])
    expected = int(totals["expected_count"].max())
    who = "The meter shows" if expected == 1 else f"{expected:,} meters together show"
    return (
        f"{who} {amount(power.mean())} on average and {amount(power.max())} at most; power "
        f"swings by {amount(high - low)} ({100 * (high - low) / power.mean():.0f} % of the mean, "
        "p1 to p99)"
        if power.mean() > 0
        else f"{who} no power"
    )


# Segments of time that a figure of power shows, and what the job was doing in them.

# A kind that takes more of the time than this is the background of the others.
_BACKGROUND_SHARE = 0.5
_MOST_KINDS = 4
# More rectangles or ticks than this are a grey mist.
_MOST_SPANS, _MOST_BORDERED, _MOST_STEPS = 200, 12, 120
# A label needs about this share of the width of a panel.
_LABEL_SHARE = 0.16
_BORDERS = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class View:
    """A segment of time in one panel; its axis counts ``unit_ns`` from ``zero_ns``."""

    start_ns: int
    end_ns: int
    zero_ns: int
    unit_ns: float
    column: int

    def at(self, time_ns: NDArray[np.int64] | int) -> NDArray[np.float64]:
        return np.asarray((np.asarray(time_ns) - self.zero_ns) / self.unit_ns)

    def holds(self, table: pd.DataFrame) -> pd.DataFrame:
        return table[(table["end_ns"] > self.start_ns) & (table["start_ns"] < self.end_ns)]


def shaded(spans: pd.DataFrame, total: tuple[int, int]) -> pd.DataFrame:
    """Return the spans that are drawn: no kind that takes most of the time, as training does."""
    ended = spans.assign(end_ns=spans["end_ns"].fillna(total[1]).astype("int64"))
    inside = ended[(ended["end_ns"] > total[0]) & (ended["start_ns"] < total[1])]
    length = inside["end_ns"].clip(upper=total[1]) - inside["start_ns"].clip(lower=total[0])
    share = length.groupby(inside["kind"]).sum() / (total[1] - total[0])
    return inside[inside["kind"].map(share) <= _BACKGROUND_SHARE]


def choose_zoom(
    total: tuple[int, int], spans: pd.DataFrame, known_ns: NDArray[np.int64], width_ns: int
) -> tuple[int, int]:
    """Choose a segment with known cells: around the start of a span, or their middle.

    Of several spans, the one nearest to the middle of all that is known.
    """
    middle = int(known_ns[len(known_ns) // 2])
    starts = spans["start_ns"].to_numpy()
    starts = starts[(starts > total[0]) & (starts < total[1])]
    for start in [*starts[np.argsort(np.abs(starts - middle), kind="stable")], middle]:
        low = min(max(int(start) - width_ns // 2, total[0]), total[1] - width_ns)
        if ((known_ns >= low) & (known_ns < low + width_ns)).any():
            break
    return low, low + width_ns


def mark_spans(figure: go.Figure, spans: pd.DataFrame, view: View) -> None:
    inside = view.holds(spans)
    for position, kind in enumerate(inside["kind"].value_counts().index[:_MOST_KINDS]):
        own = inside[inside["kind"] == kind]
        lengths = own["end_ns"] - own["start_ns"]
        drawn = own.loc[lengths.nlargest(_MOST_SPANS).index].sort_values("start_ns")
        top = 0.99 - 0.075 * position
        border = 1 if len(drawn) <= _MOST_BORDERED else 0
        starts = view.at(np.maximum(drawn["start_ns"].to_numpy(), view.start_ns))
        ends = view.at(np.minimum(drawn["end_ns"].to_numpy(), view.end_ns))
        for start, end in zip(starts, ends, strict=True):
            figure.add_shape(
                type="rect", x0=start, x1=end, y0=0, y1=top, layer="below", opacity=0.35,
                fillcolor=colour(str(kind)), line={"width": border, "dash": _BORDERS[position]},
                xref=_axis("x", view), yref=f"{_axis('y', view)} domain",
            )  # fmt: skip
        _name(figure, view, starts, top=top, text=_named(str(kind), len(own)))


def _named(kind: str, count: int) -> str:
    return label(kind, 20) + (f" ({count:,})" if count > 1 else "")


def _name(
    figure: go.Figure, view: View, starts: NDArray[np.float64], *, top: float, text: str
) -> None:
    low, high = view.at(view.start_ns), view.at(view.end_ns)
    # A label must end inside the panel; one near the right edge is written to the left.
    fits = np.flatnonzero(starts < high - _LABEL_SHARE * (high - low))
    at_end = not len(fits)
    figure.add_annotation(
        text=text, x=starts[-1] if at_end else starts[fits[0]], y=top, showarrow=False,
        xref=_axis("x", view), yref=f"{_axis('y', view)} domain", yanchor="top",
        xanchor="right" if at_end else "left", font={"size": 11}, bgcolor=VEIL,
        borderpad=1,
    )  # fmt: skip


def _axis(letter: str, view: View) -> str:
    return letter if view.column == 1 else f"{letter}{view.column}"


def mark_steps(figure: go.Figure, steps: pd.DataFrame, view: View, *, foot: float) -> None:
    """Draw a tick at the start of every step, unless they are too many to tell apart."""
    inside = steps[(steps["start_ns"] >= view.start_ns) & (steps["start_ns"] < view.end_ns)]
    if inside.empty or len(inside) > _MOST_STEPS:
        return
    figure.add_scatter(
        x=view.at(inside["start_ns"].to_numpy()),
        y=np.full(len(inside), foot),
        mode="markers",
        name="start of a step",
        customdata=inside["step"].to_numpy(),
        marker={
            "symbol": "line-ns-open",
            "size": 10,
            "color": COLOURS["ink"],
            "line": {"width": 1.5},
        },
        hovertemplate="step %{customdata:,} starts<extra></extra>",
        row=1,
        col=view.column,
    )
