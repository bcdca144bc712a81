"""Xids in Prometheus. The JSON is that of /api/v1/query_range and /api/v1/query; labels and
text are those of dcgm-exporter 3.1 to 4 (with pci_bus_id, err_code and err_msg from 3.3.6)."""

import json

import pytest

from tests.load.failures.log_files import FOREIGN, findings, read, recognised
from workbench.load._failures.formats import prometheus_xid

T0 = 1_700_000_000
S = 1_000_000_000


def series(values, name="DCGM_FI_DEV_XID_ERRORS", **labels):
    """One series with a sample every 15 s; None is a missing one."""
    metric = {"__name__": name, "gpu": "3", "UUID": "GPU-1", "pci_bus_id": "00000000:9B:00.0"}
    pairs = [[T0 + 15 * i, str(v)] for i, v in enumerate(values) if v is not None]
    return {"metric": metric | {"Hostname": "gpu-7"} | labels, "values": pairs}


def counts(values, **labels):
    more = {"xid": "31", "window_size_in_ms": "300000"} | labels
    return series(values, "DCGM_EXP_XID_ERRORS_COUNT", **more)


def answer(*result, kind="matrix"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": list(result)}})


def codes(part):
    """Return (code, seconds after the beginning) of the failures."""
    after = (part.failures["start_ns"] - T0 * S) // S
    return list(zip(part.failures["code"], after.tolist(), strict=True))


def test_a_change_to_another_code_is_an_incident(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(series([0, 0, 79, 79, 0, 0, 13, 43])))
    assert codes(part) == [("79", 30), ("13", 90), ("43", 105)]
    row = part.failures.iloc[0]
    assert row[["kind", "node", "device"]].tolist() == ["dcgm", "gpu-7", "0000:9b:00"]
    assert row["clock"] == "epoch"
    assert part.nodes == {"gpu-7": None}


def test_says_that_a_code_that_comes_again_is_hidden(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(series([0, 31, 31, 31])))
    assert len(part.failures) == 1
    assert [what for what in findings(part) if "comes again" in what]


def test_a_code_that_was_there_from_the_start_has_no_time(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(series([79, 79, 48])))
    assert part.failures["clock"].tolist() == ["none", "epoch"]
    assert part.failures.isna()["start_ns"].tolist() == [True, False]
    assert [what for what in findings(part) if "before the series begins" in what]


def test_new_series_of_the_same_gpu_are_no_new_incidents(tmp_path):
    # A new pod, and in newer exporters a new code, are new labels and so a new series.
    first = series([0, 0, None, None, None, None], err_code="0", pod="a")
    second = series([None, None, 79, 79, None, None], err_code="79", pod="a")
    third = series([None, None, None, None, 79, 79], err_code="79", pod="b")
    part = read(prometheus_xid, tmp_path, answer(third, first, second))
    assert codes(part) == [("79", 30)]
    assert part.failures["clock"].tolist() == ["epoch"]


def test_instances_of_a_partitioned_gpu_report_together(tmp_path):
    parts = [series([0, 94], GPU_I_ID=str(i)) for i in range(4)]
    assert codes(read(prometheus_xid, tmp_path, answer(*parts))) == [("94", 15)]


def test_gpus_and_hosts_are_kept_apart(tmp_path):
    text = answer(
        series([0, 79]),
        series([0, 79], UUID="GPU-2", pci_bus_id="00000000:9C:00.0"),
        series([0, 79], Hostname="gpu-8"),
    )
    assert len(read(prometheus_xid, tmp_path, text).failures) == 3


def test_every_rise_of_a_count_is_that_many_incidents(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(counts([0, 1, 3, 3, 2, 4])))
    assert codes(part) == [("31", 15), ("31", 30), ("31", 75)]
    assert part.failures["line_count"].tolist() == [1, 2, 2]
    assert part.failures["text"].iloc[1] == "3 times Xid 31 in the last 300 s"


def test_a_count_at_the_start_lies_within_its_window(tmp_path):
    row = read(prometheus_xid, tmp_path, answer(counts([2, 2]))).failures.iloc[0]
    assert (row["start_ns"], row["end_ns"]) == ((T0 - 300) * S, T0 * S)


def test_counts_a_window_apart_are_all_new(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(counts([0, 1, *[None] * 30, 1])))
    assert part.failures["line_count"].tolist() == [1, 1]


def test_an_instant_query_is_a_series_of_one(tmp_path):
    now = series([79])
    now["value"] = now.pop("values")[0]
    part = read(prometheus_xid, tmp_path, answer(now, kind="vector"))
    assert part.failures["clock"].tolist() == ["none"]


PAGE = """\
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-9",pci_bus_id="00000000:08:00.0",device="nvidia0",\
modelName="NVIDIA \\"H100\\", 80GB",Hostname="debian",err_code="43",err_msg="GPU stopped \
processing"} 43
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-8",Hostname="debian"} 0
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-9",Hostname="debian"} 24268
# TYPE DCGM_EXP_XID_ERRORS_COUNT gauge
DCGM_FI_DEV_XID_ERRORS_ACTIVE{gpu="0",UUID="GPU-9",Hostname="debian",\
window_size_in_ms="300000",xid="42"} 1
"""


def test_reads_a_page_of_the_exporter(tmp_path):
    part = read(prometheus_xid, tmp_path, PAGE)
    failures = part.failures.set_index("code")
    assert failures["device"].to_dict() == {"43": "0000:08:00", "42": "0"}
    assert failures["clock"].tolist() == ["none", "none"]
    assert failures["node"].unique().tolist() == ["debian"]


@pytest.mark.parametrize("stamp", ["1700000015000", "1700000015.0"])
def test_samples_of_a_page_may_have_times(tmp_path, stamp):
    sample = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="a"} '
    text = f"{sample}0 1700000000000\n{sample}79 {stamp}\n"
    assert codes(read(prometheus_xid, tmp_path, text)) == [("79", 15)]


def test_the_host_may_be_that_of_the_target(tmp_path):
    text = answer(series([0, 79], Hostname="", instance="10.0.0.7:9400"))
    assert read(prometheus_xid, tmp_path, text).failures["node"].tolist() == ["10.0.0.7"]


@pytest.mark.parametrize(
    "pair",
    [[T0, "NaN"], [-T0, "79"], [T0, "-1"], [T0, "1e400"], [T0], "79", [None, None], [True, "7"]],
)
def test_samples_that_are_none_are_counted(tmp_path, pair):
    broken = series([0, 79])
    broken["values"].insert(1, pair)
    part = read(prometheus_xid, tmp_path, answer(broken))
    assert codes(part) == [("79", 15)]
    assert ("dropped", 1) in findings(part).values()


def test_a_value_that_is_no_code_is_counted(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(series([0, 9_000_000])))
    assert part.failures.empty
    assert findings(part)["values that are not an Xid"] == ("dropped", 1)


def test_other_metrics_are_set_aside(tmp_path):
    part = read(prometheus_xid, tmp_path, answer(series([0, 5], "DCGM_FI_DEV_GPU_TEMP")))
    assert part.failures.empty
    assert findings(part) == {"series of other metrics": ("skipped by design", 1)}


@pytest.mark.parametrize(
    "text",
    [
        answer(series([0, 79]))[:-40],
        '{"data": ' * 100_000,
        '{"status": "error", "error": "timeout"}',
        '{"data": {"resultType": "matrix", "result": {"a": 1}}}',
        '{"data": {"resultType": "matrix", "result": [7, {"metric": 7}, null]}}',
        'DCGM_FI_DEV_XID_ERRORS{gpu="0" 79\n',
        "DCGM_FI_DEV_XID_ERRORS{" + 'a="' * 20_000,
        b"DCGM_FI_DEV_XID_ERRORS{} \xff\xfe\n",
        'DCGM_FI_DEV_XID_ERRORS{gpu="0"} 79 1.7.0.0\n',
    ],
)
def test_damage_is_counted_and_raises_nothing(tmp_path, text):
    part = read(prometheus_xid, tmp_path, text)
    assert (part.failures["clock"] == "none").all()
    assert findings(part)


def test_recognises_its_own_and_nothing_else():
    assert recognised(prometheus_xid, answer(series([0])))
    assert recognised(prometheus_xid, PAGE)
    without_name = series([0])
    del without_name["metric"]["__name__"]
    assert recognised(prometheus_xid, answer(without_name), "exports/xid.json")
    assert not recognised(prometheus_xid, answer(series([0], "DCGM_FI_DEV_GPU_TEMP")))
    assert [name for name, text in FOREIGN.items() if recognised(prometheus_xid, text)] == []


def test_series_that_name_no_gpu_are_flagged(tmp_path):
    values = [[T0, "0"], [T0 + 15, "110"]]
    text = answer({"metric": {"Hostname": "n1"}, "values": values})
    part = read(prometheus_xid, tmp_path, text, name="xid.json")
    assert findings(part)["series that name no GPU (their values may be sums of codes)"] == (
        "suspicious",
        1,
    )
