"""Collectives: bandwidth, waiting, and who is to blame."""

import numpy as np
import pytest

from workbench import analyze, load, plot
from workbench.tables import BLAME, COLLECTIVE_WAITS, COLLECTIVES, LATE_ARRIVALS


def wait(collective, rank, ns, blamed, **more):
    row = {"collective": collective, "rank": rank, "operation": "all-reduce", "transfer_ns": 10}
    return (
        row | {"wait_ns": ns, "blamed_rank": blamed, "confidence": "high", "is_sure": True} | more
    )


def collective(number, **more):
    row = {"collective": number, "rank": 0, "operation": "all-reduce", "rank_count": 8}
    row |= {"size_bytes": 1_000, "bus_gb_per_s": 10.0, "confidence": "high"}
    return row | {"transfer_min_ns": 100} | more


def blamed(by, whom, ns):
    return {"blamed_rank": by, "rank": whom, "wait_ns": ns, "collective_count": 1}


@pytest.mark.oracle
def test_dlrm_blames_rank_7(dlrm):
    waits = analyze.collective_waits(load.traces(dlrm, progress=False).events)
    figure = plot.collective_waits(waits)
    assert figure.layout.title.text.replace("<br>", " ") == (
        "Rank 7 enters last in 5 of 8 collectives: the others wait 35.6 ms for it, "
        "76 % of all waiting"
    )
    waiting = next(trace for trace in figure.data if trace.name == "wait")
    assert np.asarray(waiting.y) * 1_000 == pytest.approx(
        [5_580, 11_125, 3_280, 9_571, 6_370, 6_041, 3_342, 1_534]
    )
    assert "matched by their order alone" in figure.layout.title.subtitle.text
    matrix = plot.straggler_attribution(analyze.straggler_attribution(waits))
    assert list(matrix.layout.yaxis.ticktext) == ["7", "5", "4"]
    assert np.nansum(matrix.data[0].z, axis=1) == pytest.approx([35.552, 6.282, 5.009])


def test_waits_are_stacked_on_transfers(build):
    table = build(COLLECTIVE_WAITS, [wait(0, 0, 30, 1), wait(0, 1, 0, 1), wait(1, 0, 10, 1)])
    figure = plot.collective_waits(table)
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "transfer": [20, 10],
        "wait": [40, 0],
    }
    assert figure.layout.title.subtitle.text == ""


def test_nobody_is_named_when_nobody_waits(build):
    figure = plot.collective_waits(build(COLLECTIVE_WAITS, [wait(0, 0, 0, 0), wait(0, 1, 0, 0)]))
    assert figure.layout.title.text == "All ranks enter their collectives at the same time"


def test_what_is_doubtful_about_waiting_is_said(build):
    rows = [wait(0, 0, 5, 1, is_complete=False), wait(1, 0, 30, 1, is_sure=False)]
    figure = plot.collective_waits(build(COLLECTIVE_WAITS, rows))
    assert figure.layout.title.text.replace("<br>", " ") == (
        "The straggler is unknown: it is not certain which rank was last in 1 of 2 collectives"
    )
    said = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "1 of 2 collectives whose ranks end about as far apart" in said
    assert "1 of 2 collectives with ranks missing" in said


def test_why_nobody_can_be_seen_waiting_comes_from_the_table(build):
    empty = build(COLLECTIVE_WAITS, [])
    empty.attrs["left_out"] = {"clocks <disagree>": 7, "a barrier": 2}
    figure = plot.collective_waits(empty)
    (said,) = [note.text for note in figure.layout.annotations if "not known" in note.text]
    assert "9 communication kernels" in said
    assert "clocks &lt;disagree&gt;" in said


def test_blame_says_what_it_leaves_out(build):
    rows = [wait(0, 0, 5_000_000, 1), wait(1, 0, 30, 1, is_complete=False)]
    table = analyze.straggler_attribution(build(COLLECTIVE_WAITS, rows))
    assert (
        "1 collective dropped: a rank is missing"
        in plot.straggler_attribution(table).layout.title.subtitle.text
    )


def test_cells_hold_milliseconds_and_blame_is_sorted(build):
    rows = [blamed(1, 0, 2_000_000), blamed(3, 0, 500_000), blamed(3, 1, 12_300_000)]
    figure = plot.straggler_attribution(build(BLAME, rows))
    (heat,) = figure.data
    assert list(figure.layout.yaxis.ticktext) == ["3", "1"]
    assert [list(row) for row in heat.text] == [["0.5", "12.3"], ["2", ""]]
    assert heat.texttemplate == "%{text}"
    assert (
        figure.layout.title.text
        == "Rank 3 is the straggler: the others wait 12.8 ms, 86 % of all waiting"
    )


def test_of_a_thousand_ranks_none_is_lost_in_the_sum(build):
    rows = [blamed(n % 100, n, 1_000_000 * (1 + n % 7)) for n in range(1_000)]
    figure = plot.straggler_attribution(build(BLAME, rows))
    (heat,) = figure.data
    assert np.size(heat.z) <= 5_000
    assert np.nansum(heat.z) == pytest.approx(sum(row["wait_ns"] for row in rows) / 1e6)
    assert figure.layout.yaxis.ticktext[-1] == "others"
    assert heat.text is None


def test_bandwidth_is_one_dot_per_collective_by_operation_and_confidence(build):
    rows = [
        collective(0),
        collective(0, rank=1),
        collective(1, size_bytes=2_000_000, bus_gb_per_s=187.4),
        collective(2, confidence="low"),
        collective(3, operation="broadcast"),
        collective(4, size_bytes=None),
        collective(None),
    ]
    figure = plot.collectives(build(COLLECTIVES, rows))
    assert {trace.name: list(trace.y) for trace in figure.data} == {
        "all-reduce (high)": [10, 187.4],
        "all-reduce (low)": [10],
        "broadcast (high)": [10],
    }
    symbols = [trace.marker.symbol for trace in figure.data]
    assert len(set(symbols)) == 3
    assert figure.layout.title.text == (
        "4 collectives: the fastest, all-reduce of 2 MB, reaches 187 GB/s on the bus"
    )
    assert "1 without a size dropped" in figure.layout.title.subtitle.text


def test_why_there_is_no_bandwidth_is_told_from_the_table(build):
    unmatched = build(COLLECTIVES, [collective(None, note="only one rank is loaded")])
    assert "only one rank is loaded" in plot.collectives(unmatched).layout.annotations[0].text
    unsized = build(COLLECTIVES, [collective(0, size_bytes=None)])
    assert "records its size" in plot.collectives(unsized).layout.annotations[0].text


def test_kernels_of_which_nothing_is_known_are_told_under_every_figure(build):
    unknown = {"clocks <disagree>": 7, "a barrier": 2, "alone": 1, "other": 1}
    words = (
        "7 communication kernels dropped: clocks &lt;disagree&gt; · "
        "2 communication kernels dropped: a barrier · "
        "2 communication kernels dropped for other reasons"
    )
    nobody = build(BLAME, [])
    nobody.attrs["kernels_left_out"] = unknown
    figure = plot.straggler_attribution(nobody)
    assert figure.layout.title.text == "No straggler can be named"
    assert "7 communication kernels dropped" in figure.layout.annotations[0].text
    late = LATE_ARRIVALS.empty()
    late.attrs["kernels_left_out"] = unknown
    figure = plot.late_arrivals(late)
    assert "7 communication kernels dropped" in figure.layout.annotations[0].text
    table = build(COLLECTIVE_WAITS, [wait(0, 0, 30, 1), wait(0, 1, 0, 1)])
    table.attrs["left_out"] = unknown
    figure = plot.collective_waits(table)
    assert figure.layout.title.text.startswith("Rank 1 enters last")
    assert words in figure.layout.title.subtitle.text.replace("<br>", " ")
    some = analyze.straggler_attribution(table)
    assert words in plot.straggler_attribution(some).layout.title.subtitle.text.replace("<br>", " ")
