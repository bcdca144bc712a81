"""Roll-ups of any size: the table is that of all readings in one place, however files are cut."""

import os
import re
import sys
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, datasets, load
from workbench.errors import LoadError, MissingExtraError, WorkbenchError
from workbench.load._power import rollup as rolling
from workbench.tables import POWER_ROLLUP

SECOND = 10**9
START_S = 1_700_000_040  # a full minute
TIGHT = {"rtol": 1e-11, "atol": 1e-9}


def readings_of(drawn):
    """Make a table of drawn (tenth of a second, entity, power); of one stamp the first counts."""
    frame = pd.DataFrame(drawn, columns=["tenth", "gpu", "power_w"])
    return pd.DataFrame(
        {
            "time_ns": (START_S * 10 + frame["tenth"]) * (SECOND // 10),
            "entity": "n1/gpu" + frame["gpu"].astype(str),
            "power_w": frame["power_w"].astype(float),
        }
    ).drop_duplicates(["time_ns", "entity"])


def written(folder, frames):
    folder.mkdir(exist_ok=True)
    for number, frame in enumerate(frames):
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def steady(seconds=9, watts=100, **columns):
    times = (START_S + np.arange(seconds)) * SECOND
    frame = pd.DataFrame({"time_ns": times, "entity": "n1/gpu0", "power_w": float(watts)})
    return frame.assign(**columns)


def plainly(frame, period_s, gap_s):
    """Roll up in plain Python: reading by reading, interval by interval."""
    period, cells = period_s * SECOND, {}
    for entity, own in frame[frame["power_w"].notna()].groupby("entity"):
        rows = sorted(zip(own["time_ns"], own["power_w"], strict=True))
        for time, watts in rows:
            cells.setdefault((entity, time // period), [[], 0.0, 0])[0].append(watts)
        for (start, low), (end, high) in pairwise(rows):
            if end - start > gap_s * SECOND:
                continue
            at = start
            while at < end:
                stop = min((at // period + 1) * period, end)
                powers = [low + (high - low) * (t - start) / (end - start) for t in (at, stop)]
                cell = cells.setdefault((entity, at // period), [[], 0.0, 0])
                cell[1] += sum(powers) / 2 * (stop - at) / SECOND
                cell[2] += stop - at
                at = stop
    return {
        (entity, cell * period): (len(watts), energy, covered / period)
        for (entity, cell), (watts, energy, covered) in cells.items()
    }


rows = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 2), st.integers(0, 900)), min_size=1, max_size=80
)


@given(rows, st.sampled_from([0.5, 1, 7]), st.sampled_from([0.5, 3, 20]), st.data())
def test_any_cut_into_files_in_any_order_gives_the_plain_sums(drawn, period_s, gap_s, data):
    frame = readings_of(drawn)
    parts = data.draw(st.lists(st.lists(st.sampled_from(range(len(frame)))), max_size=3))
    owner = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(frame), max_size=len(frame)))
    )
    cut = [frame[owner == number] for number in range(4)]
    cut += [frame.iloc[part] for part in parts]  # readings that other files hold as well
    files = data.draw(st.permutations([part for part in cut if len(part)]))
    # Some files count the time otherwise, and are a layout of their own.
    files = [
        part.assign(time_us=part["time_ns"] // 1000).drop(columns="time_ns") if is_other else part
        for part in files
        for is_other in [data.draw(st.booleans())]
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = load.power_rollup(
            written(Path(folder), files), period_s=period_s, longest_gap_s=gap_s
        )
    table = POWER_ROLLUP.check(result.rollup)
    expected = plainly(frame, period_s, gap_s)
    assert [*zip(table["entity"], table["time_ns"], strict=True)] == sorted(expected)
    values = np.array([expected[key] for key in sorted(expected)])
    assert table["reading_count"].tolist() == values[:, 0].tolist()
    np.testing.assert_allclose(table["energy_j"].fillna(0), values[:, 1], **TIGHT)
    np.testing.assert_allclose(table["covered_share"], values[:, 2], **TIGHT)
    assert (table["energy_j"].isna() == (table["covered_share"] == 0)).all()
    means = frame.groupby(["entity", frame["time_ns"] // (period_s * SECOND)])["power_w"]
    filled = table[table["reading_count"] > 0]
    for name, plain in (("mean_w", means.mean()), ("min_w", means.min()), ("max_w", means.max())):
        np.testing.assert_allclose(filled[name], plain, **TIGHT)
    squares = means.apply(lambda watts: ((watts - watts.mean()) ** 2).sum())
    np.testing.assert_allclose(filled["m2_w2"], squares, rtol=1e-9, atol=1e-6)
    again = result.quality[result.quality["what"].str.contains("contains, too")]["count"].sum()
    assert again == sum(map(len, files)) - len(frame)


def uneven():
    """Two hours of two GPUs, 600 W in bursts that are sampled ten times as often as 100 W."""
    slow = START_S * 10 + np.arange(0, 72_000, 10)
    fast = START_S * 10 + np.arange(36_000, 39_000)
    tenths = np.union1d(slow, fast)
    frame = pd.DataFrame({"time_ns": tenths * (SECOND // 10)})
    inside = (tenths >= fast[0]) & (tenths <= fast[-1])
    frame = frame.assign(power_w=np.where(inside, 600.0, 100.0))
    return pd.concat([frame.assign(entity=f"n1/gpu{gpu}") for gpu in range(2)], ignore_index=True)


def test_the_energy_of_the_front_door_and_of_sql_contradicts_the_naive_mean(tmp_path):
    whole = uneven()
    # A gap of five minutes, an overlap of ten, a copy of a file, and no order in any of them.
    gap = whole["time_ns"].between((START_S + 1_000) * SECOND, (START_S + 1_300) * SECOND)
    whole = whole[~gap]
    first = whole[whole["time_ns"] < (START_S + 4_200) * SECOND]
    second = whole[whole["time_ns"] >= (START_S + 3_600) * SECOND]
    folder = written(tmp_path, [second.sample(frac=1, random_state=1), first, first])
    result = load.power_rollup(folder)
    energy = result.rollup.groupby("entity", observed=True)["energy_j"].sum()
    log = load.power(folder, progress=False)
    assert energy.tolist() == pytest.approx(analyze.energy(log.power)["energy_j"].tolist())
    by_sql = duckdb.sql(
        f"""with once as (select distinct * from read_parquet('{folder}/*.parquet')),
        steps as (select entity, time_ns - lag(time_ns) over w as step,
                  (power_w + lag(power_w) over w) / 2 as level
                  from once window w as (partition by entity order by time_ns))
        select entity, sum(level * step / 1e9) as energy_j from steps
        where step <= 3000000000 group by entity order by entity"""
    ).df()
    assert energy.tolist() == pytest.approx(by_sql["energy_j"].tolist())
    # The mean of all readings in the files says twice as much as was drawn.
    known_s = result.rollup.groupby("entity", observed=True)["covered_share"].sum() * 60
    naive = pd.concat([first, second, first])["power_w"].mean()
    assert naive > 1.9 * float((energy / known_s).iloc[0])


def test_stored_tables_give_the_energy_of_the_log_they_were_made_of(tmp_path):
    log = load.power(datasets.path("fleet-demo") / "power", tz="UTC", progress=False)
    load.write(log, tmp_path / "stored")
    result = load.power_rollup(tmp_path, longest_gap_s=10)
    assert result.is_synthetic
    energy = analyze.energy(log.power).set_index("entity")["energy_j"]
    rolled = result.rollup.groupby("entity", observed=True)
    assert rolled["energy_j"].sum().to_dict() == pytest.approx(energy.to_dict())
    counts = log.entities.set_index("entity")["reading_count"]
    assert rolled["reading_count"].sum().to_dict() == counts.to_dict()


def test_a_border_of_files_loses_no_energy_and_a_gap_makes_none(tmp_path):
    frame = readings_of([(10 * s, 0, 100 + s) for s in range(60)])
    one = load.power_rollup(written(tmp_path / "one", [frame]), period_s=10).rollup
    cut = written(tmp_path / "cut", [frame.iloc[:25], frame.iloc[25:]])
    pd.testing.assert_frame_equal(load.power_rollup(cut, period_s=10).rollup, one, rtol=1e-12)
    assert one["energy_j"].sum() == pytest.approx(sum(100.5 + s for s in range(59)))
    gap = written(tmp_path / "gap", [frame.iloc[:25], frame.iloc[35:]])
    lost = sum(100.5 + s for s in range(24, 35))
    energy = load.power_rollup(gap, period_s=10).rollup["energy_j"].sum()
    assert energy == pytest.approx(one["energy_j"].sum() - lost)


def test_a_cell_between_two_readings_has_energy_and_no_reading(tmp_path):
    frame = readings_of([(0, 0, 100), (30, 0, 400)])
    table = load.power_rollup(written(tmp_path, [frame]), period_s=1).rollup
    assert table["reading_count"].tolist() == [1, 0, 0, 1]
    assert table["energy_j"].tolist()[:3] == pytest.approx([150, 250, 350])
    assert table["covered_share"].tolist() == [1, 1, 1, 0]
    assert table["mean_w"].isna().tolist() == [False, True, True, False]


def test_readings_of_one_stamp_that_differ_are_told_and_the_first_counts(tmp_path):
    frame = steady(power_w=[100.0] * 4 + [300.0] + [100.0] * 4)
    inside = pd.concat([frame, frame.iloc[[4]].assign(power_w=900.0)])
    folder = written(tmp_path, [inside, frame.assign(power_w=700.0).iloc[[3, 4]], frame.iloc[5:]])
    result = load.power_rollup(folder)
    table = result.rollup.iloc[0]
    assert (table["max_w"], table["reading_count"]) == (300, 9)
    assert table["energy_j"] == pytest.approx(8 * 100 + 200)
    told = result.quality[result.quality["what"].str.contains("differ|contains, too")]
    assert [(Path(s).name, finding, count) for s, finding, count in
            zip(told["source"], told["finding"], told["count"], strict=True)] == [
        ("0.parquet", "dropped", 1), ("1.parquet", "dropped", 2), ("2.parquet", "noted", 4)]  # fmt: skip
    assert "1 finding to look at" in repr(result)


def test_hosts_come_from_columns_or_from_the_names_of_files(tmp_path):
    frame = steady(gpu=0).drop(columns="entity")
    plain = written(tmp_path / "plain", [frame.assign(node="a", gpu=g) for g in (10, 2)])
    assert load.power_rollup(plain).rollup["entity"].unique().tolist() == ["a/gpu2", "a/gpu10"]
    (tmp_path / "named").mkdir()
    for name in ("node2-mon", "node10-mon", "node2-tue"):
        frame.to_parquet(tmp_path / "named" / f"{name}.parquet")
        frame["time_ns"] += 9 * SECOND
    hosts = re.compile(r"node\d+")
    table = load.power_rollup(tmp_path / "named", node=hosts).rollup
    assert table["entity"].unique().tolist() == ["node2/gpu0", "node10/gpu0"]
    assert load.power_rollup(tmp_path / "named").quality["what"].str.contains("unknown host").any()
    whole = written(tmp_path / "whole", [frame.drop(columns="gpu")])
    assert load.power_rollup(whole, node="n7").rollup["entity"].unique().tolist() == ["n7"]
    with pytest.raises(LoadError, match="no column says whose the readings are; pass node="):
        load.power_rollup(whole)
    both = written(tmp_path / "both", [frame, frame])
    with pytest.raises(LoadError, match=r"1\.parquet: 'gpu0' has .* in .*0\.parquet.* pass node="):
        load.power_rollup(both)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/Los_Angeles"])
def test_stamps_of_any_unit_and_zone_give_the_same(tmp_path, unit, zone):
    stamps = pa.array(steady()["time_ns"], pa.timestamp("ns")).cast(pa.timestamp(unit))
    frame = steady().drop(columns="time_ns")
    table = pa.Table.from_pandas(frame).append_column("time", stamps.view(pa.timestamp(unit, zone)))
    folder = written(tmp_path, [table])
    if zone is None:
        with pytest.raises(LoadError, match=r"0\.parquet: times .* have no time zone; pass tz="):
            load.power_rollup(folder)
    result = load.power_rollup(folder, tz=None if zone else "UTC").rollup
    assert result["time_ns"].tolist() == [START_S * SECOND]
    assert result["energy_j"].tolist() == pytest.approx([800])


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
def test_numbers_count_the_time_in_the_unit_of_their_name(tmp_path, unit, dtype):
    per_s = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1}[unit]
    frame = steady().rename(columns={"time_ns": f"time_{unit}"})
    frame[f"time_{unit}"] = (frame[f"time_{unit}"] / 1e9 * per_s).astype(dtype)
    table = load.power_rollup(written(tmp_path, [frame])).rollup
    assert table["energy_j"].tolist() == pytest.approx([800])


@pytest.mark.parametrize("dtype", ["uint16", "int8", "float16", "float32", "int64"])
@pytest.mark.parametrize(("unit", "factor"), [("w", 1), ("kw", 1e3), ("mW", 1e-3), ("MW", 1e6)])
def test_powers_of_any_type_and_unit(tmp_path, dtype, unit, factor):
    frame = steady(entity="row1").rename(columns={"power_w": f"power_{unit}"})
    frame = frame.astype({f"power_{unit}": dtype})
    table = load.power_rollup(written(tmp_path, [frame])).rollup
    assert table["max_w"].tolist() == pytest.approx([100 * factor])


HOSTILE = ['a"b', 'x"; drop table cells; --', "time ns", "select", "link", "$files0", "ü*/"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_columns_and_entities_are_never_code(tmp_path, name):
    frame = steady(entity=f"n1/{name}").rename(
        columns={"time_ns": name, "power_w": name + "w", "entity": name + "e"}
    )
    columns = {"time_ns": name, "power_w": name + "w", "entity": name + "e"}
    table = load.power_rollup(written(tmp_path, [frame]), columns=columns).rollup
    assert table["energy_j"].tolist() == pytest.approx([800])
    assert str(table["entity"].iloc[0]).isprintable()


@pytest.mark.parametrize(
    "name",
    [
        "a*b",
        "q?",
        "[ab]",
        "x\\*",
        "it's",
        "{a,b}",
        "n\nl",
        "http:",
        "k=v",
        "'; --",
        b"\xff\xfe",
        "ü",
    ],
)
def test_names_of_files_are_never_patterns_or_code(tmp_path, name):
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    steady().to_parquet(tmp_path / "plain.parquet")
    path = folder / os.fsdecode(b"%b.parquet" % os.fsencode(name))
    (tmp_path / "plain.parquet").rename(path)
    # Each of these would fit one of the patterns.
    for other in ("aXb", "qX", "a", "x\\y"):
        with (folder / f"{other}.parquet").open("wb") as file:
            steady(watts=700).to_parquet(file)
    result = load.power_rollup(path)
    assert result.rollup["max_w"].tolist() == [100]
    assert all(map(str.isprintable, result.quality["source"]))


def test_a_zone_is_never_code(tmp_path):
    zone = pa.timestamp("us", "*/ 1; drop table cells /*")
    stamps = pa.array(steady()["time_ns"] // 1000, pa.int64()).view(zone)
    table = pa.Table.from_pandas(steady().drop(columns="time_ns")).append_column("time", stamps)
    assert load.power_rollup(written(tmp_path, [table])).rollup["energy_j"].tolist() == [800]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="time_ns"), "no column of times among .* name it time_ns"),
        (lambda f: f.drop(columns="power_w"), "no column of powers among .* columns="),
        (lambda f: f.rename(columns={"power_w": "energy_j"}), r"energy_from_counter"),
        (
            lambda f: f.assign(power_w="1 W"),
            r"'power_w' holds .*string, which is no power_w; run workbench",
        ),
        (lambda f: f.assign(time_ns="noon"), r"'time_ns' holds .*string, which is no time_ns"),
        (lambda f: f.rename(columns={"time_ns": "time"}), "'time' holds int64, which is no time"),
        (lambda f: f.assign(entity=0.5), "'entity' holds double, which is no entity"),
        (lambda f: f.assign(POWER_W=1.0), "'power_w' is the name of several columns"),
        (lambda f: f.assign(file_row_number=1), "'file_row_number' is the name of several"),
    ],
)
def test_a_file_of_other_columns_is_a_row_and_an_error_alone(tmp_path, change, words):
    folder = written(tmp_path, [change(steady())])
    with pytest.raises(LoadError, match=words):
        load.power_rollup(folder)
    steady().to_parquet(folder / "good.parquet")
    result = load.power_rollup(folder)
    assert result.rollup["energy_j"].tolist() == pytest.approx([800])
    row = result.quality[result.quality["finding"] == "dropped"].iloc[0]
    assert re.search(words, row["what"])


def test_columns_are_named_by_the_caller(tmp_path):
    frame = steady(power_w=0.1, power_kw=1.0).rename(columns={"entity": "who"})
    folder = written(tmp_path, [frame])
    columns = {"time_ns": "time_ns", "entity": "who", "power_kw": "power_w"}
    assert load.power_rollup(folder, columns=columns).rollup["max_w"].tolist() == [100]
    with pytest.raises(LoadError, match=r"no column \['whose'\]; it has \['time_ns', 'who'"):
        load.power_rollup(folder, columns={**columns, "entity": "whose"})
    with pytest.raises(ValueError, match=r"columns= names \['power'\]"):
        load.power_rollup(folder, columns={"power": "power_w"})


def test_what_can_be_no_power_is_missing_and_counted(tmp_path):
    powers = [np.nan, np.inf, -1, 9.2e18, 140737488355328.0, 5_001, 100, 100, 100]
    frame = steady(power_w=powers)
    frame.loc[9] = [START_S * 1_000, "n1/gpu0", 100.0]  # in microseconds
    frame.loc[10] = [START_S * SECOND, None, 100.0]
    rack = steady(entity="rack7", watts=90_000)
    result = load.power_rollup(written(tmp_path, [frame, rack]))
    counts = result.rollup.groupby("entity", observed=True)["reading_count"].sum()
    assert counts.to_dict() == {"n1/gpu0": 3, "rack7": 9}
    told = result.quality.set_index("what")
    for words, count in {
        "without power in the file": 1, "not finite": 1, "negative powers": 1,
        "more than any such thing": 3, "between the years": 1, "without a name": 1,
    }.items():  # fmt: skip
        row = told[told.index.str.contains(words)].iloc[0]
        assert (row["count"], Path(row["source"]).name) == (count, "0.parquet"), words


def test_entities_without_wall_time_or_power_are_left_to_the_front_door(tmp_path):
    log = load.power(written(tmp_path / "raw", [steady()]), progress=False)
    other = log.entities.assign(entity="n1/gpu1", clock="own")
    silent = log.entities.assign(entity="n1/gpu2", reading_count=0)
    names = pd.CategoricalDtype(["n1/gpu0", "n1/gpu1", "n1/gpu2"])
    power = pd.concat([log.power, log.power.assign(entity="n1/gpu1")]).astype({"entity": names})
    own = type(log)(
        power.reset_index(drop=True), pd.concat([log.entities, other, silent], ignore_index=True),
        log.states, log.counters, log.quality,
    )  # fmt: skip
    load.write(own, tmp_path / "stored")
    result = load.power_rollup(tmp_path / "stored")
    assert set(result.rollup["entity"]) == {"n1/gpu0"}
    dropped = result.quality[result.quality["finding"] == "dropped"].set_index("where")["what"]
    assert "without wall time" in dropped["n1/gpu1"]
    assert "energy_from_counter" in dropped["n1/gpu2"]


def test_stamps_of_a_wrong_clock_and_endless_gaps_do_not_ask_for_all_memory(tmp_path):
    far = steady().assign(time_ns=lambda f: f["time_ns"] + 500_000_000 * SECOND)
    folder = written(tmp_path, [steady(), far])
    table = load.power_rollup(folder, period_s=0.02, longest_gap_s=2).rollup
    assert table["energy_j"].sum() == pytest.approx(2 * 800)
    with pytest.raises(LoadError, match=r"cells lie between .* pass a longer period_s"):
        load.power_rollup(folder, period_s=0.02, longest_gap_s=1e9)


@pytest.mark.parametrize("option", ["period_s", "longest_gap_s"])
@pytest.mark.parametrize("value", [0, -1, 1e300, np.nan, True, "60"])
def test_a_time_that_is_none_is_refused(tmp_path, option, value):
    with pytest.raises(WorkbenchError, match=f"{option} must be"):
        load.power_rollup(written(tmp_path, [steady()]), **{option: value})


def test_slow_meters_say_that_the_gap_is_too_short_for_them(tmp_path):
    folder = written(tmp_path, [readings_of([(150 * n, 0, 100) for n in range(40)])])
    result = load.power_rollup(folder)
    row = result.quality[result.quality["finding"] == "suspicious"].iloc[0]
    assert "longest_gap_s" in row["what"]
    assert result.rollup["energy_j"].isna().all()
    whole = load.power_rollup(folder, longest_gap_s=45)
    assert whole.rollup["energy_j"].sum() == pytest.approx(100 * 15 * 39)
    assert "suspicious" not in set(whole.quality["finding"])


def test_files_of_other_formats_ask_for_a_conversion(tmp_path):
    (tmp_path / "a.csv").write_text("time_ms,gpu,power_w\n")
    (tmp_path / "README.md").write_text("about\n")
    for path in (tmp_path, tmp_path / "a.csv"):
        with pytest.raises(LoadError, match=r"workbench convert .* FOLDER NEW"):
            load.power_rollup(path)
    result = load.power_rollup(written(tmp_path, [steady()]))
    row = result.quality[result.quality["finding"] == "dropped"].iloc[0]
    assert (row["count"], row["where"]) == (1, "a.csv")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load.power_rollup(tmp_path / "none")


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, 0.9, -8])
def test_a_damaged_file_is_a_row_and_an_error_alone(tmp_path, keep):
    path = written(tmp_path, [steady(900)]) / "0.parquet"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(keep * len(raw)) if isinstance(keep, float) else keep])
    with pytest.raises(LoadError, match=r"0\.parquet"):
        load.power_rollup(tmp_path)
    steady().to_parquet(tmp_path / "good.parquet")
    assert load.power_rollup(tmp_path).rollup["energy_j"].tolist() == pytest.approx([800])


def test_a_file_that_is_damaged_inside_is_a_row(tmp_path):
    draw = np.random.default_rng(1)
    frame = steady(4_000, power_w=draw.uniform(0, 700, 4_000))
    path = written(tmp_path, [frame]) / "0.parquet"
    raw = bytearray(path.read_bytes())
    raw[1_000:20_000] = bytes(19_000)
    path.write_bytes(bytes(raw))
    steady().to_parquet(tmp_path / "good.parquet")
    result = load.power_rollup(tmp_path)
    assert result.rollup["energy_j"].tolist() == pytest.approx([800])
    dropped = result.quality[result.quality["finding"] == "dropped"]
    assert dropped["what"].str.contains("cannot be read as Parquet").tolist() == [True]


@given(st.integers(4, 3_000), st.integers(0, 255))
def test_any_damaged_byte_gives_a_table_or_a_load_error(at, value):
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), [steady(50)]) / "0.parquet"
        raw = bytearray(path.read_bytes())
        raw[at % len(raw)] = value
        path.write_bytes(bytes(raw))
        with suppress(LoadError):
            POWER_ROLLUP.check(load.power_rollup(folder).rollup)


def test_a_file_that_vanishes_is_a_row(tmp_path, monkeypatch):
    folder = written(tmp_path, [steady(), steady(watts=300, entity="n1/gpu1")])
    before = rolling._rolled

    def vanishing(files, *options):
        (folder / "1.parquet").unlink(missing_ok=True)
        return before(files, *options)

    monkeypatch.setattr(rolling, "_rolled", vanishing)
    result = load.power_rollup(folder)
    assert result.rollup["entity"].tolist() == ["n1/gpu0"]
    assert (result.quality["finding"] == "dropped").sum() == 1


def test_files_without_a_reading_are_an_error(tmp_path):
    for frame in (steady().iloc[:0], steady(watts=np.nan)):
        with pytest.raises(LoadError, match="no reading has a time, a name and a power"):
            load.power_rollup(written(tmp_path, [frame]))


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path / "here")
    load.power_rollup(written(tmp_path / "power", [steady()]))
    assert [*(tmp_path / "scratch").iterdir(), *(tmp_path / "here").iterdir()] == []


def test_without_duckdb_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"needs duckdb.*ai-infra-workbench\[rollup\]"):
        load.power_rollup(written(tmp_path, [steady()]))


def test_a_name_with_a_zero_is_refused(tmp_path):
    folder = written(tmp_path, [steady().rename(columns={"power_w": "a\0b"})])
    with pytest.raises(LoadError, match="none that SQL can read"):
        load.power_rollup(folder, columns={"time_ns": "time_ns", "power_w": "a\0b"}, node="n1")
