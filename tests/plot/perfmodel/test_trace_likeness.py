"""The figure of likeness: its title says whether behaviour is alike, and what leaks."""

import pandas as pd
import pytest

from workbench import plot
from workbench.tables import TRACE_LIKENESS


def table(*rows):
    columns = ["score", "kind", "value", "limit", "used_ratio", "verdict"]
    return TRACE_LIKENESS.of(pd.DataFrame(rows, columns=columns))


ALIKE = ("behaviour", "communication x2", 1.02, 1.1, 0.2, "pass")
UNLIKE = ("behaviour", "communication x2", 1.33, 1.1, 3.3, "FAIL")
SHARE = ("behaviour", "idle share", 0.21, 0.1, 2.1, "FAIL")
NAMES = ("leak", "share of source names", 0.5, 0.0, 10.0, "FAIL")
SIZE = ("shape", "size of memory", 0.4, 0.2, 2.0, "FAIL")
UNKNOWN = ("leak", "nearest source / held-out", 0.9, None, None, "not checked")


def title(figure):
    return str(figure.layout.title.text).replace("<br>", " ")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ALIKE], "Behaves like the real trace: what-ifs move both alike to 2.0 %"),
        (
            [ALIKE, NAMES],
            "Behaves like the real trace: what-ifs move both alike to 2.0 %, and leaks: share of",
        ),
        (
            [ALIKE, SIZE],
            "Behaves like the real trace: what-ifs move both alike to 2.0 %; 1 other score fails",
        ),
        ([UNLIKE, ALIKE], "Does not behave like the real trace: communication x2 is 1.33 times"),
        ([SHARE], "Does not behave like the real trace: idle share is 21 points off"),
        ([SIZE], "Behaviour was not compared; 1 other score fails"),
    ],
)
def test_the_title_states_behaviour_first_then_leaks_then_the_rest(rows, words):
    assert title(plot.trace_likeness(table(*rows))).startswith(words)


def test_pass_and_fail_differ_by_shape_and_what_is_off_by_much_is_at_the_edge():
    figure = plot.trace_likeness(
        table(ALIKE, UNLIKE, NAMES, UNKNOWN), source="a job", synthetic=True
    )
    marks = {trace.name: (trace.marker.symbol, list(trace.x)) for trace in figure.data}
    assert marks == {"pass": ("circle", [0.2]), "FAIL": ("x", [3.0, 3.0])}
    assert "those above 3 are drawn at the edge" in figure.layout.title.subtitle.text
    assert "1 score cannot be checked" in figure.layout.title.subtitle.text
    assert "SYNTHETIC DATA" in figure.layout.title.subtitle.text


def test_a_table_without_scores_is_explained():
    assert title(plot.trace_likeness(table(UNKNOWN))) == "No likeness to show"
