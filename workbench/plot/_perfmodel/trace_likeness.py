"""Likeness of a synthetic trace to the real one, score by score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.plot._style.draft import Draft
from workbench.plot._style.style import COLOURS, Frame, colour, left_margin, row_axis
from workbench.plot._style.text import label, plural, share_text
from workbench.tables import TRACE_LIKENESS

_MOST_ROWS, _ROW_PX = 40, 21
# Scores further off are drawn at the edge.
_WIDEST = 3.0
_VERDICTS = (("pass", "allowed", "circle"), ("FAIL", "limit", "x"))


def trace_likeness(table: pd.DataFrame, *, source: str = "", synthetic: bool = False) -> go.Figure:
    """Show every score of a synthetic trace beside what is allowed.

    One row per score: the distance from a perfect score, as a share of what is allowed; right
    of the line it fails. The title states whether behaviour is alike, and what leaks.

    Parameters
    ----------
    table
        Table :data:`workbench.tables.TRACE_LIKENESS`.
    """
    frame = Frame(source, synthetic)
    TRACE_LIKENESS.check(table)
    checked = table[table["used_ratio"].notna()]
    if checked.empty:
        why = "The table has no scores; pass what analyze.trace_likeness returns."
        return frame.nothing(why, claim="No likeness to show")
    # The worst are kept, in the order of the table.
    worst = np.argsort(-checked["used_ratio"].to_numpy(np.float64), kind="stable")[:_MOST_ROWS]
    rows = checked.iloc[np.sort(worst)].reset_index(drop=True)
    figure = Draft()
    for verdict, meaning, symbol in _VERDICTS:
        chosen = np.flatnonzero(rows["verdict"] == verdict)
        if not len(chosen):
            continue
        shown = rows.iloc[chosen]
        used = shown["used_ratio"].to_numpy(np.float64)
        figure.add_scatter(
            mode="markers+text", x=np.minimum(used, _WIDEST), y=chosen, name=verdict,
            marker={"symbol": symbol, "size": 9, "color": colour(meaning)}, cliponaxis=False,
            text=[f" {value:.3g}" for value in shown["value"]],
            textposition="middle right", textfont={"size": 11},
            hovertext=[
                f"{label(row['score'], 20)}, {label(row['kind'], 60)}: {row['value']:.4g}, "
                f"limit {row['limit']:.4g}"
                for row in shown.to_dict("records")
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": COLOURS["limit"], "dash": "dash", "width": 1.5})
    names = [f"{label(row.score, 12)}: {label(row.kind, 34)}" for row in rows.itertuples()]
    most = min(max(float(rows["used_ratio"].max()), 1.0), _WIDEST)
    title = "distance from a perfect score [1 = all that is allowed]"
    figure.update_xaxes(title=title, range=[-0.03 * most, 1.2 * most])
    figure.update_yaxes(**row_axis(names, 0.4, 0.6), showgrid=False)
    figure.update_layout(
        height=max(_ROW_PX * len(rows), 120), margin_l=left_margin(names), hovermode="closest"
    )
    notes = ["numbers: the scores; dashed: all that is allowed"]
    if (rows["used_ratio"] > _WIDEST).any():
        notes.append(f"those above {_WIDEST:g} are drawn at the edge")
    hidden, unchecked = len(checked) - len(rows), len(table) - len(checked)
    notes += [f"{plural(hidden, 'better score')} dropped"] * (hidden > 0)
    notes += [f"{plural(unchecked, 'score')} cannot be checked"] * (unchecked > 0)
    return frame.finish(figure, claim=_claim(checked), note=" · ".join(notes))


def _claim(table: pd.DataFrame) -> str:
    failed = table[table["verdict"] == "FAIL"]
    behaviour = failed[failed["score"] == "behaviour"]
    leaks = failed[failed["score"] == "leak"]
    words = "Behaves like the real trace"
    if len(behaviour):
        worst = behaviour.sort_values("used_ratio").iloc[-1]
        words = f"Does not behave like the real trace: {label(worst['kind'], 27)} {_size(worst)}"
    elif not (table["score"] == "behaviour").any():
        words = "Behaviour was not compared"
    elif len(ratios := table.loc[table["kind"].str.contains(r" x[\d.]+$"), "value"]):
        words += f": what-ifs move both alike to {share_text(float((ratios - 1).abs().max()))}"
    words += f", and leaks: {label(leaks['kind'].iloc[0], 25)}" if len(leaks) else ""
    if others := len(failed) - len(behaviour) - len(leaks):
        words += f"; {plural(others, 'other score')} {'fails' if others == 1 else 'fail'}"
    return words


def _size(row: pd.Series) -> str:
    is_share = str(row["kind"]).endswith("share")
    return f"is {100 * row['value']:.0f} points off" if is_share else f"is {row['value']:.2f} times"
