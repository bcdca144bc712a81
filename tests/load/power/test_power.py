"""Loading power: the entry point, and the checks that are the same for all formats."""

import gzip
import re
import shutil
import tarfile

import numpy as np
import pandas as pd
import pytest

from tests.load.power.power_files import (
    HEADER,
    SECOND,
    START_S,
    counter_part,
    flagged,
    found,
    loaded,
    part,
    query_rows,
    stamp,
    together,
)
from workbench import datasets, load
from workbench.errors import LoadError
from workbench.load._power import joins as _power_joins
from workbench.load.kinds import kinds_of
from workbench.tables import POWER, POWER_COUNTERS, POWER_ENTITIES, POWER_STATES, QUALITY


def text(rows):
    return "\n".join([HEADER, *rows, ""])


def by_entity(log):
    return log.power.groupby("entity", observed=True)["power_w"].agg(list).to_dict()


@pytest.fixture
def gpu_log(tmp_path):
    path = tmp_path / "gpu.csv"
    path.write_text(text(query_rows([70, 80, 71, 81], gpus=2)))
    return path


# --- the entry point -----------------------------------------------------------


def test_the_demo_loads_with_its_real_counts():
    folder = datasets.path("fleet-demo") / "power"
    log = loaded(sorted(folder.glob("*_nvidia_smi.csv")), node=re.compile(r"node\d+"))
    assert log.entities["entity"].tolist() == [
        f"node00{node}/gpu{gpu}" for node in (1, 2, 3) for gpu in range(4)
    ]
    assert len(log.power) == len(log.states) == 822 + 984 + 984
    assert log.entities["period_s"].tolist() == [0.5] * 12
    assert log.entities["limit_w"].tolist() == [700] * 12
    first = log.power.iloc[0]
    assert first.tolist() == [
        pd.Timestamp("2026-01-12 08:00", tz="UTC").value, "node001/gpu0", 93.67
    ]  # fmt: skip


def test_a_folder_of_everything_gives_its_power_and_sets_the_rest_aside():
    log = loaded(datasets.path("fleet-demo"), node="n")
    assert {*log.entities["scope"]} >= {"gpu"}
    aside = log.quality[log.quality["finding"].eq("skipped by design")]
    assert aside["what"].str.contains("is a trace; load it with load.traces").sum() == 8
    assert aside["what"].str.contains("is a failure log; load it with load.failures").any()


def test_all_tables_fit_and_share_the_entities(gpu_log):
    log = loaded(gpu_log)
    for frame, table in ((log.power, POWER), (log.states, POWER_STATES),
                         (log.counters, POWER_COUNTERS), (log.entities, POWER_ENTITIES),
                         (log.quality, QUALITY)):  # fmt: skip
        table.check(frame)
    categories = log.entities["entity"].tolist()
    for frame in (log.power, log.states, log.counters):
        assert frame["entity"].cat.categories.tolist() == categories
    assert "4 readings of 2 entities (2 gpu)" in repr(log)


def test_a_list_a_folder_and_an_archive_give_the_same(gpu_log, tmp_path):
    archive = tmp_path / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(gpu_log, "logs/gpu.csv")
    for path in ([gpu_log], gpu_log.parent, archive):
        pd.testing.assert_frame_equal(loaded(path).power, loaded(gpu_log).power)


def test_formats_are_recognised_by_content_and_not_by_name(gpu_log, tmp_path):
    other = tmp_path / "notes.bin"
    shutil.copy(gpu_log, other)
    assert by_entity(loaded(other)) == by_entity(loaded(gpu_log))


def test_what_is_no_power_is_named_with_what_can_be_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,name\n1,a\n")
    with pytest.raises(LoadError, match=r"no readable power telemetry found.*nvidia-smi dmon.*"
                                        r"\n.*it begins with 'id,name'"):  # fmt: skip
        loaded(path)


def test_utf16_and_empty_files_beside_a_log_are_named(gpu_log):
    (gpu_log.parent / "b.csv").write_bytes(gpu_log.read_text().encode("utf-16"))
    (gpu_log.parent / "c.csv").write_bytes(b"")
    log = loaded(gpu_log.parent)
    assert found(log, "UTF-16")["finding"] == "dropped"
    assert found(log, "is empty")["finding"] == "dropped"
    assert len(log.power) == 4


@pytest.mark.parametrize("header", ["time,users,rps", "timestamp,loss,learning_rate"])
def test_numbers_over_time_that_name_no_power_do_not_stop_the_power_beside_them(gpu_log, header):
    other = gpu_log.parent / "other.csv"
    other.write_text(header + "\n2025-01-31T08:00:00Z,4,5.5\n2025-01-31T08:00:01Z,5,6.5\n")
    log = loaded(gpu_log.parent)
    assert len(log.power) == 4
    assert found(log, "if they are powers, pass unit=")["finding"] == "dropped"
    assert len(load.fleet(gpu_log.parent, tz="UTC", progress=False).power.power) == 4
    with pytest.raises(LoadError, match=r"other\.csv: .*if they are powers, pass unit="):
        loaded(other)


def test_a_missing_path_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        loaded(tmp_path / "absent.csv")


@pytest.mark.parametrize(
    ("given", "words"),
    [({"tz": "Mars"}, "tz must be a time zone"), ({"scope": "toaster"}, "scope must be one of gpu"),
     ({"unit": "hp"}, "unit must be one of W, kW, MW, mW; got 'hp'"),
     ({"reading": "last"}, "reading must be one of average, instant"),
     ({"period_s": 0}, "period_s must be a time in seconds such as 1 or 0.1; got 0"),
     ({"period_s": "1"}, "period_s must be"), ({"period_s": True}, "period_s must be")],
)  # fmt: skip
def test_arguments_that_mean_nothing_are_refused(gpu_log, given, words):
    with pytest.raises(ValueError, match=words):
        loaded(gpu_log, **given)


def test_a_node_that_is_none_is_refused(gpu_log):
    with pytest.raises(TypeError, match="node must be a host"):
        loaded(gpu_log, node=7)


def test_quality_reports_on_power_logs(gpu_log):
    assert kinds_of(gpu_log) == {"power logs"}
    report = load.quality(gpu_log, tz="UTC")
    assert report["what"].tolist() == ["readings (nvidia-smi --query-gpu CSV)"]


# --- values -------------------------------------------------------------------


def test_negative_powers_are_missing_and_counted():
    log = together(part(powers=[100, -1, 120]))
    assert np.isnan(log.power["power_w"][1])
    assert found(log, "negative")[["count", "where"]].tolist() == [1, "line 3: gpu0"]


def test_powers_that_are_not_finite_are_missing():
    log = together(part(powers=[100, np.inf, 120]))
    assert found(log, "not finite")["finding"] == "dropped"
    assert log.entities["missing_count"].tolist() == [1]


@pytest.mark.parametrize(
    ("scope", "watts", "is_absurd"),
    [("gpu", 1e308, True), ("gpu", 5_001, True), ("gpu", 4_900, False), ("node_ac", 14_000, False),
     ("node_ac", 3e5, True), ("switch", 59_570, False), ("rack", 132_000, False),
     ("msb", 2.5e6, False), ("utility", 1e11, True)],
)  # fmt: skip
def test_powers_that_no_such_thing_draws_are_missing(scope, watts, is_absurd):
    log = together(part(powers=[100, watts, 120], scope=scope))
    assert np.isnan(log.power["power_w"][1]) == is_absurd
    assert bool(flagged(log)) == is_absurd


def test_milliwatts_without_a_unit_are_taken_for_them_and_told():
    log = together(part(powers=[310_000, 320_000, 330_000], unit=None))
    assert log.power["power_w"].tolist() == [310, 320, 330]
    assert log.entities["assumed"].tolist() == ["unit=mW"]
    assert found(log, "assumed to be mW")[["finding", "where"]].tolist() == [
        "assumed", "gpu0: median 320,000"
    ]  # fmt: skip


@pytest.mark.parametrize("said", [{"unit": "W"}, {"unit": None, "assumed": "unit=W"}])
def test_no_unit_is_guessed_where_one_is_stated(said):
    log = together(part(powers=[310_000, 320_000, 330_000], **said))
    assert log.power["power_w"].isna().all()
    assert "unit=mW" not in log.entities["assumed"].tolist()


# --- order --------------------------------------------------------------------


def test_readings_are_in_order_of_entity_and_time_as_people_count():
    log = together(part(entity="gpu10"), part("b.csv", entity="gpu2"))
    assert log.entities["entity"].tolist() == ["gpu2", "gpu10"]
    assert log.power["time_ns"].tolist() == [(START_S + n) * SECOND for n in range(3)] * 2


def test_a_clock_that_goes_back_is_told_and_mended_by_order():
    log = together(part(times=[0, 1, 2, 1.5, 3], powers=[1, 2, 4, 3, 5]))
    assert log.power["power_w"].tolist() == [1, 2, 3, 4, 5]
    told = found(log, "go back in time")
    assert told[["finding", "count", "where"]].tolist() == ["suspicious", 1, "line 5: gpu0"]
    assert "by up to 0.5 s" in told["what"]


def test_a_reading_written_twice_is_taken_once():
    log = together(part(times=[0, 1, 1, 2], powers=[1, 2, 2, 3]))
    assert log.power["power_w"].tolist() == [1, 2, 3]
    assert found(log, "taken once")[["finding", "count"]].tolist() == ["noted", 1]


def test_of_readings_that_differ_for_one_stamp_the_first_is_kept_and_told():
    log = together(part(times=[0, 1, 1, 2], powers=[1, 2, 9, 3]))
    assert log.power["power_w"].tolist() == [1, 2, 3]
    assert found(log, "differ for one stamp")[["finding", "where"]].tolist() == [
        "dropped", "line 4: gpu0"
    ]  # fmt: skip


def test_a_reading_is_kept_rather_than_a_missing_one_of_the_same_stamp():
    log = together(part(times=[0, 1, 1, 2], powers=[1, np.nan, 2, 3]))
    assert log.power["power_w"].tolist() == [1, 2, 3]


def test_long_pauses_are_counted_with_their_share():
    times = [*range(10), *range(60, 70)]
    log = together(part(times=times, powers=np.full(20, 100.0)))
    told = found(log, "pauses longer than 3 periods")
    assert told[["finding", "count", "where"]].tolist() == ["suspicious", 1, "line 12: gpu0"]
    assert "73.91% of the time" in told["what"]
    assert log.entities["period_s"].tolist() == [1]


def test_uneven_times_are_noted():
    times = np.cumsum([1, 0.1, 1, 1, 1.9, 1, 0.1, 1, 1, 1.9, 1, 1])
    assert found(together(part(times=times, powers=times)), "uneven")["count"] == 1


def test_a_steady_log_has_no_findings():
    log = together(
        part(times=np.arange(1000), powers=np.random.default_rng(0).normal(300, 9, 1000))
    )
    assert {*log.quality["finding"]} == {"read"}


# --- several files ------------------------------------------------------------


def test_a_log_cut_in_pieces_is_joined():
    log = together(part("b.csv", times=[3, 4, 5], node="n"), part("a.csv", node="n"))
    assert log.entities["entity"].tolist() == ["gpu0"]
    assert log.power["time_ns"].tolist() == [(START_S + n) * SECOND for n in range(6)]
    assert found(log, "another file continues")[["finding", "where"]].tolist() == ["noted", "gpu0"]


def test_equal_readings_where_two_pieces_overlap_are_taken_once():
    log = together(part(times=[0, 1, 2, 3], powers=[1, 2, 3, 4]),
                   part("b.csv", times=[2, 3, 4], powers=[3, 4, 5]))  # fmt: skip
    assert log.power["power_w"].tolist() == [1, 2, 3, 4, 5]
    told = found(log, "another file contains, too")
    assert told[["source", "finding", "count", "where"]].tolist() == ["b.csv", "noted", 2, "line 2"]


def test_the_name_of_two_things_is_told_apart_by_their_files():
    log = together(part("logs/n1/gpu.csv"), part("logs/n2/gpu.csv", powers=[200, 210, 220]))
    assert by_entity(log) == {"gpu0 (n1/gpu.csv)": [100, 110, 120],
                              "gpu0 (n2/gpu.csv)": [200, 210, 220]}  # fmt: skip
    told = log.quality[log.quality["what"].str.contains("the file was added")]
    assert told["source"].tolist() == ["logs/n1/gpu.csv", "logs/n2/gpu.csv"]


def test_pieces_of_two_hosts_make_two_things():
    names = ("n1/a.csv", "n2/a.csv", "n1/b.csv", "n2/b.csv")
    log = together(*(part(name, times=[3 * (n // 2), 3 * (n // 2) + 1], powers=[n % 2, 7])
                     for n, name in enumerate(names)))  # fmt: skip
    assert len(log.entities) == 2
    assert len(log.power) == 8
    # Without hosts nobody knows which continues which.
    told = log.quality[log.quality["what"].str.contains("joined with the first")]
    assert told[["source", "finding"]].to_numpy().tolist() == [
        ["n1/b.csv", "suspicious"], ["n2/b.csv", "suspicious"]
    ]  # fmt: skip


def test_each_two_things_of_one_name_are_compared_once(monkeypatch):
    asked = []
    monkeypatch.setattr(_power_joins, "_is_doubtful", lambda *pair: asked.append(pair) or False)
    count = 8
    together(*(part(f"{n}.csv", powers=(100 + n, 110 + n, 130 + n)) for n in range(count)))
    assert len(asked) == count * (count - 1) / 2


def test_a_long_pause_of_an_unknown_host_is_not_bridged_by_a_guess():
    later = [10_000, 10_001, 10_002]
    log = together(part("a.csv"), part("b.csv", times=later))
    assert log.entities["entity"].tolist() == ["gpu0 (a.csv)", "gpu0 (b.csv)"]
    assert "suspicious: entities of an unknown host" in flagged(log)[0]
    named = together(part("a.csv", node="n"), part("b.csv", times=later, node="n"))
    assert named.entities["entity"].tolist() == ["gpu0"]


def test_ac_and_dc_of_a_node_stay_two_things():
    log = together(part("ac.txt", entity="node1", scope="node_ac"),
                   part("dc.txt", entity="node1", scope="node_dc"))  # fmt: skip
    assert log.entities["entity"].tolist() == ["node1 (ac.txt)", "node1 (dc.txt)"]
    assert "node_dc, node_ac" in found(log, "scopes that contain each other")["what"]


def test_scopes_that_hold_each_other_are_noted():
    log = together(part(), part("b.txt", entity="node1", scope="node_ac"))
    assert "(gpu, node_ac)" in found(log, "sum one of them")["what"]
    alone = together(part(), part("b.txt", entity="gpu1", powers=[5, 6, 7]))
    assert not alone.quality["what"].str.contains("sum one of them").any()


def test_files_that_are_copies_are_flagged():
    log = together(part("a.txt", entity="node1"), part("b.txt", entity="node2"),
                   part("c.txt", entity="node3", powers=[1, 2, 3]))  # fmt: skip
    told = found(log, "is one a copy")
    assert told[["source", "finding", "count", "where"]].tolist() == [
        "b.txt", "suspicious", 3, "a.txt"
    ]  # fmt: skip


def test_an_own_clock_is_never_joined_with_another():
    log = together(part("a.csv", clock="own"), part("b.csv", clock="own", times=[5, 6, 7]),
                   part("c.csv", times=[8, 9, 10]))  # fmt: skip
    assert len(log.entities) == 3
    assert log.entities["clock"].tolist() == ["own", "own", "epoch"]
    told = log.quality[log.quality["what"].str.contains("unsynchronized clocks")]
    assert told["finding"].tolist() == ["noted", "noted"]


def test_a_clock_that_was_not_set_is_flagged():
    assert found(together(part(start_s=0)), "before the year 2000")["finding"] == "suspicious"


def test_a_meter_at_another_time_than_the_others_is_flagged():
    nodes = [part(f"{n}.txt", entity=f"node{n}", scope="node_ac", times=np.arange(100),
                  powers=np.arange(100) + n) for n in range(4)]  # fmt: skip
    switch = part("sw.txt", entity="sw", scope="switch", times=np.arange(100) - 7200,
                  powers=np.arange(100))  # fmt: skip
    told = found(together(*nodes, switch), "is their clock right")
    assert told[["source", "finding", "where"]].tolist() == ["sw.txt", "suspicious", "sw"]


def test_a_sensor_that_is_stuck_is_flagged_and_an_idle_one_is_not():
    moving = [np.random.default_rng(n).normal(400, 20, 400).round(2) for n in range(4)]
    stuck = np.where(np.arange(400) < 150, moving[0], 512.5)
    idle = np.where(np.arange(400) < 150, moving[0], 60.0)
    parts = [part(f"{n}.csv", entity=f"gpu{n}", times=range(400), powers=each)
             for n, each in enumerate([*moving, stuck, idle])]  # fmt: skip
    assert found(together(*parts), "stuck")[["count", "where"]].tolist() == [1, "gpu4"]


# --- counters -----------------------------------------------------------------


def test_a_counter_alone_becomes_power_between_its_updates():
    log = together(counter_part([0, 100, 100, 320, 420]))
    assert log.power["power_w"].tolist() == [100, 110, 100]
    assert (log.power["time_ns"] // SECOND - START_S).tolist() == [1, 3, 4]
    assert log.entities["method"].tolist() == ["counter"]
    assert log.counters["energy_j"].tolist() == [0, 100, 100, 320, 420]


def test_no_power_is_made_up_across_a_reset():
    log = together(counter_part([1000, 1100, 50, 150]))
    assert log.power["power_w"].iloc[[0, 2]].tolist() == [100, 100]
    assert np.isnan(log.power["power_w"][1])
    assert found(log, "fell (a reset)")["count"] == 1
    assert log.entities[["reading_count", "missing_count"]].iloc[0].tolist() == [2, 1]


def test_a_jump_of_a_counter_is_no_power():
    log = together(counter_part([0, 100, 1e9, 1e9 + 100]))
    assert np.isnan(log.power["power_w"][1])
    assert found(log, "counters that jump")["finding"] == "dropped"


def test_a_counter_beside_a_power_stays_a_counter():
    both = part()
    both.counters = both.readings.rename(columns={"power_w": "energy_j"})
    log = together(both)
    assert log.power["power_w"].tolist() == [100, 110, 120]
    assert len(log.counters) == 3
    assert log.entities["method"].tolist() == ["unknown"]


def test_a_counter_in_two_files_is_joined_before_it_is_read():
    log = together(counter_part([0, 100], node="n"),
                   counter_part([300, 400], [2, 3], source="b.csv", node="n"))  # fmt: skip
    assert log.power["power_w"].tolist() == [100, 200, 100]


def test_stamps_may_be_packed_in_any_number_of_files(tmp_path):
    rows = query_rows(range(100, 190), gpus=3)
    for number in range(3):
        piece = text(rows[30 * number : 30 * number + 30])
        path = tmp_path / f"gpu.csv.{number}.gz"
        path.write_bytes(gzip.compress(piece.encode()))
    whole = tmp_path / "whole" / "gpu.csv"
    whole.parent.mkdir()
    whole.write_text(text(rows))
    pieces = loaded(sorted(tmp_path.glob("*.gz")))
    pd.testing.assert_frame_equal(pieces.power, loaded(whole).power)
    assert stamp(0) in rows[0]


def test_of_many_files_without_a_host_copies_and_continuations_are_still_found(tmp_path):
    power = np.random.default_rng(0).uniform(100, 700, (20, 80))
    assert len(power) >= _power_joins._MANY_PIECES

    def write(name, host, first):
        rows = [f"{stamp(s)}, 0, {power[host, s]:.2f} W" for s in range(first, first + 40)]
        (tmp_path / name).write_text(text(rows).replace(HEADER, "timestamp, index, power.draw [W]"))

    for host in range(len(power)):
        write(f"host{host:02d}.csv", host, 0)
    write("x-copy.csv", 5, 0)
    write("y-later.csv", 3, 40)
    write("z-overlap.csv", 7, 30)
    log = loaded(tmp_path)
    assert len(log.entities) == len(power)
    assert sorted(log.power.groupby("entity", observed=True).size())[-2:] == [70, 80]
    assert len(log.power) == 20 * 40 + 40 + 30
    told = log.quality.assign(file=log.quality["source"].str.split("/").str[-1])
    joined = told[told["what"].str.contains("continue")].set_index("file")["finding"]
    assert joined.to_dict() == {
        "x-copy.csv": "noted", "y-later.csv": "suspicious", "z-overlap.csv": "noted"
    }  # fmt: skip


def test_idle_hosts_that_read_alike_are_doubted():
    same = [70.0] * 5
    log = together(
        part("a.csv", times=range(5), powers=same), part("b.csv", times=range(5), powers=same)
    )
    assert len(log.entities) == 1
    assert any("another idle host" in each for each in flagged(log))
