"""Readings too many for memory: totals against the plainest sum there is."""

import threading
from contextlib import suppress
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError
from workbench.load._power import fleets as fleet
from workbench.load._power import scan
from workbench.load._power.formats.table import pieces
from workbench.tables import POWER_ROLLUP, POWER_TOTALS

SECOND = 10**9
START_S = 1_700_000_000
rows = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 4),
        st.one_of(st.integers(0, 2_000).map(float), st.just(np.nan)),
    ),
    min_size=1,
    max_size=120,
)


def write(folder, tables, **options):
    for number, table in enumerate(tables):
        frame = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table)
        pq.write_table(frame, folder / f"part{number}.parquet", **options)
    return folder


def frame_of(drawn):
    return pd.DataFrame(
        {
            "time_ms": [(START_S * 10 + tenth) * 100 for tenth, _, _ in drawn],
            "gpu": np.array([gpu for _, gpu, _ in drawn], dtype=np.int16),
            "power_w": [watts for _, _, watts in drawn],
        }
    )


def total_of(frame, period_s):
    """Add up the means of the entities per cell, as directly as it can be said."""
    known = frame[frame["power_w"].notna()]
    cell = known["time_ms"] * 1_000_000 // (period_s * SECOND) * (period_s * SECOND)
    means = known.groupby([cell, "gpu"])["power_w"].mean().groupby(level=0)
    return means.sum(), means.size(), frame["gpu"].nunique()


@given(rows, st.sampled_from([1, 3, 10]), st.integers(1, 4), st.integers(1, 30))
def test_totals_are_those_of_the_plain_sum_however_files_are_cut(
    tmp_path_factory, drawn, period_s, files, group
):
    frame = frame_of(drawn)
    if frame["power_w"].isna().all():
        return
    pieces = [frame.iloc[start::files] for start in range(files)]
    folder = write(tmp_path_factory.mktemp("power"), pieces, row_group_size=group)
    total = POWER_TOTALS.check(
        load.power_fleet_total(folder, period_s=period_s, least_covered_share=0)
    ).set_index("time_ns")
    power, count, expected = total_of(frame, period_s)
    assert (np.diff(total.index) == period_s * SECOND).all()
    known = total[total["entity_count"] > 0]
    np.testing.assert_allclose(known["power_w"], power, rtol=1e-12)
    assert known["entity_count"].tolist() == count.tolist()
    assert known.index.tolist() == power.index.tolist()
    assert (total["expected_count"] == expected).all()
    assert total.loc[total["entity_count"] == 0, "power_w"].isna().all()


runs = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(8, 40), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


@pytest.mark.long
@given(runs, st.sampled_from([1, 2]))
def test_adding_run_by_run_gives_the_bits_of_adding_row_by_row(tmp_path_factory, drawn, period_s):
    draw = np.random.default_rng(len(drawn))
    frames = []
    for gpu, first, length, gap in drawn:
        # A run may lack a second, or the next of the same GPU may say some of them again.
        seconds = np.delete(np.arange(first, first + length), gap or [])
        frames.append(
            pd.DataFrame(
                {
                    "time_ms": (START_S + seconds) * 1_000,
                    "gpu": gpu,
                    "power_w": draw.uniform(0, 700, len(seconds)),
                }
            )
        )
    frame = pd.concat(frames)
    folder = write(tmp_path_factory.mktemp("runs"), [frame])
    totals = []
    for long in (1, 1 << 30):
        with mock.patch.object(fleet, "_LONG_RUN", long):
            totals.append(load.power_fleet_total(folder, period_s=period_s, least_covered_share=0))
    pd.testing.assert_frame_equal(*totals, check_exact=True)
    power, count, expected = total_of(frame, period_s)
    known = totals[0][totals[0]["entity_count"] > 0]
    assert known["time_ns"].tolist() == power.index.tolist()
    np.testing.assert_allclose(known["power_w"], power, rtol=1e-12)
    assert known["entity_count"].tolist() == count.tolist()
    assert (totals[0]["expected_count"] == expected).all()


def hour(gpus=6, seconds=50, **columns):
    times = np.tile(START_S + np.arange(seconds), gpus)
    gpu = np.repeat(np.arange(gpus), seconds)
    return pd.DataFrame({"time_s": times, "gpu": gpu, "power_w": 100.0 + gpu} | columns)


def test_windows_of_cells_give_what_one_window_gives(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    frame = (
        hour()
        .loc[lambda f: f.index.repeat(2)]
        .assign(power_w=lambda f: random.uniform(0, 9, len(f)))
    )
    folder = write(tmp_path, [frame.sample(frac=1, random_state=1)], row_group_size=40)
    expected = load.power_fleet_total(folder)
    monkeypatch.setattr(fleet, "_GRID_CELLS", 60)
    pd.testing.assert_frame_equal(load.power_fleet_total(folder), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["uint16", "int16", "float32", "float64", "int64", "float16"])
@pytest.mark.parametrize("order", ["gpu", "time_s", "none"])
def test_any_type_and_order_of_numbers_gives_the_same(tmp_path, dtype, order):
    frame = hour().astype({"power_w": dtype})
    frame = frame.sample(frac=1, random_state=1) if order == "none" else frame.sort_values(order)
    total = load.power_fleet_total(write(tmp_path, [frame]))
    assert total["power_w"].tolist() == [sum(range(100, 106))] * 50


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/Los_Angeles"])
def test_stamps_of_any_unit_and_zone_give_the_same(tmp_path, unit, zone):
    seconds = pd.Series(pd.to_datetime(hour()["time_s"], unit="s", utc=True))
    stamps = pa.array(seconds.dt.tz_localize(None), pa.timestamp("ns")).cast(pa.timestamp(unit))
    stamps = stamps.view(pa.timestamp(unit, zone)) if zone else stamps
    table = pa.table({"ts": stamps, "gpu": hour()["gpu"], "power_w": hour()["power_w"]})
    total = load.power_fleet_total(write(tmp_path, [table]), tz=None if zone else "UTC")
    assert total["time_ns"].iloc[0] == START_S * SECOND
    assert len(total) == 50


def test_names_of_hosts_and_devices_are_those_of_the_front_door(tmp_path):
    frame = hour(gpus=2).assign(hostname="n1")
    folder = write(tmp_path, [frame])
    names = set(load.power_rollup(folder).rollup["entity"])
    assert names == set(load.power(folder).entities["entity"]) == {"n1/gpu0", "n1/gpu1"}


def test_columns_may_be_named_by_the_caller(tmp_path):
    frame = hour().rename(columns={"time_s": "when", "gpu": "who", "power_w": "draw"})
    named = {"time": "when", "entity": "who", "power": "draw"}
    folder = write(tmp_path, [frame.assign(temperature=5)])
    total = load.power_fleet_total(folder, columns=named, unit="kW")
    assert total["power_w"].iloc[0] == pytest.approx(615e3)
    pair = {**named, "entity": ["host", "who"]}
    hosts = [frame.assign(host=host) for host in "ab"]
    folder = write(tmp_path, [pd.concat(hosts)])
    totals = load.power_fleet_total(folder, columns=pair, unit="W")
    assert totals["expected_count"].unique().tolist() == [12]


def test_several_columns_of_powers_are_things_of_their_own(tmp_path):
    frame = hour(gpus=1).drop(columns=["gpu", "power_w"]).assign(
        hostname="h1", p0_gpu0_power=np.int16(200), p1_gpu2_power=np.int16(300), total_power=900
    )  # fmt: skip
    folder = write(tmp_path, [frame])
    with pytest.raises(LoadError, match=r"powers of several scopes .* choose with columns="):
        load.power_fleet_total(folder)
    gpus = {"power": ["p0_gpu0_power", "p1_gpu2_power"]}
    total = load.power_fleet_total(folder, columns=gpus, unit="W")
    assert total["power_w"].tolist() == [500] * 50
    assert (total["expected_count"] == 2).all()


def test_what_a_cell_does_not_know_is_missing_unless_less_is_asked(tmp_path):
    frame = hour(gpus=4)
    lost = (frame["gpu"] == 3) & (frame["time_s"] >= START_S + 10)
    folder = write(tmp_path, [frame[~lost]])
    total = load.power_fleet_total(folder)
    assert total["power_w"].isna().tolist() == [False] * 10 + [True] * 40
    assert total["covered_share"].tolist() == [1.0] * 10 + [0.75] * 40
    some = load.power_fleet_total(folder, least_covered_share=0.75)
    assert some["power_w"].tolist() == [406.0] * 10 + [303.0] * 40


def test_negative_and_absurd_powers_are_missing_and_counted(tmp_path):
    frame = hour(gpus=2)
    frame.loc[[0, 1, 60], "power_w"] = [-1.0, np.inf, 9.2e18]
    folder = write(tmp_path, [frame])
    total = load.power_fleet_total(folder, least_covered_share=0)
    assert total.attrs["missing_count"] == 3
    assert total["entity_count"].tolist()[:11] == [1, 1, *[2] * 8, 1]


def test_several_parts_of_a_large_file_are_put_together(tmp_path, monkeypatch):
    folder = write(tmp_path, [hour()], row_group_size=7)
    expected = load.power_fleet_total(folder)
    monkeypatch.setattr(scan, "_PART_ROWS", 20)
    pd.testing.assert_frame_equal(load.power_fleet_total(folder), expected)


def test_batches_of_any_size_give_the_same(tmp_path, monkeypatch):
    write(tmp_path, [hour(), hour().sample(frac=1, random_state=1)])
    totals = load.power_fleet_total(tmp_path)
    for rows_at_once in (1, 7, 64):
        monkeypatch.setattr(pieces, "BATCH_ROWS", rows_at_once)
        pd.testing.assert_frame_equal(load.power_fleet_total(tmp_path), totals)


def test_giving_up_stops_the_threads_and_leaves_nothing(tmp_path, monkeypatch):
    folder = write(tmp_path, [hour()] * 20, row_group_size=7)
    before = sorted(tmp_path.iterdir())

    def interrupted(self, sums):
        raise KeyboardInterrupt

    monkeypatch.setattr(fleet._Fleet, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load.power_fleet_total(folder)
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("ThreadPool")]
    assert sorted(tmp_path.iterdir()) == before


def test_files_of_other_columns_are_named(tmp_path):
    folder = write(tmp_path, [hour(), hour().rename(columns={"power_w": "power_kw"})])
    with pytest.raises(LoadError, match=r"part1.parquet: uses columns .*power_kw.*but .*part0"):
        load.power_fleet_total(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="time_s"), "no column of times"),
        (lambda f: f.drop(columns="power_w"), "no column of powers"),
        (lambda f: f.rename(columns={"power_w": "power"}), "column 'power' names no unit; pass unit="),
        (lambda f: f.assign(power_w=[[1]] * len(f)), "'power_w' holds list<.*>, no numbers"),
        (lambda f: f.assign(time_s=0.5).rename(columns={"time_s": "time"}), "not times since"),
        (lambda f: f.iloc[:0], "hold no rows"),
        (lambda f: f.assign(power_w=np.nan), "no reading with a time, a name and a power"),
    ],
)  # fmt: skip
def test_tables_of_another_kind_are_refused(tmp_path, change, words):
    with pytest.raises(LoadError, match=words):
        load.power_fleet_total(write(tmp_path, [change(hour())]))


def test_local_stamps_ask_for_their_zone(tmp_path):
    frame = hour().assign(time_s=lambda f: pd.to_datetime(f["time_s"], unit="s"))
    folder = write(tmp_path, [frame.rename(columns={"time_s": "time"})])
    with pytest.raises(LoadError, match=r"part0.parquet: times in column 'time' .* pass tz="):
        load.power_fleet_total(folder)


def test_a_wrong_clock_does_not_ask_for_all_memory(tmp_path):
    frame = hour()
    frame.loc[5, "time_s"] = 5_000_000_000
    with pytest.raises(
        LoadError, match=r"times span .* cells, more than .*; pass a longer period_s"
    ):
        load.power_fleet_total(write(tmp_path, [frame]))


@pytest.mark.parametrize("keep", [4, 100, 0.5, 0.9, -8])
def test_damaged_files_are_named(tmp_path, keep):
    folder = write(tmp_path, [hour()])
    path = folder / "part0.parquet"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep * len(raw)) if isinstance(keep, float) else keep])
    with pytest.raises(
        LoadError, match=r"part0.parquet: cannot be read as Parquet .*copy it again"
    ):
        load.power_fleet_total(folder)


@given(st.integers(4, 3_000), st.integers(0, 255))
def test_any_damaged_byte_gives_a_table_or_a_load_error(tmp_path_factory, at, value):
    folder = write(tmp_path_factory.mktemp("power"), [hour()], write_page_checksum=True)
    path = folder / "part0.parquet"
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] = value
    path.write_bytes(bytes(raw))
    with suppress(LoadError):
        assert set(load.power_fleet_total(folder)) >= {"time_ns"}
    with suppress(LoadError):
        POWER_ROLLUP.check(load.power_rollup(folder, progress=False).rollup)


def test_paths_without_parquet_are_named(tmp_path):
    with pytest.raises(LoadError, match=r"no Parquet file found; load\.power reads other"):
        load.power_fleet_total(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load.power_fleet_total(tmp_path / "none")
    (tmp_path / "a.csv").write_text("time,power_w\n")
    with pytest.raises(LoadError, match=r"a.csv: cannot be read as Parquet"):
        load.power_fleet_total(tmp_path / "a.csv")


@pytest.mark.parametrize("period_s", [0, -1, 1e-9, np.nan, True, "60"])
def test_a_period_that_is_none_is_refused(tmp_path, period_s):
    with pytest.raises(ValueError, match="period_s must be a time in seconds"):
        load.power_fleet_total(tmp_path, period_s=period_s)
    with pytest.raises(ValueError, match="period_s must be a time in seconds"):
        load.power_rollup(tmp_path, period_s=period_s)


def test_a_share_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="least_covered_share must be from 0 to 1; got 75"):
        load.power_fleet_total(tmp_path, least_covered_share=75)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"when": "time_s"}, r"columns= names \['when'\]; it knows"),
        ({"time": "when"}, r"no column \['when'\]; it has \['time_s'"),
        ({"power": "gpu", "entity": ["a", "b", "c"]}, "no column"),
        ({"entity": ["gpu", "gpu", "gpu"]}, "names 3 columns of the entity"),
    ],
)
def test_names_that_are_not_there_are_refused(tmp_path, columns, words):
    with pytest.raises(LoadError, match=words):
        load.power_fleet_total(write(tmp_path, [hour()]), columns=columns)
