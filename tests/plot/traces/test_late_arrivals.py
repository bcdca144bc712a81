"""Late arrivals: what made the worst rank late stands in the title, and how in the line below."""

import pytest

from workbench import analyze, load, plot
from workbench.tables import LATE_ARRIVALS


def arrival(rank, ns, kind, **more):
    row = {"blamed_rank": rank, "wait_ns": ns, "excess_kind": kind, "is_sure": True}
    return row | {"operation": "all-reduce", "group": "0"} | more


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def note(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


@pytest.mark.oracle
def test_dlrm_shows_all_the_waiting_and_what_rank_7_did_before(dlrm):
    events = load.traces(dlrm, progress=False).events
    figure = plot.late_arrivals(
        analyze.late_arrivals(events, analyze.collective_waits(events)), source="DLRM"
    )
    assert title(figure) == (
        "Rank 7 is the straggler: the others wait 35.6 ms, 74 % of it because its step began later than theirs"
    )
    assert "what it did before is not in the trace" in note(figure)
    assert "its host is longest in ## sparse_data_dist ##" in note(figure)
    assert list(figure.layout.xaxis.ticktext) == ["7", "5", "4"]
    heights = [sum(parts) for parts in zip(*(trace.y for trace in figure.data), strict=True)]
    assert heights == pytest.approx([35.552, 6.282, 5.009])
    assert figure.layout.yaxis.title.text == "waiting of the others [ms]"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("compute", "because it computes for longer than they do"),
        ("communication", "because another group keeps it for longer than them"),
        ("memory", "because it copies for longer than they do"),
        ("other", "because it runs other work for longer than they do"),
        ("idle", "because its GPU has no work for longer than theirs"),
        ("began late", "because its step began later than theirs"),
        (None, "of no kind of time that it spends more of than they do"),
    ],
)
def test_every_reason_has_its_words(build, kind, words):
    figure = plot.late_arrivals(build(LATE_ARRIVALS, [arrival(3, 2_000, kind)]))
    assert title(figure).startswith("Rank 3 is the straggler: the others wait 2 µs, 100 % of it")
    assert title(figure).endswith(words)


def test_a_slow_gpu_is_told_by_its_ratio_and_its_longest_kernel(build):
    told = {"longest_kernel": "<gemm>", "longest_kernel_ns": 70}
    rows = [arrival(0, 100, "compute", compute_ratio=ratio, **told) for ratio in (1.2, 1.25, 3.0)]
    said = note(plot.late_arrivals(build(LATE_ARRIVALS, rows)))
    assert said == (
        "its compute takes 1.25 × as long as theirs (median) · it runs longest &lt;gemm&gt;"
    )


def test_ranks_that_hardly_matter_are_added_up(build):
    rows = [arrival(rank, 1 if rank > 2 else 1_000, "idle") for rank in range(30)]
    figure = plot.late_arrivals(build(LATE_ARRIVALS, rows))
    assert list(figure.layout.xaxis.ticktext) == ["0", "1", "2", "others"]
    assert sum(figure.data[0].y) * 1_000 == pytest.approx(3_027)


def test_doubtful_collectives_are_left_out_and_counted(build):
    rows = [arrival(0, 5, "idle"), arrival(1, 900, "idle", is_sure=False)]
    figure = plot.late_arrivals(build(LATE_ARRIVALS, rows))
    assert title(figure).startswith("Rank 0 ")
    assert "1 collective dropped: not sure who was last" in note(figure)
    nobody = plot.late_arrivals(build(LATE_ARRIVALS, rows[1:]))
    assert title(figure).endswith("for whom they wait 900 ns more is not sure")
    assert nobody.layout.title.text == "The late rank cannot be identified"
    assert "1 collective dropped" in nobody.layout.annotations[0].text
