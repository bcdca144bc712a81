"""Power in pages of metrics. The samples are made, in the exposition formats of Prometheus and
OpenMetrics as dcgm-exporter 3.3, Kepler, prometheus-community/ipmi_exporter and AMD's device
metrics exporter serve them."""

import pytest

from tests.load.power.power_texts import T0, S, count_of, read, readings, recognised
from workbench.errors import LoadError
from workbench.load._power.formats import prometheus as prometheus_power
from workbench.load._power.part import NoPowerError

GPU = (
    'gpu="{0}",UUID="GPU-7099682b-a20d-2bcc-74ab-b9060454d81{0}",pci_bus_id="00000000:0F:00.0",'
    'device="nvidia{0}",modelName="NVIDIA A100-SXM4-40GB",Hostname="node-b",pod="train-0"'
)
PAGE = (
    "# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).\n"
    "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    f"DCGM_FI_DEV_SM_CLOCK{{{GPU.format(0)}}} 1410\n"
    "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n"
    "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
    f"DCGM_FI_DEV_POWER_USAGE{{{GPU.format(0)}}} 312.4\n"
    f"DCGM_FI_DEV_POWER_USAGE{{{GPU.format(1)}}} 81.2\n"
)


def power_line(watts, time="", **labels):
    names = {"gpu": "0", "Hostname": "n1"} | labels
    text = ",".join(f'{k}="{v}"' for k, v in names.items())
    return f"DCGM_FI_DEV_POWER_USAGE{{{text}}} {watts}{time and f' {time}'}\n"


def test_a_page_is_recognised_by_its_comments_or_by_its_names():
    assert recognised(prometheus_power, PAGE)
    assert recognised(prometheus_power, power_line(1))
    assert not recognised(prometheus_power, "timestamp, power.draw [W]\n2024, 1 W\n")
    assert not recognised(prometheus_power, "# a comment\nx y\n")


def test_one_page_without_times_stands_at_0_of_an_own_clock(tmp_path):
    part = read(prometheus_power, tmp_path, PAGE)
    assert part.readings["time_ns"].tolist() == [0, 0]
    assert part.readings["power_w"].tolist() == [312.4, 81.2]
    assert {each["clock"] for each in part.entities.values()} == {"own"}
    assert part.states["clock_mhz"].tolist() == [1410]
    assert count_of(part, "at 0 of an own clock") == 2


def test_pages_without_times_that_follow_each_other_ask_for_the_time(tmp_path):
    with pytest.raises(LoadError, match=r"line 13: a second reading of 'node-b/gpu0'.*query_range"):
        read(prometheus_power, tmp_path, PAGE * 2)


def test_a_steady_pace_that_the_caller_knows_gives_pages_a_clock(tmp_path):
    part = read(prometheus_power, tmp_path, PAGE * 3, period_s=0.5)
    first = part.readings[part.readings["entity"] == "node-b/gpu0"]
    assert first["time_ns"].tolist() == [0, S // 2, S]
    assert part.entities["node-b/gpu0"]["assumed"] == "period_s=0.5"


def test_a_thing_that_is_in_fewer_pages_than_others_is_flagged(tmp_path):
    text = power_line(1) + power_line(2, gpu="1") + power_line(3)
    part = read(prometheus_power, tmp_path, text, period_s=1)
    assert count_of(part, "fewer readings than others") == 1


@pytest.mark.parametrize("stamp", ["2023-11-14T22:13:20Z", "# 2023-11-14T22:13:20Z", str(T0)])
def test_a_line_with_the_time_before_a_page_is_its_time(tmp_path, stamp):
    later = stamp.replace("22:13:20", "22:13:35").replace(str(T0), str(T0 + 15))
    part = read(prometheus_power, tmp_path, f"{stamp}\n{PAGE}{later}\n{PAGE}")
    assert readings(part)[:2] == [("node-b/gpu0", 0, 312.4), ("node-b/gpu0", 15, 312.4)]
    assert part.entities["node-b/gpu0"]["clock"] == "epoch"


def test_a_stamp_holds_for_one_page_only(tmp_path):
    text = "2023-11-14T22:13:20Z\n" + power_line(1) + power_line(2)
    part = read(prometheus_power, tmp_path, text)
    assert readings(part) == [("n1/gpu0", 0, 1)]
    assert count_of(part, "without a time beside others") == 1


def test_times_are_in_milliseconds_or_in_seconds(tmp_path):
    text = power_line(1, T0 * 1000 + 781) + power_line(2, f"{T0 + 15}.5") + "# EOF\n"
    assert readings(read(prometheus_power, tmp_path, text)) == [
        ("n1/gpu0", 0.781, 1),
        ("n1/gpu0", 15.5, 2),
    ]


def test_exemplars_are_no_part_of_a_sample(tmp_path):
    text = power_line(1, f"{T0}.5").rstrip() + ' # {trace_id="1"} 0.67 1.5\n'
    assert readings(read(prometheus_power, tmp_path, text)) == [("n1/gpu0", 0.5, 1)]


def test_labels_may_hold_quotes_braces_and_line_ends(tmp_path):
    text = power_line(5, Hostname=r"a \"b\" {c} \\ \n d, e=")
    part = read(prometheus_power, tmp_path, text)
    assert list(part.entities) == ['a "b" {c} \\ d, e=/gpu0']


def test_markup_in_labels_stays_text(tmp_path):
    part = read(prometheus_power, tmp_path, power_line(5, Hostname="<script>x</script>"))
    assert list(part.entities) == ["<script>x</script>/gpu0"]


def test_endless_and_unprintable_labels_are_shortened(tmp_path):
    part = read(prometheus_power, tmp_path, power_line(5, Hostname="n\x07" + "x" * 5000))
    (name,) = part.entities
    assert len(name) < 250
    assert name.isprintable()


def test_ipmi_and_kepler_pages_name_their_nodes(tmp_path):
    text = (
        "# TYPE ipmi_dcmi_power_consumption_watts gauge\n"
        "ipmi_dcmi_power_consumption_watts 297\n"
        'kepler_node_cpu_joules_total{zone="package",node_name="w1"} 1250\n'
        'kepler_node_cpu_joules_total{zone="core",node_name="w1"} 900\n'
    )
    part = read(prometheus_power, tmp_path, text, node="n9")
    assert part.readings["entity"].tolist() == ["n9"]
    assert part.entities["n9"]["scope"] == "node_ac"
    assert part.counters["entity"].tolist() == ["w1/package"]
    assert part.counters["energy_j"].tolist() == [1250]


def test_amd_counts_energy_in_microjoules(tmp_path):
    text = (
        "# TYPE gpu_package_power gauge\n"
        'gpu_package_power{gpu_id="0",card_model="Instinct MI300X",hostname="node-a"} 748\n'
        'gpu_energy_consumed{gpu_id="0",card_model="Instinct MI300X",hostname="node-a"} 1.4e14\n'
    )
    part = read(prometheus_power, tmp_path, text)
    assert readings(part)[0][2] == 748
    assert part.counters["energy_j"].tolist() == [1.4e8]
    assert part.entities["node-a/gpu0"]["model"] == "Instinct MI300X"


def test_lines_that_are_no_sample_are_left_out_with_their_place(tmp_path):
    part = read(prometheus_power, tmp_path, PAGE + "DCGM_FI_DEV_POWER_USAGE{gpu= oops\nx y z w\n")
    assert len(part.readings) == 2
    frame = part.findings.frame().set_index("what")
    assert frame.loc["lines that are not samples", "count"] == 2
    assert frame.loc["lines that are not samples", "where"] == "line 8"


def test_a_last_line_without_an_end_is_left_out_for_its_number_may_be_cut(tmp_path):
    part = read(prometheus_power, tmp_path, PAGE[:-1])
    assert [watts for *_, watts in readings(part)] == [312.4]
    assert count_of(part, "a last line without a line end") == 1
    assert count_of(read(prometheus_power, tmp_path, PAGE), "without a line end") == 0


@pytest.mark.parametrize("time", ["-5", "0", "99999999999999999999", "1.2.3"])
def test_a_time_that_is_none_is_no_time(tmp_path, time):
    part = read(prometheus_power, tmp_path, power_line(1, T0 * 1000) + power_line(2, time))
    assert readings(part) == [("n1/gpu0", 0, 1)]
    assert count_of(part, "not times") + count_of(part, "not samples") >= 1


def test_a_page_without_power_says_so(tmp_path):
    text = "# TYPE up gauge\nup 1\n"
    with pytest.raises(NoPowerError, match="holds no reading of power"):
        read(prometheus_power, tmp_path, text)


def test_a_cut_page_gives_the_lines_before_the_cut(tmp_path):
    text = "".join(power_line(100 + n, (T0 + n) * 1000) for n in range(20))
    lines = text.splitlines(keepends=True)
    for cut in range(len(lines[0]), len(text), 17):
        found = readings(read(prometheus_power, tmp_path, text[:cut]))
        whole = text[:cut].count("\n")
        assert [(at, watts) for _, at, watts in found] == [(n, 100 + n) for n in range(whole)]
