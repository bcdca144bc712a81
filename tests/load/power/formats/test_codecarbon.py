"""CodeCarbon's emissions: means over runs, what is doubtful about them, and damage."""

import pytest

from workbench import load
from workbench.errors import LoadError

HEADER = (
    "timestamp,project_name,run_id,duration,emissions,cpu_power,gpu_power,ram_power,"
    "cpu_energy,gpu_energy,ram_energy,energy_consumed,gpu_count,gpu_model\n"
)


def run(stamp="2024-05-01T10:00:00", run_id="a", duration=3600, gpu=(200, 0.2), count=1):
    power, energy = gpu
    tail = f"0.1,42.5,{power},6,0.0425,{energy},0.006,0.25,{count},{count} x H100"
    return f"{stamp},p,{run_id},{duration},{tail}\n"


@pytest.fixture
def power(tmp_path):
    """Write a file and load it."""

    def read(*rows, tz="UTC"):
        path = tmp_path / "emissions.csv"
        path.write_text(HEADER + "".join(rows))
        return load.power(path, tz=tz, progress=False)

    return read


def told(log):
    return {(row.finding, row.what): row.count for row in log.quality.itertuples()}


def watts(log, entity):
    return log.power.loc[log.power["entity"] == entity, "power_w"].tolist()


def test_power_is_the_energy_over_the_duration_not_the_last_sample(power):
    log = power(run(gpu=(700, 0.2)))
    assert watts(log, "a/gpu") == pytest.approx([200, 200])
    assert watts(log, "a/cpu") == pytest.approx([42.5, 42.5])
    last = "runs whose gpu_power, the last sample, is far from their mean; not used"
    assert told(log)["noted", last] == 1
    times = log.power["time_ns"].unique().tolist()
    assert times == [1714554000 * 10**9, 1714557600 * 10**9]
    assert log.entities["scope"].tolist() == ["cpu", "gpu", "memory"]
    assert log.entities["method"].tolist() == ["unknown", "average", "estimate"]
    assert set(log.entities["assumed"]) == {"tz=UTC"}


def test_several_gpus_together_are_of_unknown_scope_and_no_reading_is_too_large(power):
    log = power(run(gpu=(5600, 5.6), count=8))
    assert watts(log, "a/gpu") == pytest.approx([5600, 5600])
    assert log.entities.set_index("entity").loc["a/gpu", "scope"] == "unknown"


def test_a_run_with_0_kwh_is_flagged(power):
    assert told(power(run(gpu=(300, 0))))["suspicious", "runs with 0 kWh of gpu"] == 1


def test_the_last_row_of_a_run_counts_and_runs_may_overlap(power):
    log = power(
        run("2024-05-01T10:00:00", gpu=(200, 0.2)),
        run("2024-05-01T11:00:00", duration=7200, gpu=(200, 0.8)),
        run("2024-05-01T11:00:00", run_id="b", gpu=(100, 0.1)),
    )
    assert watts(log, "a/gpu") == pytest.approx([400, 400])
    assert watts(log, "b/gpu") == pytest.approx([100, 100])
    assert (
        told(log)["skipped by design", "earlier rows of a run, whose energies are in its last row"]
        == 1
    )


def test_damaged_rows_are_counted_and_the_others_read(power):
    log = power(
        run(), run("never", run_id="b"), run(run_id="c", duration=-1),
        run(run_id="d", gpu=("x", "nan")), run(run_id="e", gpu=(1, -2)), "2024-05-01T1\n",
    )  # fmt: skip
    found = told(log)
    assert watts(log, "a/gpu") == pytest.approx([200, 200])
    assert found["dropped", "runs without a usable time or duration"] == 2
    assert found["dropped", "runs without a usable gpu_energy"] == 2
    assert found["dropped", "rows with more or fewer cells than the header"] == 1


def test_stamps_need_a_zone(power):
    with pytest.raises(LoadError, match=r"line 2: '2024-05-01T10:00:00' has no time zone"):
        power(run(), tz=None)


def test_a_file_without_a_run_is_refused(power):
    with pytest.raises(LoadError, match="holds a header and no run with a time"):
        power(run("never"))
