"""Numbers of power that other cells of their file contradict, or that may be read in two ways."""

import json

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import LoadError
from workbench.tables import HARMLESS

CODECARBON = (
    "timestamp,run_id,duration,emissions,cpu_power,gpu_power,ram_power,cpu_energy,gpu_energy,"
    "ram_energy,codecarbon_version,gpu_count,tracking_mode\n"
)


@pytest.fixture
def read(tmp_path):
    def load_text(text, name="power.csv", **options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return load.power(path, **{"tz": "UTC", "progress": False, **options})

    return load_text


def doubts(log):
    return log.quality[~log.quality["finding"].isin(HARMLESS)]["what"].tolist()


def row(stamp, seconds, watts, *, task=None, spent_s=None):
    spent_s = spent_s or seconds
    kwh = [watts[name] * spent_s / 3.6e6 for name in ("cpu", "gpu", "ram")]
    cells = [stamp, "r1", seconds, 0.01, watts["cpu"], watts["gpu"], watts["ram"], *kwh, "3.3.2", 1,
             "machine"]  # fmt: skip
    return ",".join(map(str, cells if task is None else [task, *cells])) + "\n"


TASKS = {"load": (10, 600.0), "train": (3600, 710.0), "eval": (0.4, 300.0)}


def test_tasks_of_a_run_add_up_as_sql_adds_them(read, tmp_path):
    text, end = f"task_name,{CODECARBON}", pd.Timestamp("2026-03-01T10:00:00")
    for task, (seconds, watts) in TASKS.items():
        end += pd.Timedelta(seconds=seconds)
        stamp = end.floor("s").isoformat()
        text += row(stamp, seconds, {"cpu": 42.5, "gpu": watts, "ram": 10.0}, task=task)
    log = read(text, "emissions_base_r1.csv")
    drawn = analyze.energy(log.power).set_index("entity")["energy_j"]
    counted = analyze.energy_from_counter(log.counters).set_index("entity")["energy_j"]
    (kwh,) = duckdb.sql(
        f"select sum(gpu_energy) from '{tmp_path / 'emissions_base_r1.csv'}'"
    ).fetchall()[0]
    assert drawn["r1 tasks/gpu"] == pytest.approx(kwh * 3.6e6)
    assert counted["r1 tasks/gpu"] == pytest.approx(kwh * 3.6e6)


@pytest.mark.long
@given(seconds=st.lists(st.floats(0.05, 500), min_size=1, max_size=12))
def test_tasks_whose_stamps_are_cut_to_seconds_keep_their_energy(seconds, tmp_path_factory):
    text, end = f"task_name,{CODECARBON}", pd.Timestamp("2026-03-01T10:00:00")
    for number, spent in enumerate(seconds):
        end += pd.Timedelta(seconds=spent)
        watts = {"cpu": 40.0, "gpu": 300.0, "ram": 10.0}
        text += row(end.floor("s").isoformat(), spent, watts, task=f"t{number}")
    path = tmp_path_factory.mktemp("tasks") / "emissions_base_r1.csv"
    path.write_text(text)
    log = load.power(path, tz="UTC", progress=False)
    counted = analyze.energy_from_counter(log.counters).set_index("entity")["energy_j"]
    assert counted["r1 tasks/gpu"] == pytest.approx(300.0 * sum(seconds), rel=1e-6)


def test_a_run_and_its_tasks_together_are_told(tmp_path):
    watts = {"cpu": 42.5, "gpu": 600.0, "ram": 10.0}
    (tmp_path / "a.csv").write_text(CODECARBON + row("2026-03-01T10:10:00", 600, watts))
    tasks = f"task_name,{CODECARBON}" + row("2026-03-01T10:10:00", 600, watts, task="train")
    (tmp_path / "b.csv").write_text(tasks)
    told = doubts(load.power(tmp_path, tz="UTC", progress=False))
    assert any("tasks of a run that is loaded, too" in text for text in told)


def test_the_duration_of_the_last_task_is_none_of_the_energy_of_all(read):
    watts = {"cpu": 100.0, "gpu": 0.0, "ram": 20.0}
    log = read(CODECARBON + row("2026-03-01T10:00:00", 2.0, watts, spent_s=4.0))
    means = log.power.groupby("entity", observed=True)["power_w"].mean()
    assert means["r1/cpu"] == pytest.approx(100.0)
    assert analyze.energy(log.power).set_index("entity").loc["r1/cpu", "energy_j"] == (
        pytest.approx(400.0)
    )
    assert any("energies are not of their duration" in text for text in doubts(log))


def amd(fields):
    return json.dumps([
        {"timestamp": 1_769_014_600 + second, "gpu": gpu, **fields(second, gpu)}
        for second in range(60) for gpu in (0, 1)
    ])  # fmt: skip


@pytest.mark.parametrize("absent", ["current_socket_power", "average_socket_power"])
def test_of_two_powers_of_one_gpu_the_one_that_is_there_is_taken(read, absent):
    other = {"current_socket_power", "average_socket_power"} - {absent}
    log = read(
        amd(lambda _, gpu: {"power": {absent: "N/A", other.copy().pop(): 300 + gpu}}), "a.json"
    )
    assert log.power["power_w"].notna().all()
    assert sorted(set(log.power["power_w"])) == [300, 301]
    methods = {"current_socket_power": "average", "average_socket_power": "instant"}
    assert set(log.entities["method"]) == {methods[absent]}


@pytest.mark.parametrize("absent", ["power_average_w", "power_instant_w"])
@pytest.mark.parametrize("reading", [None, "average", "instant"])
def test_of_two_columns_of_an_own_table_the_one_with_numbers_is_taken(read, absent, reading):
    names = ["power_average_w", "power_instant_w"]
    rows = "".join(
        f"2026-03-01 10:00:{n:02},{','.join('N/A' if c == absent else '250' for c in names)}\n"
        for n in range(30)
    )
    log = read(f"time,{','.join(names)}\n{rows}", reading=reading)
    assert log.power["power_w"].tolist() == [250] * 30


def test_a_metric_without_numbers_gives_way_to_the_other(read):
    lines = [f'{name}{{gpu="0",Hostname="n1"}} {value} {1_769_014_600_000 + 1000 * n}'
             for n in range(20)
             for name, value in (("DCGM_FI_DEV_POWER_USAGE", "NaN"),
                                 ("DCGM_FI_DEV_POWER_USAGE_INSTANT", 410.5))]  # fmt: skip
    assert set(read("\n".join(lines) + "\n", "m.prom").power["power_w"].dropna()) == {410.5}


@given(
    watts=st.integers(60, 700), resolution_j=st.sampled_from([1, 15, 1000, 36_000]),
    stuck_from=st.one_of(st.none(), st.integers(0, 400)), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_counter_that_stands_still_is_left_out_and_a_coarse_one_is_not(
    watts, resolution_j, stuck_from, seed, tmp_path_factory
):
    random = np.random.default_rng(seed)
    power = watts * (1 + 0.05 * random.standard_normal(600)).clip(0.5, 1.5)
    energy = np.concatenate([[0], np.cumsum((power[1:] + power[:-1]) / 2)]) + 79_541
    energy = np.floor(energy / resolution_j) * resolution_j
    if stuck_from is not None:
        energy[stuck_from:] = energy[stuck_from]
    path = tmp_path_factory.mktemp("counter") / "power.csv"
    stamps = 1_769_014_600 + np.arange(600)
    pd.DataFrame({"timestamp": stamps, "gpu": 0, "power_w": power, "energy_j": energy}).to_csv(
        path, index=False
    )
    log = load.power(path, progress=False)
    text = "counters of energy that stand still while the power does not; not used"
    missing_j = 0 if stuck_from is None else power[stuck_from:].sum()
    if missing_j > 5 * resolution_j and missing_j > 5 * watts:
        assert log.counters.empty
        assert text in doubts(log) or "as no counter does" in " ".join(log.quality["what"])
    elif stuck_from is None:
        assert text not in doubts(log)
    assert analyze.energy(log.power)["energy_j"].item() == pytest.approx(
        ((power[1:] + power[:-1]) / 2).sum()
    )


def test_no_power_at_full_load_is_missing_and_told(read):
    rows = "".join(
        f"2026/03/01 10:00:{n:02}.000, {gpu}, {0 if n % 7 == 3 else 400}.00 W, {load} %\n"
        for n in range(60) for gpu, load in ((0, 100), (1, 0))
    )  # fmt: skip
    log = read(f"timestamp, index, power.draw [W], utilization.gpu [%]\n{rows}")
    means = log.power.groupby("entity", observed=True)["power_w"].mean()
    assert means["gpu0"] == 400, "0 W at full load is no power"
    assert means["gpu1"] < 400, "0 W of an idle GPU may be one"
    assert doubts(log) == ["powers of 0 W while the GPU worked; they are missing"]


OTHERS = ["gpu_util", "gpu_mem", "temp", "GPU Load [%]", "loss", "fan speed", "SM Clock (MHz)",
          "mem.used [MiB]", "tokens_per_second", "learning_rate_x_lr", "T hotspot (°C)"]  # fmt: skip


@pytest.mark.parametrize("unit", ["W", "kW", "mW"])
def test_a_unit_makes_no_watts_of_other_quantities(read, unit):
    header = ",".join(["time", *OTHERS])
    rows = "".join(f"2026-03-01 10:00:{n:02}{',7' * len(OTHERS)}\n" for n in range(30))
    with pytest.raises(LoadError, match="no column of powers among"):
        read(f"{header}\n{rows}", unit=unit)
    rows = rows.replace("\n", ",5\n")
    log = read(f"{header},rack 3\n{rows}", unit=unit)
    assert log.entities["entity"].tolist() == ["rack 3"]
    told = log.quality["what"].str.contains("another quantity than power")
    assert told.sum() == len(OTHERS)


FORMS = {
    "plain": (",", "", "."), "German": (";", ".", ","), "French": (";", "\u202f", ","),
    "no-break space": (";", "\u00a0", ","), "Swiss": (";", "'", "."),
    "Swiss with comma": (";", "\u2019", ","), "English": (",", ",", "."),
    "comma, not grouped": (";", "", ","), "points in semicolons": (";", "", "."),
    "tabs": ("\t", ".", ","), "bars": ("|", "", ","), "Indian": (",", "lakh", "."),
}  # fmt: skip


def written(value, group, decimal):
    whole, _, part = f"{value:.3f}".rstrip("0").rstrip(".").partition(".")
    if group == "lakh" and len(whole) > 3:
        head, last = whole[:-3], whole[-3:]
        pairs = [head[max(at - 2, 0) : at] for at in range(len(head), 0, -2)][::-1]
        whole = ",".join([*pairs, last])
    elif group:
        whole = f"{int(whole):,}".replace(",", "," if group == "lakh" else group)
    return whole + (decimal + part if part else "")


def table_in(form, values):
    separator, group, decimal = FORMS[form]
    rows = "".join(
        f'2026-03-01 10:{n // 60:02}:{n % 60:02}{separator}"{written(value, group, decimal)}"\n'
        for n, value in enumerate(values)
    )
    return f'"Time"{separator}"rack1 power (W)"\n{rows}'


@given(
    form=st.sampled_from([*FORMS]),
    values=st.lists(
        st.one_of(
            st.integers(1, 300_000).map(float),
            st.integers(1, 90_000_000).map(lambda n: n / 1000),
            st.integers(1, 90_000).map(lambda n: n / 100),
        ), min_size=1, max_size=30,
    ),
)  # fmt: skip
def test_a_table_in_any_form_gives_the_same_watts_or_a_doubt(form, values, tmp_path_factory):
    path = tmp_path_factory.mktemp("locale") / "power.csv"
    path.write_text(table_in(form, values), encoding="utf-8")
    try:
        log = load.power(path, tz="UTC", progress=False)
    except LoadError:
        return
    power = log.power["power_w"].to_numpy()
    if not np.array_equal(power, values):
        assert doubts(log), (form, values, power)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("values", [[950, 1020, 1100, 990], [950.5, 1020, 12_345.25, 99]])
def test_numbers_that_prove_their_form_are_read(read, form, values):
    log = read(table_in(form, values))
    assert log.power["power_w"].tolist() == values
    assert doubts(log) == []


@pytest.mark.parametrize("mark", ["sep=;", '"sep=;"', "\ufeffsep=;"])
def test_a_stated_separator_counts_more_than_commas_in_names(read, mark):
    text = f'{mark}\nTime;"node1 gpu0, average, power (W)"\n2026-03-01 10:00:00;1,5\n'
    log = read(text + "2026-03-01 10:00:15;1.020,25\n")
    assert log.power["power_w"].tolist() == [1.5, 1020.25]


def test_of_two_columns_of_times_that_of_the_wall_clock_is_taken(read):
    rows = "".join(f"{n},2026-03-01 10:00:{n:02},300\n" for n in range(30))
    log = read(f"time,timestamp,power_w\n{rows}")
    assert log.entities["clock"].tolist() == ["epoch"]
    lines = "".join(
        json.dumps({"time": n, "timestamp": 1_769_014_600 + n, "power_w": 300}) + "\n"
        for n in range(30)
    )
    assert read(lines, "p.jsonl").entities["clock"].tolist() == ["epoch"]


def test_of_two_columns_of_times_in_parquet_the_stamps_are_taken(tmp_path):
    stamps = pd.date_range("2026-03-01", periods=30, freq="s", tz="UTC")
    frame = pd.DataFrame({"time": np.arange(30.0), "timestamp": stamps, "power_w": 300.0})
    frame.to_parquet(tmp_path / "p.parquet")
    log = load.power(tmp_path / "p.parquet", progress=False)
    assert log.entities["clock"].tolist() == ["epoch"]


def mllog(count):
    def line(key, time_ms, value):
        entry = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key,
                 "value": value, "metadata": ""}  # fmt: skip
        return f":::MLLOG {json.dumps(entry)}\n"

    start = 1_715_960_307_508
    readings = [line("power_reading", start + 2000 * n, 6144 + n) for n in range(count)]
    return [line("power_measurement_start", start, None), *readings,
            line("power_measurement_stop", start + 2000 * count, None)]  # fmt: skip


@given(cut=st.integers(2, 60))
def test_a_log_of_a_benchmark_cut_at_any_line_is_told(cut, tmp_path_factory):
    path, lines = tmp_path_factory.mktemp("mlperf") / "node_1.txt", mllog(60)
    path.write_text("".join(lines[:cut]))
    text = "a measurement that does not end: the log was cut, or its writer stopped"
    assert text in doubts(load.power(path, progress=False))
    path.write_text("".join(lines))
    assert text not in doubts(load.power(path, progress=False))


@given(cut=st.integers(40, 160), gpus=st.integers(2, 8))
def test_a_log_cut_within_a_poll_is_told(cut, gpus, tmp_path_factory):
    rows = [f"{1_769_014_600 + n},n1,{gpu},300\n" for n in range(20) for gpu in range(gpus)]
    path = tmp_path_factory.mktemp("polls") / "power.csv"
    kept = rows[: min(cut, len(rows))]
    path.write_text("time,node,gpu,power_w\n" + "".join(kept))
    told = doubts(load.power(path, progress=False))
    is_cut = len(kept) % gpus != 0 and len(kept) > 5 * gpus
    assert any("things that the last poll lacks" in text for text in told) == is_cut


def test_a_host_whose_log_ends_early_is_told(tmp_path):
    for node in range(5):
        rows = "".join(
            f"{1_769_014_600 + n},{300 + n % 7}\n" for n in range(40 if node == 3 else 200)
        )
        (tmp_path / f"n{node}.csv").write_text(f"time,power_w\n{rows}")
    told = load.power(tmp_path, progress=False).quality
    early = told[told["what"].str.startswith("entities whose readings end before")]
    assert early["source"].str.endswith("n3.csv").tolist() == [True]
