"""Explore what a step would take if something were otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from workbench import analyze, plot
from workbench.analyze import Change
from workbench.explore._controls import ALL, choice, slider
from workbench.explore._panel import Explorer
from workbench.explore._questions import parts_of, standard_questions
from workbench.tables import ExecutionGraph

_TIMES = (
    ("removed", 0.0), ("1/4", 0.25), ("1/2", 0.5), ("3/4", 0.75), ("x1.1", 1.1), ("x1.5", 1.5),
    ("x2", 2.0),
)  # fmt: skip


def what_if(
    events: pd.DataFrame,
    graph: ExecutionGraph,
    *,
    questions: Sequence[Change | Sequence[Change]] | None = None,
    source: str = "",
    synthetic: bool = False,
) -> Explorer:
    """Choose what takes another time, and how much; see what a step would take.

    Starts with compute twice as fast. The prediction stands among others that were asked
    beforehand.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` that the graph was built from.
    graph
        From :func:`workbench.analyze.execution_graph`.
    questions
        What to compare with; by default compute and CPU twice as fast, no communication, no
        copies.
    source
        Where the data comes from; printed under the figure.
    synthetic
        Whether the data was generated; the figure then says so.

    Returns
    -------
    workbench.explore.Explorer
        Controls above :func:`workbench.plot.what_if`.
    """
    parts = parts_of(events)
    fidelity = cache(lambda: analyze.replay_fidelity(events, graph))
    compared = standard_questions(events) if questions is None else list(questions)

    @cache
    def others() -> pd.DataFrame:
        return analyze.what_if(events, graph, compared, fidelity=fidelity())

    def draw(*, what: str, time: float, rank: int | str = ALL) -> go.Figure:
        chosen, name = dict(parts[what]), parts[what].get("name")
        if name is not None:
            chosen["name"] = f"^{re.escape(name)}$"
        change = Change(factor=time, rank=None if rank == ALL else int(rank), **chosen)
        table = analyze.what_if(events, graph, [change], fidelity=fidelity())
        words = change.question.replace(str(change.name), str(name)) if name else change.question
        rows = pd.concat([table.assign(question=words), others()], ignore_index=True)
        rows = rows.drop_duplicates("question").astype({"basis": "category"})
        return plot.what_if(rows, asked=words, source=source, synthetic=synthetic)

    controls: dict[str, Any] = {
        "what": widgets.Dropdown(options=list(parts), description="what"),
        "time": slider("its time", list(_TIMES), 0.5),
    }
    ranks = sorted(int(rank) for rank in events["rank"].unique())
    if len(ranks) > 1:
        controls["rank"] = choice("rank", ranks)
    return Explorer(draw, **controls)
