"""Roll-ups of any size: the table is that of all readings in one place, however files are cut."""

import gzip
import os
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import LoadError, MissingExtraError, WorkbenchError
from workbench.load._power import rollup as rolling
from workbench.load._power.formats.table import pieces
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


def written(folder, frames, kind="parquet"):
    for number, frame in enumerate(frames):
        if kind == "csv":
            frame.to_csv(folder / f"{number}.csv", index=False)
        else:
            frame.to_parquet(folder / f"{number}.parquet", index=False)
    return folder


def rolled(folder, **options):
    return load.power_rollup(folder, **({"progress": False} | options))


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


@pytest.mark.long
@given(rows, st.sampled_from([0.5, 1, 7]), st.sampled_from([0.5, 3, 20]), st.data())
def test_any_cut_into_files_in_any_order_gives_the_plain_sums(
    tmp_path_factory, drawn, period_s, gap_s, data
):
    frame = readings_of(drawn)
    parts = data.draw(st.lists(st.lists(st.sampled_from(range(len(frame)))), max_size=3))
    owner = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(frame), max_size=len(frame)))
    )
    cut = [frame[owner == number] for number in range(4)]
    cut += [frame.iloc[part] for part in parts]  # readings that other files hold as well
    files = data.draw(st.permutations([part for part in cut if len(part)]))
    folder = written(tmp_path_factory.mktemp("power"), files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rolling, "_CHUNK_ROWS", data.draw(st.sampled_from([1, 7, 10**6])))
        patch.setattr(rolling, "_MANY_CELLS", data.draw(st.sampled_from([0, 5, 10**6])))
        patch.setattr(rolling, "_BLOCK_CELLS", data.draw(st.sampled_from([1, 10**6])))
        patch.setattr(rolling, "_MOST_READINGS", data.draw(st.sampled_from([1, 10, 10**6])))
        patch.setattr(pieces, "BATCH_ROWS", data.draw(st.sampled_from([1, 5, 10**5])))
        table = POWER_ROLLUP.check(rolled(folder, period_s=period_s, longest_gap_s=gap_s).rollup)
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
    result = rolled(folder)
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
    same = result.quality[result.quality["what"].str.contains("contains, too")]
    assert same["count"].sum() == 2 * len(first) + len(second) - len(whole)


def test_a_border_of_files_loses_no_energy_and_a_gap_makes_none(tmp_path):
    frame = readings_of([(10 * s, 0, 100 + s) for s in range(60)])
    one = rolled(written(tmp_path, [frame]), period_s=10).rollup
    (tmp_path / "cut").mkdir()
    cut = written(tmp_path / "cut", [frame.iloc[:25], frame.iloc[25:]], "csv")
    pd.testing.assert_frame_equal(rolled(cut, period_s=10).rollup, one, rtol=1e-12)
    assert one["energy_j"].sum() == pytest.approx(sum(100.5 + s for s in range(59)))
    (tmp_path / "gap").mkdir()
    gap = written(tmp_path / "gap", [frame.iloc[:25], frame.iloc[35:]])
    lost = sum(100.5 + s for s in range(24, 35))
    energy = rolled(gap, period_s=10).rollup["energy_j"].sum()
    assert energy == pytest.approx(one["energy_j"].sum() - lost)


def test_a_cell_between_two_readings_has_energy_and_no_reading(tmp_path):
    frame = readings_of([(0, 0, 100), (30, 0, 400)])
    table = rolled(written(tmp_path, [frame]), period_s=1).rollup
    assert table["reading_count"].tolist() == [1, 0, 0, 1]
    assert table["energy_j"].tolist()[:3] == pytest.approx([150, 250, 350])
    assert table["covered_share"].tolist() == [1, 1, 1, 0]
    assert table["mean_w"].isna().tolist() == [False, True, True, False]


def test_readings_of_one_stamp_that_differ_are_told_and_the_first_counts(tmp_path):
    frame = readings_of([(10 * s, 0, 100) for s in range(9)])
    folder = written(tmp_path, [frame, frame.assign(power_w=700.0).iloc[3:5]])
    result = rolled(folder)
    assert result.rollup["max_w"].tolist() == [100]
    row = result.quality[result.quality["what"].str.contains("differ from those")].iloc[0]
    assert (row["finding"], row["count"], row["where"]) == ("dropped", 2, "line 1")
    assert row["source"].endswith("1.parquet")
    assert "1 finding" in repr(result)


SMI = "timestamp, index, power.draw [W]\n"


def smi(gpus=2, start=0, count=90, watts=500, zone_h=0):
    stamps = pd.to_datetime((START_S + start + 3_600 * zone_h + np.arange(count)) * SECOND)
    texts = stamps.strftime("%Y/%m/%d %H:%M:%S.000")
    lines = (f"{text}, {gpu}, {watts + gpu}.00 W\n" for text in texts for gpu in range(gpus))
    return SMI + "".join(lines)


def test_logs_of_hosts_with_sentinels_zones_and_a_cut_end_are_those_of_the_front_door(tmp_path):
    (tmp_path / "node1-mon.csv").write_text(smi(count=60))
    (tmp_path / "node1-tue.csv").write_text(smi(start=50))
    (tmp_path / "node2.csv").write_text(smi().replace("500.00 W", "[N/A]", 3)[:-11])
    (tmp_path / "node3.csv.gz").write_bytes(gzip.compress(smi().encode())[:-20])
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    node = {f"node{n}": f"node{n}" for n in (1, 2, 3)}
    result = rolled(tmp_path, node=node, tz="UTC")
    log = load.power(tmp_path, node=node, tz="UTC", progress=False)
    energy = analyze.energy(log.power).set_index("entity")["energy_j"]
    rolled_up = result.rollup.groupby("entity", observed=True)
    assert rolled_up["energy_j"].sum().to_dict() == pytest.approx(energy.to_dict())
    counts = log.entities.set_index("entity")["reading_count"]
    assert rolled_up["reading_count"].sum().to_dict() == counts.to_dict()
    quality = result.quality
    dropped = quality[quality["finding"] == "dropped"]
    assert dropped["source"].str.contains("broken.parquet").any()
    blank = quality[quality["what"].str.contains("without power in the file")].iloc[0]
    assert (blank["count"], blank["where"]) == (3, "line 2: node2/gpu0")
    assert quality[quality["finding"] == "truncated"]["source"].str.contains("node3").any()
    # Hosts of other zones stand elsewhere on the one clock of the cells.
    (tmp_path / "west").mkdir()
    (tmp_path / "west" / "node4.csv").write_text(smi(zone_h=-8))
    west = rolled(tmp_path / "west", node="node4", tz="-08:00").rollup
    assert west["time_ns"].min() == START_S * SECOND


def test_what_the_files_do_not_say_is_asked_for(tmp_path):
    (tmp_path / "a.csv").write_text(smi())
    with pytest.raises(LoadError, match=r"a\.csv.*tz="):
        rolled(tmp_path)
    (tmp_path / "b.csv").write_text(smi(watts=300))
    with pytest.raises(LoadError, match=r"b\.csv: 'gpu0' has .* as in .*a\.csv.* pass node="):
        rolled(tmp_path, tz="UTC")
    (tmp_path / "b.csv").write_text(smi(start=90))
    result = rolled(tmp_path, tz="UTC")
    assert result.rollup["energy_j"].sum() == pytest.approx((500 + 501) * 179)
    assert result.quality["what"].str.contains("unknown host").sum() == 1
    with pytest.raises(ValueError, match=r"from 0\.02; got 0.001"):
        rolled(tmp_path, period_s=0.001)
    with pytest.raises(WorkbenchError, match="longest_gap_s must be above 0"):
        rolled(tmp_path, longest_gap_s=0)
    with pytest.raises(FileNotFoundError, match="no such file"):
        rolled(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("nothing to see\n")
    with pytest.raises(LoadError, match="no readable power telemetry found"):
        rolled(tmp_path / "empty")


def test_stamps_of_a_wrong_clock_and_endless_gaps_do_not_ask_for_all_memory(tmp_path, monkeypatch):
    frame = readings_of([(10 * s, 0, 100) for s in range(9)])
    far = frame.assign(time_ns=frame["time_ns"] + 500_000_000 * SECOND)
    folder = written(tmp_path, [frame, far])
    table = rolled(folder, period_s=0.02, longest_gap_s=2).rollup
    assert table["energy_j"].sum() == pytest.approx(2 * 800)
    with pytest.raises(LoadError, match=r"cells lie between .* pass a longer period_s"):
        rolled(folder, period_s=0.02, longest_gap_s=1e9)
    with pytest.raises(WorkbenchError, match="at most 1e"):
        rolled(folder, longest_gap_s=1e300)
    monkeypatch.setattr("workbench.load._power.cells._MOST_ENTITIES", 1)
    (tmp_path / "two.csv").write_text(smi())
    with pytest.raises(LoadError, match="is the column of their names the right one"):
        rolled(tmp_path / "two.csv", tz="UTC", node="a")


def test_slow_meters_say_that_the_gap_is_too_short_for_them(tmp_path):
    folder = written(tmp_path, [readings_of([(150 * n, 0, 100) for n in range(40)])])
    result = rolled(folder)
    row = result.quality[result.quality["finding"] == "suspicious"].iloc[0]
    assert "longest_gap_s" in row["what"]
    assert result.rollup["energy_j"].isna().all()
    whole = rolled(folder, longest_gap_s=45)
    assert whole.rollup["energy_j"].sum() == pytest.approx(100 * 15 * 39)
    assert "suspicious" not in set(whole.quality["finding"])


def test_counters_and_clocks_of_their_own_are_left_to_the_front_door(tmp_path):
    stamps = np.arange(START_S, START_S + 60) * SECOND
    powers = pd.DataFrame({"time_ns": stamps, "entity": "n1/gpu0", "power_w": 9.0})
    counts = pd.DataFrame({"time_ns": stamps, "entity": "n1/gpu1", "energy_j": np.arange(60) * 9.0})
    result = rolled(written(tmp_path, [powers, counts]))
    assert set(result.rollup["entity"]) == {"n1/gpu0"}
    left = result.quality[result.quality["what"].str.contains("energy_from_counter")]
    assert left["where"].tolist() == ["n1/gpu1"]


@pytest.fixture
def nodes(tmp_path):
    """Give a folder of six files of three hosts; files of a host overlap."""
    folder = tmp_path / "nodes"
    folder.mkdir()
    for node in range(3):
        for day in range(2):
            text = smi(start=80 * day, watts=300 + 100 * node)
            (folder / f"n{node}-day{day}.csv").write_text(text)
    return folder


HOSTS = {"tz": "UTC", "node": {f"n{n}-": f"n{n}" for n in range(3)}}


def test_processes_give_what_one_gives(nodes):
    alone = rolled(nodes, processes=1, **HOSTS)
    spread = rolled(nodes, processes=2, **HOSTS)
    pd.testing.assert_frame_equal(spread.rollup, alone.rollup)
    pd.testing.assert_frame_equal(spread.quality, alone.quality)


@pytest.fixture(scope="module")
def client(absent):
    """Start a cluster of two processes."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        absent("Dask is not installed; pip install 'ai-infra-workbench[cluster]'")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(**options) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
def test_a_cluster_gives_what_one_process_gives_to_the_last_bit(nodes, client):
    alone = rolled(nodes, processes=1, **HOSTS)
    spread = rolled(nodes, client=client, **HOSTS)
    pd.testing.assert_frame_equal(spread.rollup, alone.rollup, check_exact=True)
    pd.testing.assert_frame_equal(spread.quality, alone.quality)


@pytest.mark.slow
def test_a_file_that_vanishes_is_a_row_that_names_file_and_worker(nodes, client, monkeypatch):
    before = rolling.survey

    def surveyed(*args, **options):
        result = before(*args, **options)
        (nodes / "n1-day0.csv").unlink()
        return result

    monkeypatch.setattr(rolling, "survey", surveyed)
    result = rolled(nodes, client=client, **HOSTS)
    gone = result.quality.query("finding == 'dropped'")
    assert gone["source"].str.endswith("n1-day0.csv").tolist() == [True]
    assert gone["what"].str.contains("not found on worker").all()
    counts = result.rollup.groupby("entity", observed=True)["reading_count"].sum()
    assert counts.tolist() == [170, 170, 90, 90, 170, 170]


@pytest.mark.slow
@pytest.mark.parametrize("always", [False, True])
def test_a_file_whose_worker_dies_is_read_by_another_or_is_a_row(nodes, client, always):
    deaths = nodes.parent / "deaths"
    deaths.mkdir()

    def deadly(file, **rules):
        if file.label.endswith("n2-day1.csv") and (always or not list(deaths.iterdir())):
            (deaths / f"{os.getpid()}").touch()
            os._exit(1)
        return rolling._reduced(file, **rules)

    rules = rolling._Rules(rolling.PowerOptions(tz="UTC"), HOSTS["node"], 60 * SECOND, 3 * SECOND)
    files = rolling.survey(nodes, wanted=rolling.POWER_LOGS).sources
    tasks = [rolling._File(number, source) for number, source in enumerate(files)]

    def task(file):
        return deadly(file, rules=rules, is_worker=True)

    results = [*rolling._results(task, tasks, client=client, workers=1)]
    assert [file.number for file, _ in results] == [*range(6)]
    failed = [str(part) for _, part in results if isinstance(part, Exception)]
    assert len(failed) == always
    assert all("n2-day1.csv: its workers died" in text for text in failed)


def test_a_client_without_dask_names_the_extra(nodes, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"ai-infra-workbench\[cluster\]"):
        rolled(nodes, client=object(), **HOSTS)


def test_files_without_any_power_are_an_error_or_no_rows(tmp_path):
    folder = written(tmp_path, [readings_of([(10 * s, 0, 100) for s in range(9)])])
    (tmp_path / "blank.csv").write_text(
        smi().replace("500.00 W", "[N/A]").replace("501.00 W", "N/A")
    )
    result = rolled(folder, tz="UTC", node="n2")
    assert set(result.rollup["entity"]) == {"n1/gpu0"}
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(LoadError, match=r"(?s)no readable power.*blank\.csv"):
        rolled(folder, tz="UTC", node="n2")


def test_a_file_that_vanishes_before_it_is_read_again_is_a_row(tmp_path, monkeypatch):
    frame = readings_of([(s, 0, 100 + s) for s in range(90)])
    folder = written(tmp_path, [frame.iloc[::2], frame.iloc[1::2]])
    again = rolling._again

    def vanishing(file, **options):
        file.source.path.unlink(missing_ok=True)
        return again(file, **options)

    monkeypatch.setattr(rolling, "_again", vanishing)
    result = rolled(folder)
    assert result.rollup.empty
    assert (result.quality["finding"] == "dropped").sum() == 2
