"""A draft gives the figure that plotly makes of the same calls, and plotly checks it."""

import copy

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.subplots import make_subplots

from workbench.plot._style.draft import Draft, grid

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5)
TEXTS = st.text("ab<>&_ ", max_size=8)
PANEL = st.fixed_dictionaries({"row": st.integers(1, 2), "col": st.just(1)})
AN_AXIS = st.fixed_dictionaries({}, optional={"row": st.integers(1, 2)})
ANY_PANEL = st.fixed_dictionaries({}, optional={"row": st.sampled_from([1, 2, "all"])})
TRACES = st.fixed_dictionaries(
    {"x": NUMBERS, "y": NUMBERS.map(np.asarray), "name": TEXTS},
    optional={
        "marker": st.just({"color": "red", "line": {"width": 0}}),
        "marker_size": st.integers(1, 9),
        "hovertemplate": TEXTS,
        "error_x": st.just({"array": [1.0], "type": "data"}),
        "text": st.none(),
        "customdata": NUMBERS.map(pd.Series),
    },
)
# Not a title and a part of it in one call: plotly's answer depends on what came before.
TITLES = st.one_of(
    st.fixed_dictionaries({}, optional={"title": TEXTS}),
    st.fixed_dictionaries({"title_standoff": st.integers(1, 9)}),
)
AXIS_LOOKS = st.fixed_dictionaries(
    {},
    optional={
        "range": st.just((0, 4.0)),
        "tickvals": NUMBERS.map(np.asarray),
        "type": st.just("log"),
        "showgrid": st.booleans(),
    },
)
AXES = st.builds(lambda title, look: title | look, TITLES, AXIS_LOOKS)
LAYOUTS = st.fixed_dictionaries(
    {},
    optional={
        "height": st.integers(100, 500),
        "margin_l": st.integers(1, 90),
        "margin": st.fixed_dictionaries({}, optional={"t": st.integers(1, 9), "b": st.none()}),
        "barmode": st.just("stack"),
        "uniformtext": st.just({"mode": "hide", "minsize": 9}),
        "title": TEXTS,
    },
)
LINES = st.fixed_dictionaries(
    {},
    optional={
        "line": st.just({"color": "blue", "dash": "dot"}),
        "annotation_text": TEXTS,
        "annotation_position": st.sampled_from(["top left", "bottom right"]),
        "annotation": st.just({"text": "limit", "showarrow": False}),
        "layer": st.just("below"),
    },
)
NOTES = st.fixed_dictionaries({"text": TEXTS, "x": st.just(1), "y": st.just(0.5)})
AT = st.floats(-10, 10)


def bar(trace):
    return {name: value for name, value in trace.items() if name != "marker_size"}


def steps(panel, an_axis, some_panels):
    """Give calls: the name of a method, its places and its options."""

    def call(name, options, *places):
        return st.tuples(st.just(name), st.tuples(*places), options)

    def both(first, second):
        return st.builds(lambda one, two: one | two, first, second)

    return st.lists(
        st.one_of(
            call("add_scatter", both(TRACES, panel)),
            call("add_bar", both(TRACES.map(bar), panel)),
            call("update_xaxes", both(AXES, an_axis)),
            call("update_yaxes", both(AXES, an_axis)),
            call("update_layout", LAYOUTS),
            call("add_annotation", NOTES),
            call("add_vline", both(LINES, some_panels), AT),
            call("add_hline", both(LINES, some_panels), AT),
            call("add_vrect", both(LINES, some_panels), AT, AT),
            call("update_traces", st.just({"textfont": {"size": 9}, "text": None})),
        ),
        max_size=8,
    )


def drawn(figure, calls):
    for name, places, options in calls:
        # Plotly writes into the dictionaries that it is given.
        getattr(figure, name)(*places, **copy.deepcopy(options))
    return figure


def content(figure):
    """Give what is set, without parts that are empty."""
    whole = figure.to_plotly_json()
    whole["layout"].pop("template", None)

    def full(value):
        if isinstance(value, dict):
            parts = {name: full(part) for name, part in value.items()}
            return {name: part for name, part in parts.items() if part not in ({}, None)}
        if isinstance(value, (list, tuple)):
            return [full(part) for part in value]
        return value.tolist() if isinstance(value, np.ndarray) else value

    return full(whole)


@given(steps(*[st.just({})] * 3))
def test_any_calls_give_the_figure_of_plotly(calls):
    assert content(drawn(Draft(), calls).done()) == content(drawn(go.Figure(), calls))


@given(steps(PANEL, AN_AXIS, ANY_PANEL))
def test_any_calls_on_several_panels_give_the_figure_of_plotly(calls):
    shape = {"rows": 2, "cols": 1, "shared_xaxes": True, "vertical_spacing": 0.1}
    whole = [
        (name, places, options | ({"col": 1} if options.get("row") and "line" in name else {}))
        for name, places, options in calls
    ]
    assert content(drawn(grid(**shape), whole).done()) == content(
        drawn(make_subplots(**shape), whole)
    )


def test_traces_are_objects_of_plotly_too():
    trace = go.Heatmap(z=[[1, 2]], colorbar={"title": "S [×]"})
    assert content(Draft(trace).done()) == content(go.Figure(trace))
    assert content(Draft([trace, go.Bar(y=[1])]).done()) == content(
        go.Figure([trace, go.Bar(y=[1])])
    )


def test_parts_read_like_those_of_plotly():
    draft = Draft().add_bar(y=[1, 2], name="b").update_yaxes(title="time [s]")
    assert draft.layout.yaxis.title.text == "time [s]"
    assert draft.layout.margin.l is None
    assert draft.layout.height is None
    assert [trace.name for trace in draft.data] == ["b"]


def test_what_plotly_does_not_know_is_refused():
    with pytest.raises(ValueError, match="colour"):
        Draft().add_scatter(x=[1], colour="red").done()
    with pytest.raises(ValueError, match="wide"):
        Draft().update_xaxes(type="wide").done()
