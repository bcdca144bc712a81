"""Controls that several explorers offer, and the choice of rows they stand for."""

from __future__ import annotations

from collections.abc import Iterable

import ipywidgets as widgets
import pandas as pd

from workbench.tables import Trace

ALL = "all"


def rank_choice(trace: Trace) -> widgets.Dropdown:
    """Offer every loaded rank, and all of them together."""
    return choice("rank", (int(rank) for rank in trace.ranks["rank"]))


def choice(description: str, values: Iterable[object]) -> widgets.Dropdown:
    """Offer some values, and all of them together, which is where it starts."""
    return widgets.Dropdown(
        options=[(ALL, ALL), *((str(value), value) for value in values)], description=description
    )


def chosen_rows(table: pd.DataFrame, **choices: object) -> pd.DataFrame:
    """Keep the rows that have the chosen value in each named column; ``ALL`` keeps every row."""
    for column, value in choices.items():
        if value != ALL:
            table = table[(table[column] == value).fillna(value=False)]
    return table.reset_index(drop=True)


def slider(description: str, options: list[tuple[str, object]], value: object) -> widgets.Widget:
    """Offer some values on a line, answering when the handle is let go."""
    made = widgets.SelectionSlider(
        options=options, value=value, description=description, continuous_update=False
    )
    # ipywidgets leaves the label of the first option empty until the handle has moved.
    made.label = options[made.index][0]
    return made


def numbers(description: str, values: Iterable[float], start: float) -> widgets.Widget:
    """Offer numbers on a line; where it starts is among them."""
    offered = sorted({*(float(each) for each in values), float(start)})
    return slider(description, [(f"{each:g}", each) for each in offered], float(start))
