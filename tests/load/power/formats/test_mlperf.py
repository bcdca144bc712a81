"""MLPerf power logs: the public run to the last reading, then what damage does to others."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._power.formats import mlperf as mlperf_power
from workbench.load._power.part import BesidePowerError, NoPowerError, PowerOptions
from workbench.tables import POWER, SAYS_SYNTHETIC

RUN = "result_5848-240517221859825376616_2"


def line(time_ms, value, *, key="power_reading", metadata="", prefix=""):
    kind = "POINT_IN_TIME"
    record = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key}
    return f"{prefix}:::MLLOG {json.dumps({**record, 'value': value, 'metadata': metadata})}"


def found(part):
    return {(row.finding, row.what): row.count for row in part.findings.frame().itertuples()}


@pytest.fixture
def log(tmp_path):
    """Write a log and read it."""

    def read(lines, name="node_3.txt", **said):
        path = tmp_path / name
        raw = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
        path.write_bytes(raw)
        return mlperf_power.read_power(Source(name, path), PowerOptions(**said))

    return read


@pytest.fixture(scope="module")
def public(real_data):
    """Give the power of the public run of 64 nodes, as its caller would load it."""
    return load.power(real_data("power-mlperf-gpt3-512gpu"), scope="node_ac", progress=False)


@pytest.mark.oracle
def test_every_node_of_the_public_run_has_all_its_readings(public):
    nodes = public.entities[public.entities["scope"] == "node_ac"]
    POWER.check(public.power)
    assert len(nodes) == 64
    assert sorted(set(nodes["reading_count"])) == [1701, 1702]
    assert nodes["reading_count"].sum() == 108_916
    assert nodes["period_s"].between(2.0, 2.02).all()
    assert set(nodes["method"]) == {"meter"}
    assert nodes["node"].tolist() == [f"node_{number}" for number in range(1, 65)]


@pytest.mark.oracle
def test_the_nodes_of_the_public_run_use_what_their_submitter_reports(public):
    power = public.power[public.power["entity"] != "sw_01"]
    watts, time_ns = power["power_w"].to_numpy(), power["time_ns"].to_numpy()
    same = power["entity"].cat.codes.diff().to_numpy()[1:] == 0
    inside = (time_ns[1:] >= 1715960307022000000) & (time_ns[1:] <= 1715963719692000000)
    joules = ((watts[1:] + watts[:-1]) / 2 * np.diff(time_ns) / 1e9)[same & inside].sum()
    assert joules / 3.6e6 == pytest.approx(415.22, rel=2e-3)


@pytest.mark.oracle
def test_the_switch_of_the_public_run_is_an_estimate_on_a_clock_of_its_own(public):
    switch = public.entities.set_index("entity").loc["sw_01"]
    assert switch[["scope", "method", "clock"]].tolist() == ["switch", "estimate", "own"]
    assert public.power.loc[public.power["entity"] == "sw_01", "power_w"].tolist() == [59_570]


@pytest.mark.oracle
def test_what_lies_beside_the_public_readings_is_told_and_needs_no_look(public):
    aside = public.quality[public.quality["finding"] == "skipped by design"]["what"].tolist()
    assert "a total that the submitter computed: Total Power Usage: 415.22 kWh" in aside
    assert "the log of a run, without power; load.job_log reads its steps" in aside


@pytest.mark.oracle
def test_pairs_of_equal_files_of_the_public_run_are_flagged(public):
    flagged = public.quality[public.quality["finding"] == "suspicious"]
    assert len(flagged) == 30
    assert flagged["what"].str.contains("is one a copy").all()


def test_the_scope_is_unknown_unless_the_caller_or_the_efficiency_tells_it(log):
    readings = [line(1_700_000_000_000 + 1000 * n, 500) for n in range(3)]
    assert log(readings).entities["node_3"]["scope"] == "unknown"
    said = log(readings, scope="node_dc").entities["node_3"]
    assert (said["scope"], said["assumed"]) == ("node_dc", "scope=node_dc")
    efficiency = line(1_700_000_000_000, 0.94, key="conversion_eff")
    assert log([efficiency, *readings]).entities["node_3"]["scope"] == "node_ac"
    whole = line(1_700_000_000_000, 1.0, key="conversion_eff")
    assert log([whole, *readings]).entities["node_3"]["scope"] == "unknown"


def test_the_name_comes_from_the_lines_then_the_caller_then_the_file(log):
    bare, named = line(1_700_000_000_000, 5), line(1_700_000_000_000, 5, metadata={"node": "n7"})
    assert [*log([bare]).entities] == ["node_3"]
    assert [*log([bare], node="host1").entities] == ["host1"]
    assert [*log([named], node="host1").entities] == ["n7"]
    assert log([bare], name="sw_2.txt").entities["sw_2"]["scope"] == "switch"


@pytest.mark.parametrize("metadata", ["", None, {}, {"node": "node_3"}, {"file": "a", "lineno": 3}])
def test_metadata_may_be_empty_null_or_a_record(log, metadata):
    part = log([line(1_700_000_000_000, 6930, metadata=metadata)])
    assert part.readings["power_w"].tolist() == [6930]
    assert part.readings["time_ns"].tolist() == [1_700_000_000_000_000_000]
    assert [*part.entities] == ["node_3"]


def test_ranks_before_the_mark_other_spacing_and_floats_are_read(log):
    spaced = ':::MLLOG {"time_ms":1700000003000.5,"key":"power_reading","value":7.25}'
    part = log(
        [line(1_700_000_001_000, 5, prefix="  0: "), line(1_700_000_002_000, 6.5), spaced, "", "x"]
    )
    assert part.readings["power_w"].tolist() == [5, 6.5, 7.25]
    assert part.readings["time_ns"].iloc[2] == 1_700_000_003_000_500_000
    assert part.readings["line"].tolist() == [1, 2, 3]
    assert found(part)["skipped by design", "lines that are none of MLPerf's logger"] == 1


def test_a_reading_that_is_no_number_is_missing_and_counted_with_its_line(log):
    values = [None, "six", True, float("nan"), float("inf"), "6930", 1e400]
    part = log([line(1_700_000_000_000 + n, value) for n, value in enumerate(values)])
    watts = part.readings["power_w"]
    assert watts.isna().tolist() == [True, True, True, True, True, False, True]
    told = part.findings.frame().set_index("what")
    row = told.loc["readings that are not numbers; they are missing"]
    assert (row["count"], row["where"]) == (6, "line 1")


@pytest.mark.parametrize("time_ms", [None, "soon", -5, 0, 1e300, float("nan"), True, [1]])
def test_a_line_without_a_usable_time_is_left_out_and_counted(log, time_ms):
    part = log([line(time_ms, 5), line(1_700_000_000_000, 6)])
    assert part.readings["power_w"].tolist() == [6]
    assert found(part)["dropped", "lines of the logger without a usable time_ms"] == 1


def test_a_file_cut_in_the_middle_of_a_line_says_where(log):
    whole = [line(1_700_000_000_000 + 1000 * n, 100 + n) for n in range(4)]
    part = log("\n".join(whole).encode()[:-20])
    assert len(part.readings) == 3
    told = part.findings.frame()
    cut = told[told["finding"] == "truncated"].iloc[0]
    assert (cut["what"], cut["where"]) == ("lines of the logger that do not end", "line 4")


def test_garbage_between_lines_is_counted_and_hurts_no_neighbour(log):
    good = line(1_700_000_000_000, 5).encode()
    part = log(b"\n".join([good, b":::MLLOG {oops}", b"\xff\xfe\x00", b"\0", good + b"\r", good]))
    assert part.readings["line"].tolist() == [1, 5, 6]
    assert found(part)["dropped", "lines of the logger that are not JSON"] == 1


def test_stamps_that_are_repeated_are_kept_for_the_front_door_to_judge(log, tmp_path):
    part = log([line(1_700_000_000_000, 5), line(1_700_000_000_000, 5)])
    assert len(part.readings) == 2
    power = load.power(tmp_path / "node_3.txt")
    assert len(power.power) == 1
    assert "readings written twice for one stamp; taken once" in set(power.quality["what"])


def test_the_synthetic_demo_says_so(fleet_demo):
    power = load.power(fleet_demo / "power" / "synthetic_node001_ac.txt")
    assert power.is_synthetic
    told = power.quality.set_index("what")
    assert told.loc[SAYS_SYNTHETIC, "count"] == 123
    assert power.entities["entity"].tolist() == ["node001"]


def test_a_file_without_a_reading_says_what_it_is(log):
    with pytest.raises(BesidePowerError, match=r"Total Power Usage: 415\.22 kWh"):
        log(["Total Power Usage: 415.22 kWh"], name="total_power.txt")
    with pytest.raises(BesidePowerError, match=r"the log of a run, without power; load\.job_log"):
        log([line(1_700_000_000_000, None, key="run_start")])
    with pytest.raises(NoPowerError, match="no line of MLPerf's logger in it is a reading"):
        log([line(1_700_000_000_000, None, key="power_measurement_start")])


def test_nothing_but_the_total_is_refused_with_what_it_is(tmp_path):
    (tmp_path / "total_power.txt").write_text("Total Power Usage: 415.22 kWh\n")
    with pytest.raises(
        LoadError, match=r"(?s)no readable power telemetry found.*Total Power Usage"
    ):
        load.power(tmp_path)


numbers = st.one_of(
    st.integers(0, 10**6), st.floats(0, 1e6, allow_nan=False).map(lambda x: round(x, 3))
)
rows = st.lists(
    st.tuples(
        st.integers(10**12, 2 * 10**12),
        numbers,
        st.sampled_from(["", None, {"node": "a"}, {"node": "b", "synthetic": True}]),
        st.sampled_from(["", " 12: ", "text before "]),
    ),
    min_size=1,
    max_size=30,
)


@given(rows, st.data())
def test_reading_many_lines_at_once_gives_what_reading_them_one_by_one_gives(
    tmp_path_factory, rows, data
):
    path = tmp_path_factory.mktemp("log") / "node_1.txt"
    texts = [line(t, v, metadata=m, prefix=p) for t, v, m, p in rows]
    for at in data.draw(st.lists(st.integers(0, len(texts)), max_size=3)):
        texts.insert(at, data.draw(st.sampled_from(["", "noise", "\0", ":::MLLOG {"])))
    path.write_text("\n".join(texts))
    part = mlperf_power.read_power(Source("node_1.txt", path), PowerOptions())
    expected = [(t * 1_000_000, float(v)) for t, v, _, _ in rows]
    got = part.readings
    assert list(zip(got["time_ns"], got["power_w"], strict=True)) == expected
    assert got["line"].is_monotonic_increasing
    names = [m["node"] if m else "node_1" for _, _, m, _ in rows]
    assert got["entity"].astype(str).tolist() == names
