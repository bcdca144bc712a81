"""Copy bandwidth: bytes over time, with concurrent copies added up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.tables import COPY_BANDWIDTH, EVENTS


def copy(start, dur, size, name="Memcpy HtoD (Pinned -> Device)", **more):
    row = {"start_ns": start, "dur_ns": dur, "size_bytes": size, "category": "gpu_memcpy"}
    return row | {"name": name} | more


def one(events):
    table = COPY_BANDWIDTH.check(analyze.copy_bandwidth(events))
    assert len(table) == 1
    return table.iloc[0]


def test_concurrent_copies_add_up(make_events):
    row = one(make_events(copy(0, 100, 1000), copy(50, 100, 2000)))
    assert row["busy_ns"] == 150
    assert row["mean_gb_per_s"] == 20
    assert row["peak_gb_per_s"] == 30


def test_copies_one_after_another_do_not_add_up(make_events):
    row = one(make_events(copy(0, 100, 1000), copy(100, 100, 2000)))
    assert row["mean_gb_per_s"] == 15
    assert row["peak_gb_per_s"] == 20


def test_an_instant_copy_is_taken_as_a_microsecond(make_events):
    events = make_events(copy(0, 0, 5000))
    row = one(events)
    assert (row["instant_count"], row["busy_ns"], row["mean_gb_per_s"]) == (1, 1000, 5)
    assert analyze.copy_bandwidth(events, instant_ns=500)["mean_gb_per_s"].tolist() == [10]


def test_a_copy_without_a_size_is_counted_but_has_no_rate(make_events):
    row = one(make_events(copy(0, 100, None)))
    assert (row["copy_count"], row["unsized_count"]) == (1, 1)
    assert row[["size_bytes", "mean_gb_per_s", "peak_gb_per_s"]].isna().all()
    row = one(make_events(copy(0, 100, None), copy(10, 10, 100)))
    assert (row["unsized_count"], row["mean_gb_per_s"], row["peak_gb_per_s"]) == (1, 10, 10)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToHost", "DtoH"),
        ("Memset (Device)", "Memset"),
        ("FillBuffer", "Memset"),
        ("Memcpy Unknown", "unknown"),
    ],
)
def test_directions_are_read_from_the_name(make_events, name, direction):
    assert one(make_events(copy(0, 10, 10, name)))["direction"] == direction


copies = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(0, 99), st.integers(0, 1)),
    min_size=1,
    max_size=10,
)


@given(copies)
def test_rates_are_those_of_a_count_by_nanoseconds(make_events, some):
    table = analyze.copy_bandwidth(make_events(*(copy(*c[:3], device=c[3]) for c in some)))
    for row in table.itertuples():
        mine = [c for c in some if c[3] == row.device]
        rates = [sum(b / d for s, d, b, _ in mine if s <= t < s + d) for t in range(80)]
        active = sum(any(s <= t < s + d for s, d, _, _ in mine) for t in range(80))
        assert row.busy_ns == active
        assert row.mean_gb_per_s == pytest.approx(sum(rates) / active)
        assert row.peak_gb_per_s == pytest.approx(max(rates))


def test_kernels_are_no_copies(make_events):
    assert analyze.copy_bandwidth(make_events({"start_ns": 0, "kind": "memory"})).empty
    assert analyze.copy_bandwidth(EVENTS.empty()).empty


@pytest.mark.oracle
def test_copies_of_a_real_trace_run_at_the_rates_the_profiler_wrote(real_events):
    """The profiler's own rate of this trace's only device-to-host copy is 0.00042 GB/s."""
    file = "gaunernst_bert-small-uncased__1016001.json.gz"
    table = analyze.copy_bandwidth(real_events("kineto-h100", file)).set_index("direction")
    assert table.loc["DtoH", "mean_gb_per_s"] == pytest.approx(0.0004464285714285714)
