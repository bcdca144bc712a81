"""Backends whose operations stay "scheduled": what they retired is finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.tables import Bundle, FlightRecording

_NUMBERS = ["rank", "confidence", "reason", "operation", "seq", "verdict", "waiting_count"]


def _entry(number: int, state: str, backend: str, *, retired: bool | None, op: str) -> dict:
    return {
        "collective_seq_id": number, "op_id": number, "p2p_seq_id": 0, "is_p2p": False,
        "record_id": number - 1, "pg_id": 0, "process_group": ["0", "default_pg"],
        "profiling_name": f"{backend}:{op}", "state": state, "timeout_ms": 1_800_000,
        "input_sizes": [[1000]], "output_sizes": [[1000]], "input_dtypes": ["Float"],
        "output_dtypes": ["Float"], "time_created_ns": 1_795_900_065_807_780_786 + number,
        "time_discovered_started_ns": 0, "time_discovered_completed_ns": 0,
    } | ({} if retired is None else {"retired": retired})  # fmt: skip


def _dumps(
    folder: Path, entries: list[list[dict]], completed: list[int], *, listed: bool = True
) -> FlightRecording:
    """Write one dump per rank as torch 2.13 does, and load them."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = str(list(range(len(entries)))) if listed else "[]"
    for rank, own in enumerate(entries):
        status = {
            "last_enqueued_collective": str(len(own)),
            "last_started_collective": "-1",
            "last_completed_collective": str(completed[rank]),
        }
        content = {
            "version": "2.10", "comm_lib_version": "", "nccl_comm_state": {},
            "pg_config": {"": {"name": "", "desc": "", "ranks": ranks}},
            "pg_status": {"0": status} if own else {},
        } | ({"entries": own} if own else {})  # fmt: skip
        (folder / f"fr_rank_{rank}.json").write_text(json.dumps(content))
    return load.flight_recorder(folder, progress=False)


def _gloo(called: int, finished: int, *, retired: bool = True, op: str = "all_reduce") -> list:
    return [
        _entry(number, "scheduled", "gloo", retired=retired and number <= finished, op=op)
        for number in range(1, called + 1)
    ]


def _hang(recording: FlightRecording) -> list[str]:
    found = analyze.findings(Bundle(flight=recording), rules=["hang"])
    return found.findings["finding"].tolist()


def test_a_healthy_recording_of_gloo_has_nothing_pending(tmp_path: Path) -> None:
    # The status of a rank lags behind what it retired.
    recording = _dumps(tmp_path, [_gloo(12, 12), _gloo(12, 12)], [12, 11])
    assert recording.ranks["pending_count"].tolist() == [0, 0]
    assert analyze.flight_suspects(recording)["verdict"].tolist() == ["nothing hangs"]
    assert not _hang(recording)
    assumed = recording.quality.query("finding == 'assumed'")
    assert assumed["what"].str.contains("gloo").all()
    assert assumed["count"].sum() == 24


def test_the_rank_that_never_calls_a_collective_of_gloo_is_named(tmp_path: Path) -> None:
    recording = _dumps(tmp_path, [_gloo(6, 5), _gloo(6, 5), _gloo(5, 5)], [5, 5, 4])
    suspect = analyze.flight_suspects(recording).iloc[0]
    assert (suspect["rank"], suspect["confidence"], suspect["seq"]) == (2, "high", 6)
    assert _hang(recording)[0].startswith("Rank 2 holds up 2 ranks")


@pytest.mark.parametrize("listed", [True, False])
def test_a_rank_that_calls_nothing_at_all_is_a_member_of_the_default_group(
    tmp_path: Path, *, listed: bool
) -> None:
    """After a second group was made, gloo lists no members of the first one any more."""
    recording = _dumps(tmp_path, [_gloo(1, 0), _gloo(1, 0), []], [-1, -1, -1], listed=listed)
    assert analyze.flight_suspects(recording)["rank"].tolist() == [2]
    assert recording.groups["members"].tolist() == ["0,1,2"]


def test_where_nothing_is_retired_the_last_completed_collective_decides(tmp_path: Path) -> None:
    for name, retired in (("never", False), ("unknown", None)):
        own = [_entry(n, "scheduled", "ucc", retired=retired, op="barrier") for n in (1, 2, 3)]
        recording = _dumps(tmp_path / name, [own, own[:2]], [2, 2])
        assert recording.ranks["pending_count"].tolist() == [1, 0]
        assert analyze.flight_suspects(recording)["rank"].tolist() == [1]


def test_an_operation_that_is_still_watched_hangs_although_a_later_one_ended(
    tmp_path: Path,
) -> None:
    first = _gloo(5, 5)
    first[3]["retired"] = False
    recording = _dumps(tmp_path, [first, _gloo(3, 3)], [5, 3])
    assert recording.entries.query("state != 'completed'")["seq"].tolist() == [4]
    assert analyze.flight_suspects(recording)["rank"].tolist() == [1]


def test_what_nccl_retired_without_seeing_its_end_stays_pending(tmp_path: Path) -> None:
    """The GPU failed: nobody knows whether the operation went through."""
    own = [_entry(7, "scheduled", "nccl", retired=True, op="all_reduce")]
    recording = _dumps(tmp_path, [own, own], [7, 7])
    assert recording.ranks["pending_count"].tolist() == [1, 1]


def test_a_group_of_unknown_members_blames_nobody_and_is_told(tmp_path: Path) -> None:
    own = _gloo(3, 3)
    sub = _entry(1, "scheduled", "gloo", retired=False, op="all_reduce")
    sub |= {"pg_id": 1, "process_group": ["1", "undefined"], "record_id": 3}
    recording = _dumps(tmp_path, [[*own, sub], own, own], [3, 3, 3])
    suspects = analyze.flight_suspects(recording)
    assert suspects["rank"].isna().all()
    assert suspects["verdict"].tolist() == ["cannot tell"]
    (row,) = analyze.findings(Bundle(flight=recording), rules=["hang"]).findings.itertuples()
    assert (
        row.finding == "1 rank hangs in all_reduce 1; the dumps do not show which rank is to blame"
    )
    assert "do not list the members of group 1" in row.doubt
    assert row.cost == pytest.approx(0.5)


@pytest.mark.long
@given(
    calls=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    operation=st.sampled_from(["all_reduce", "barrier", "all_gather", "reduce_scatter"]),
)
def test_suspects_do_not_depend_on_whether_a_backend_ends_its_states(
    tmp_path_factory: pytest.TempPathFactory, calls: list[int], operation: str
) -> None:
    finished = min(calls)
    folder = tmp_path_factory.mktemp("states")
    watched = [
        [
            _entry(n, "completed" if n <= finished else "scheduled", "nccl", retired=None,
                   op=operation)
            for n in range(1, count + 1)
        ]
        for count in calls
    ]  # fmt: skip
    unwatched = [_gloo(count, finished, op=operation) for count in calls]
    tables = [
        analyze.flight_suspects(_dumps(folder / name, entries, [finished] * len(calls)))
        for name, entries in (("nccl", watched), ("gloo", unwatched))
    ]
    assert tables[0][_NUMBERS].equals(tables[1][_NUMBERS])
