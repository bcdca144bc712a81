"""Panels that Grafana exports: CSV of series joined by time or in rows, and data frames as JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError

T0 = 1_746_093_600_000


def read(tmp_path, content, name="panel.json", **options):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load.power(path, tz="UTC", progress=False, **options).power


def frame(values, *, name="Value", unit=None, times=None, **labels):
    config = {"unit": unit} if unit else {}
    fields = [{"name": "Time", "type": "time"},
              {"name": name, "type": "number", "labels": labels, "config": config}]  # fmt: skip
    times = [T0 + 10_000 * at for at in range(len(values))] if times is None else times
    return {"schema": {"refId": "A", "fields": fields}, "data": {"values": [times, values]}}


def test_frames_name_the_gpu_by_their_labels_and_take_the_unit_of_the_panel(tmp_path):
    frames = [
        frame([0.3, 0.301], unit="kwatt", gpu="0", instance="node1:9400"),
        frame([310, None], gpu="1", Hostname="node1", __name__="DCGM_FI_DEV_POWER_USAGE"),
    ]
    for content in (frames, {"results": {"A": {"status": 200, "frames": frames}}}):
        power = read(tmp_path, content)
        by_gpu = power.groupby("entity", observed=True)["power_w"].apply(list).to_dict()
        # Without the unit of the panel 0.3 kW would be 0.3 W.
        assert by_gpu["node1/gpu0"] == [300.0, 301.0]
        assert by_gpu["node1/gpu1"][0] == 310.0
        assert np.isnan(by_gpu["node1/gpu1"][1])
    assert power["time_ns"].min() == T0 * 1_000_000


def test_the_inspected_panel_keeps_values_inside_its_fields(tmp_path):
    fields = [{"name": "Time", "type": "time", "values": [T0, T0 + 1000]},
              {"name": "Value", "type": "number", "values": [12.5, 12.6],
               "config": {"unit": "kwatt"}}]  # fmt: skip
    power = read(tmp_path, {"state": "Done", "series": [{"name": "rack 1", "fields": fields}]})
    assert power["entity"].astype(str).tolist() == ["rack 1", "rack 1"]
    assert power["power_w"].tolist() == [12_500.0, 12_600.0]


def test_legends_that_name_gpu_and_unit_are_read_and_stay_apart(tmp_path):
    frames = [frame([0.3 + gpu], name=f"GPU {gpu} Power Usage (kW)") for gpu in range(2)]
    power = read(tmp_path, frames)
    assert power.set_index("entity")["power_w"].to_dict() == {"gpu0": 300.0, "gpu1": 1300.0}


def test_a_frame_that_states_no_unit_asks_for_it(tmp_path):
    with pytest.raises(LoadError, match="unit='W'"):
        read(tmp_path, [frame([300.0], name="rack")])
    power = read(tmp_path, [frame([300.0], name="rack"), frame([200.0], name="pdu")], unit="W")
    assert sorted(power["power_w"]) == [200.0, 300.0]
    assert power["entity"].nunique() == 2


@given(st.lists(st.one_of(st.none(), st.floats(0, 1500)), min_size=1, max_size=20), st.data())
def test_every_timed_value_is_read_whatever_stands_beside_it(tmp_path_factory, values, data):
    times = data.draw(
        st.lists(st.integers(T0, T0 + 10**6), min_size=len(values), max_size=len(values),
                 unique=True).map(sorted)
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("panel")
    content = [frame(values, unit="watt", gpu="3", host="n7", times=times)]
    if all(value is None for value in values):
        return
    power = read(folder, content)
    expected = [np.nan if value is None else value for value in values]
    np.testing.assert_array_equal(power["power_w"].to_numpy(), expected)
    assert power["time_ns"].tolist() == [time * 1_000_000 for time in times]


@pytest.mark.parametrize(
    "content",
    [
        [{"schema": {"fields": [{"name": "Time", "type": "time"}, 5]}, "data": {"values": [[1]]}}],
        [{"schema": {"fields": [{"type": "time"}, {"type": "number"}]}, "data": {"values": {}}}],
        [{"schema": {"fields": [{"type": "time"}, {"type": "number", "labels": [1], "config": 3}]},
          "data": {"values": [["x", {}], [None, "y"]], "entities": [{"NaN": [-1, "a"]}, 7]}}],
        [{"schema": {"fields": [{"type": "time"}]}}, [[[]]], "time"],
    ],
)  # fmt: skip
def test_frames_that_are_malformed_are_refused_by_name(tmp_path, content):
    with pytest.raises(LoadError, match=r"panel\.json"):
        read(tmp_path, content, unit="W")


JOINED = '"Time","GPU 0 Power Usage (W)","GPU 1 Power Usage (W)"\n'
STAMPS = ("2025-05-01 10:00:00", "2025-05-01 10:00:10")


def test_series_joined_by_time_are_read_with_the_line_for_spreadsheets(tmp_path):
    rows = "".join(f"{stamp},{300 + at} W,0.31 kW\n" for at, stamp in enumerate(STAMPS))
    for head in ("", "sep=,\n", "\ufeffsep=,\r\n"):
        power = read(tmp_path, head + JOINED + rows, "panel.csv")
        by_gpu = power.groupby("entity", observed=True)["power_w"].apply(list).to_dict()
        assert by_gpu == {"gpu0": [300.0, 301.0], "gpu1": [310.0, 310.0]}


def test_series_in_rows_are_read_by_the_names_of_their_columns(tmp_path):
    text = "Time,Metric,Value\n" + "".join(
        f"{T0 + 10_000 * at},gpu{gpu},{300 + gpu}\n" for at in range(2) for gpu in range(2)
    )
    columns = {"time": "Time", "gpu": "Metric", "power": "Value"}
    power = read(tmp_path, text, "rows.csv", columns=columns, unit="W", scope="gpu", node="n1")
    assert power.groupby("entity", observed=True)["power_w"].mean().to_dict() == {
        "n1/gpu0": 300.0, "n1/gpu1": 301.0,
    }  # fmt: skip
