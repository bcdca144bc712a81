"""Windows of one process are one rank, of which one window is read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.load.conftest import event, launched
from tests.load.traces.xplane.xplane_files import add_line, space_class
from workbench import load
from workbench._shared.kernel_kinds import SEVERAL_WINDOWS
from workbench.errors import LoadError

EPOCH_US = 1_700_000_000_000_000
MOST_S = 60


def write_window(folder, name, at_s, **info):
    """Write one recording of a second that begins ``at_s`` after the first."""
    rows = [*launched(1, EPOCH_US + at_s * 1_000_000), event("end", EPOCH_US + at_s * 1_000_000)]
    about = {"distributedInfo": info} if info else {}
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, "traceEvents": rows}))
    return path


def handler_name(pid, at_s):
    """Return a name as torch.profiler.tensorboard_trace_handler gives it."""
    return f"node_{pid}.{(EPOCH_US + at_s * 1_000_000) * 1_000}.pt.trace.json"


def chosen(trace):
    rows = trace.quality[trace.quality["what"].str.startswith(SEVERAL_WINDOWS)]
    read = rows[rows["finding"].isin(["assumed", "noted"])]
    return set(read["finding"]), set(read["what"].str.extract(r"number (\d+) of 0 to")[0])


@pytest.mark.long
@settings(max_examples=20)
@given(
    st.integers(1, 3),
    st.lists(st.integers(1, MOST_S), min_size=2, max_size=4, unique=True),
    st.sampled_from(["flat", "folders"]),
    st.booleans(),
    st.sampled_from([None, "first", "last", 0, 1]),
)
def test_each_process_is_one_rank_with_all_its_windows(
    tmp_path_factory, ranks, starts, layout, is_told, window
):
    folder = tmp_path_factory.mktemp("windows")
    for number, at_s in enumerate(starts):
        for rank in range(ranks):
            within = folder if layout == "flat" else folder / f"window{number}"
            info = {"rank": rank, "world_size": ranks + 1} if is_told else {}
            write_window(within, handler_name(100 + rank, at_s), at_s, **info)
    trace = load.traces(folder, window=window, progress=False)
    listed = load.rank_files(folder, window=window)
    assert trace.ranks["rank"].tolist() == listed.table["rank"].tolist() == [*range(ranks)]
    assert trace.ranks["source"].tolist() == listed.table["source"].tolist()
    at = {None: -1, "first": 0, "last": -1}.get(window, window)
    expected_ns = (EPOCH_US + sorted(starts)[at] * 1_000_000) * 1_000
    assert (trace.ranks["first_ns"] == expected_ns).all()
    number = at if at >= 0 else len(starts) - 1
    assert chosen(trace) == ({"assumed" if window is None else "noted"}, {str(number)})


def test_processes_that_recorded_together_are_ranks(tmp_path):
    # One name for all, as worker_name="trainer" makes them: seconds apart would be windows.
    for nano in range(3):
        name = f"trainer.{EPOCH_US * 1_000 + nano}.pt.trace.json"
        write_window(tmp_path, name, 0)
    for host in "ab":
        write_window(tmp_path / host, "trace.json", 0)
    trace = load.traces(tmp_path, progress=False)
    assert trace.ranks["rank"].tolist() == [0, 1, 2, 3, 4]
    assert chosen(trace) == (set(), set())


def test_the_window_that_every_rank_has_is_taken(tmp_path):
    for pid, starts in ((1, (10, 20, 30)), (2, (10, 20))):
        for at_s in starts:
            write_window(tmp_path, handler_name(pid, at_s), at_s)
    trace = load.traces(tmp_path, progress=False)
    assert (trace.ranks["first_ns"] == (EPOCH_US + 20_000_000) * 1_000).all()
    assert chosen(trace)[1] == {"1"}


def test_windows_of_a_rank_in_folders_of_their_own_are_found_by_their_times(tmp_path):
    for at_s in (20, 10):
        for rank in (0, 1):
            name = f"iteration_{at_s}/rank{rank}_trace.json"
            write_window(tmp_path, name, at_s, rank=rank, world_size=2)
    assert (load.traces(tmp_path).ranks["first_ns"] == (EPOCH_US + 20_000_000) * 1_000).all()
    assert load.rank_files(tmp_path).table["source"].str.contains("iteration_20").all()


@pytest.mark.parametrize("world_size", [1, 2])
def test_copies_and_lone_jobs_of_one_name_are_refused(tmp_path, world_size):
    for at_s in (10, 10 if world_size == 2 else 20):
        name = f"run{len([*tmp_path.iterdir()])}/rank0.json"
        write_window(tmp_path, name, at_s, rank=0, world_size=world_size)
    for loader in (load.traces, load.rank_files):
        with pytest.raises(LoadError, match="two files are rank 0"):
            loader(tmp_path)


def test_runs_of_jax_in_one_folder_are_windows_of_each_host(tmp_path):
    for second in (2, 1):
        for host in ("a", "b"):
            space = space_class()()
            plane = space.planes.add(name="/host:CPU")
            start_ns = (EPOCH_US + second * 10_000_000) * 1_000
            add_line(plane, "main", [("work", 0, 1_000_000_000, {})], timestamp_ns=start_ns)
            path = tmp_path / f"plugins/profile/2026_11_28_21_28_0{second}/{host}.xplane.pb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(space.SerializeToString())
    for loader in (load.traces, load.rank_files):
        read = loader(tmp_path, window="first")
        sources = (read.table if loader is load.rank_files else read.ranks)["source"].tolist()
        assert [source.rpartition("/")[2] for source in sources] == ["a.xplane.pb", "b.xplane.pb"]
        assert all("28_01" in source for source in sources)
