"""Figures of hangs: the title says the verdict, real hangs first."""

import pytest

from workbench import analyze, load, plot
from workbench.tables import FLIGHT_POSITIONS, FLIGHT_SUSPECTS, FLIGHT_WAITS


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


@pytest.fixture(scope="module")
def hangs(real_data):
    folder = real_data("flight-recorder")
    cases = ("lock_gil_1st", "gpu_error_1st")
    return {case: load.flight_recorder(folder / case, progress=False) for case in cases}


@pytest.mark.oracle
def test_the_titles_of_frozen_hosts_name_them(hangs):
    hang = hangs["lock_gil_1st"]
    suspects = plot.flight_suspects(analyze.flight_suspects(hang))
    assert title(suspects) == "Ranks 9 and 14 never arrived: up to 13 ranks wait for each of them"
    assert list(suspects.layout.yaxis.ticktext) == ["rank 9 (high)", "rank 14 (high)"]
    assert "_reduce_scatter_base 88,684" in suspects.layout.annotations[0].text
    waits = plot.flight_waits(analyze.flight_waits(hang))
    assert title(waits) == ("Ranks 9 and 14 wait for nobody; 14 ranks wait, for them or for others")
    assert waits.layout.yaxis.ticktext[0] == "▶ rank 9, waits for nobody"


@pytest.mark.oracle
def test_the_matrix_marks_failed_gpus_and_counts_what_is_pending(hangs):
    figure = plot.flight_positions(analyze.flight_positions(hangs["gpu_error_1st"]))
    assert title(figure) == (
        "Ranks 12 and 14 have not completed what their peers have; "
        "16 ranks hold 289 pending operations"
    )
    assert figure.layout.yaxis.ticktext[12] == "▶ 12, stalled"
    assert figure.data[0].z.sum(axis=1)[[12, 14]].tolist() == [27, 43]
    assert figure.data[0].text[12][0] == "12 ×", "behind in its tensor-parallel group"


def suspect(rank, reason, confidence="medium", **others):
    row = {"rank": rank, "reason": reason, "confidence": confidence, "verdict": "found"}
    return row | {"evidence": "so the dumps say"} | others


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([suspect(3, "never arrived", "high", waiting_count=7)],
         "Rank 3 never arrived: 7 ranks wait for it"),
        ([suspect(3, "no dump")], "Probably rank 3 left no dump, and is all that is missing"),
        ([suspect(3, "mismatch", "high"), suspect(5, "stalled")],
         "Rank 3 called something else than its peers, and 1 other may be"),
        ([suspect(rank, "all entered", "low", verdict="cannot tell") for rank in range(6)],
         "The dumps cannot show what hangs: ranks 0, 1, 2, 3 and 2 more are in operations that "
         "no rank completes"),
        ([suspect(None, "nothing hangs", "none", verdict="nothing hangs")],
         "Nothing hangs in these dumps"),
        ([suspect(None, "all entered", "none", verdict="cannot tell")],
         "All ranks have arrived and none has completed: the dumps cannot show why"),
    ],
)  # fmt: skip
def test_the_verdict_says_how_sure_it_is(rows, said, build):
    assert title(plot.flight_suspects(build(FLIGHT_SUSPECTS, rows))) == said


def test_without_a_free_rank_the_circle_is_stated(build):
    rows = [{"rank": 0, "waits_for": 1, "why": "not called", "is_sure": True}]
    rows.append({"rank": 1, "waits_for": 0, "why": "not called", "is_sure": True})
    figure = plot.flight_waits(build(FLIGHT_WAITS, rows))
    assert title(figure) == "2 ranks wait for each other: no rank that others wait for is free"


def test_ranks_beyond_forty_give_way_to_suspects(build):
    rows = [
        {"rank": rank, "group": "0", "has_dump": rank != 70, "pending_count": rank % 3,
         "confidence": "high" if rank == 77 else "none", "reason": "stalled" if rank == 77 else ""}
        for rank in range(80)
    ]  # fmt: skip
    figure = plot.flight_positions(build(FLIGHT_POSITIONS, rows))
    assert len(figure.layout.yaxis.ticktext) == 40
    assert "▶ 77, stalled" in figure.layout.yaxis.ticktext
    assert "40 of 80 ranks" in figure.layout.title.subtitle.text
