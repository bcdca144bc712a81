"""What the recorder writes, the loader reads, whatever is missing."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench import load
from workbench.errors import LoadError
from workbench.load._power.formats.table import recorded as recorded_power
from workbench.load.kinds import kinds_of
from workbench.record import recording as _files

SENSOR = {"entity": "n1/gpu0", "scope": "gpu", "method": "avg_1s", "device": "0", "model": "H100"}
CPU = {"entity": "n1/0-package-0", "scope": "cpu", "method": "counter", "device": "0"}


@pytest.fixture
def recording(tmp_path):
    """Write three moments of a GPU and of a counter, as the recorder does."""
    about = {"sensors": [SENSOR, CPU], "missing": ["AMD GPUs: the command was not found"]}
    writer = _files.Writer(tmp_path, about, part_rows=4)
    for at in range(3):
        gpu = {"power_w": 500.0 + at, "instant_w": 600.0 + at, "energy_j": 1e3 * at}
        gpu |= {"limit_w": 650.0, "reasons": 4, "clock_mhz": 1980.0, "busy_share": 1.0}
        rows = [
            (SENSOR["entity"], gpu if at != 1 else {}),
            (CPU["entity"], {"energy_j": 90.0 * at}),
        ]
        writer.add(1_700_000_000_000_000_000 + at * 1_000_000_000, rows)
    writer.flush()
    _files.write_about(tmp_path, about)
    return tmp_path


def test_power_counters_and_states_of_all_parts_are_put_together(recording):
    log = load.power(recording)
    gpu = log.power[log.power["entity"] == "n1/gpu0"]
    assert gpu["power_w"].fillna(-1).tolist() == [500.0, -1.0, 502.0]
    assert log.states["reasons"].dropna().tolist() == [4, 4]
    assert log.counters.groupby("entity", observed=True).size().to_dict() == {
        "n1/gpu0": 2, "n1/0-package-0": 3,
    }  # fmt: skip


def test_a_counter_becomes_power_by_difference(recording):
    log = load.power(recording)
    cpu = log.power[log.power["entity"] == "n1/0-package-0"]
    assert set(cpu["power_w"].dropna()) == {90.0}
    methods = log.entities.set_index("entity")["method"].to_dict()
    assert methods == {"n1/gpu0": "avg_1s", "n1/0-package-0": "counter"}


def test_the_instant_reading_can_be_asked_for(recording):
    log = load.power(recording, reading="instant")
    gpu = log.power[log.power["entity"] == "n1/gpu0"]
    assert gpu["power_w"].dropna().tolist() == [600.0, 602.0]
    assert log.entities.set_index("entity").loc["n1/gpu0", "method"] == "instant"


def test_what_was_not_sampled_is_told(recording):
    quality = load.power(recording).quality
    assert quality["what"].str.contains("not sampled: AMD GPUs").any()


def test_a_recording_is_known_for_what_it_is(recording):
    assert "power logs" in kinds_of(recording)


def test_a_recording_without_any_sensor_says_what_was_looked_for(tmp_path):
    _files.write_about(tmp_path, {"sensors": [], "missing": ["NVIDIA GPUs: no driver"]})
    with pytest.raises(LoadError, match="not sampled: NVIDIA GPUs: no driver"):
        load.power(tmp_path)


def rewritten(recording, change):
    path = recording / "power_0001.parquet"
    table = pq.read_table(path)
    note = change(json.loads(table.schema.metadata[recorded_power.KEY]))
    pq.write_table(table.replace_schema_metadata({recorded_power.KEY: json.dumps(note)}), path)
    return path


def test_a_recording_of_a_later_version_is_refused(recording):
    path = rewritten(recording, lambda note: note | {"version": 2})
    with pytest.raises(LoadError, match="version 2; this workbench reads 1"):
        load.power(path)


@pytest.mark.parametrize(
    "note", [{}, [], {"version": 1, "sensors": 3}, {"version": 1, "sensors": [1]}]
)
def test_a_recording_that_does_not_say_what_was_sampled_is_refused(recording, note):
    path = rewritten(recording, lambda _: note)
    with pytest.raises(LoadError, match="not what was sampled"):
        load.power(path)


def test_a_part_with_other_columns_is_refused(recording):
    path = recording / "power_0001.parquet"
    schema = pq.read_schema(path)
    pq.write_table(pa.table({"time_ns": [1]}).replace_schema_metadata(schema.metadata), path)
    with pytest.raises(LoadError, match="not a whole part of a recording"):
        load.power(path)


def test_a_part_that_is_cut_is_refused(recording):
    path = recording / "power_0001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LoadError, match=r"power_0001\.parquet"):
        load.power(path)


def test_the_key_is_the_one_that_the_recorder_writes():
    assert recorded_power.KEY == _files.KEY
