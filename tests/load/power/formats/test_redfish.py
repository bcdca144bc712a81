"""Power metrics of Redfish. The samples are made, in the form of the resources of the schemas
(EnvironmentMetrics 1.3, Power 1.7, PowerSupplyMetrics 1.1, Sensor 1.8, MetricReport 1.5)."""

import json

import pytest

from tests.load.power.power_texts import T0, S, count_of, read, readings, recognised
from workbench.errors import LoadError
from workbench.load._power.formats import redfish
from workbench.load._power.part import NoPowerError

STAMP = "2023-11-14T22:13:20Z"


def environment(watts=374, path="/redfish/v1/Chassis/1U/EnvironmentMetrics", **more):
    return {
        "@odata.type": "#EnvironmentMetrics.v1_3_1.EnvironmentMetrics",
        "@odata.id": path,
        "Id": "EnvironmentMetrics",
        "Name": "Chassis Environment Metrics",
        "PowerWatts": {"Reading": watts, "DataSourceUri": "/redfish/v1/Chassis/1U/Sensors/Total"},
        "TemperatureCelsius": {"Reading": 39},
    } | more


def power(consumed=360, average=349, **more):
    control = {
        "@odata.id": "/redfish/v1/Chassis/Self/Power#/PowerControl/0",
        "MemberId": "0",
        "Name": "Chassis Power Control",
        "PowerConsumedWatts": consumed,
        "PowerMetrics": {"IntervalInMin": 1, "MinConsumedWatts": 186, "MaxConsumedWatts": 495},
        "PowerLimit": {"LimitInWatts": 1000, "LimitException": "NoAction"},
    }
    control["PowerMetrics"] |= {} if average is None else {"AverageConsumedWatts": average}
    return {"@odata.id": "/redfish/v1/Chassis/Self/Power", "PowerControl": [control | more]}


def report(*values):
    return {
        "@odata.type": "#MetricReport.v1_3_0.MetricReport",
        "@odata.id": "/redfish/v1/TelemetryService/MetricReports/Power",
        "Id": "Power",
        "MetricValues": [
            dict(zip(("MetricProperty", "MetricValue", "Timestamp"), each, strict=True))
            for each in values
        ],
    }


def at(second, document, node="n1"):
    return {"time": STAMP.replace(":20Z", f":{20 + second}Z"), "node": node, "data": document}


def loaded(tmp_path, *documents, **given):
    text = "\n".join(json.dumps(each) for each in documents) + "\n"
    assert recognised(redfish, text)
    return read(redfish, tmp_path, text, **given)


def test_documents_with_a_time_beside_them_are_a_series(tmp_path):
    part = loaded(tmp_path, *(at(n, environment(300 + n)) for n in range(3)))
    assert readings(part) == [("n1/1U", n, 300 + n) for n in range(3)]
    facts = part.entities["n1/1U"]
    assert (facts["scope"], facts["node"], facts["device"]) == ("node_ac", "n1", "1U")


def test_a_list_of_documents_and_one_over_many_lines_are_the_same(tmp_path):
    documents = [at(n, environment(300 + n)) for n in range(3)]
    lines = loaded(tmp_path, *documents)
    assert readings(loaded(tmp_path, documents)) == readings(lines)
    loose = read(redfish, tmp_path, json.dumps(documents, indent=2))
    assert readings(loose) == readings(lines)


@pytest.mark.parametrize(
    "more",
    [
        {"DateTime": STAMP},
        {"Oem": {"Vendor": {"DateTime": STAMP}}},
        {"Timestamp": "2023-11-14T23:13:20+01:00"},
        {"ts": T0},
    ],
)
def test_the_time_of_a_document_is_found_where_its_vendor_put_it(tmp_path, more):
    assert readings(loaded(tmp_path, environment(**more))) == [("1U", 0, 374)]


def test_a_document_without_time_stands_at_0_of_an_own_clock(tmp_path):
    part = loaded(tmp_path, environment(), node="n1")
    assert part.readings["time_ns"].tolist() == [0]
    assert part.entities["n1/1U"]["clock"] == "own"


def test_documents_of_one_thing_without_time_ask_for_it(tmp_path):
    with pytest.raises(LoadError, match=r"line 2: a second reading of '1U'.*Keep the time"):
        loaded(tmp_path, environment(), environment())
    part = loaded(tmp_path, environment(), environment(), period_s=5)
    assert part.readings["time_ns"].tolist() == [0, 5 * S]


def test_energy_is_in_joules(tmp_path):
    for more in ({"EnergykWh": {"Reading": 2}}, {"EnergyJoules": {"Reading": 7.2e6}}):
        part = loaded(tmp_path, at(0, environment(**more)))
        assert part.counters["energy_j"].tolist() == [7.2e6]


def test_a_limit_is_a_state_and_a_fact(tmp_path):
    part = loaded(tmp_path, at(0, environment(PowerLimitWatts={"SetPoint": 500})))
    assert part.states["limit_w"].tolist() == [500]
    assert part.entities["n1/1U"]["limit_w"] == 500
    assert loaded(tmp_path, at(0, power())).entities["n1/Self"]["limit_w"] == 1000


def test_the_older_resource_gives_the_moment_or_the_average(tmp_path):
    assert readings(loaded(tmp_path, at(0, power()))) == [("n1/Self", 0, 360)]
    part = loaded(tmp_path, at(0, power()), reading="average")
    assert readings(part) == [("n1/Self", 0, 349)]
    assert part.entities["n1/Self"]["method"] == "average"


def test_an_average_stands_in_where_there_is_no_moment_and_it_is_said(tmp_path):
    part = loaded(tmp_path, at(0, power(consumed=None)))
    assert readings(part) == [("n1/Self", 0, 349)]
    assert count_of(part, "no momentary reading") == 1


def test_a_chassis_without_a_reading_is_missing(tmp_path):
    part = loaded(tmp_path, at(0, power(consumed=None, average=None)))
    assert readings(part) == [("n1/Self", 0, None)]
    assert count_of(part, "not numbers") == 1


def test_supplies_are_things_of_their_own_by_their_input(tmp_path):
    supply = {
        "@odata.id": "/redfish/v1/Chassis/Self/Power#/PowerSupplies/1",
        "PowerInputWatts": 160,
        "PowerOutputWatts": 150,
    }
    newer = {
        "@odata.id": "/redfish/v1/Chassis/1U/PowerSubsystem/PowerSupplies/Bay1/Metrics",
        "InputPowerWatts": {"Reading": 170},
        "OutputPowerWatts": {"Reading": 155},
    }
    part = loaded(tmp_path, at(0, power() | {"PowerSupplies": [supply]}), at(1, newer))
    assert readings(part)[1:] == [("n1/Self-PSU1", 0, 160), ("n1/1U-Bay1", 1, 170)]
    assert part.entities["n1/Self-PSU1"]["scope"] == "unknown"


@pytest.mark.parametrize(
    ("path", "part", "scope"),
    [
        ("/redfish/v1/Chassis/HGX_GPU_SXM_1/EnvironmentMetrics", "HGX_GPU_SXM_1", "gpu"),
        ("/redfish/v1/Systems/S/Processors/GPU_0/EnvironmentMetrics", "S-GPU_0", "gpu"),
        ("/redfish/v1/Systems/S/Processors/CPU_1/EnvironmentMetrics", "S-CPU_1", "cpu"),
        ("/redfish/v1/Chassis/HGX_Chassis_0/EnvironmentMetrics", "HGX_Chassis_0", "unknown"),
        ("/redfish/v1/PowerEquipment/RackPDUs/1/Metrics", "RackPDUs-1", "pdu"),
        ("/redfish/v1/Chassis/1/EnvironmentMetrics", "1", "node_ac"),
    ],
)
def test_the_path_tells_what_is_metered(tmp_path, path, part, scope):
    found = loaded(tmp_path, at(0, environment(path=path))).entities
    assert {name: facts["scope"] for name, facts in found.items()} == {f"n1/{part}": scope}


def test_where_a_chassis_is_metered_can_be_told(tmp_path):
    part = loaded(tmp_path, at(0, environment()), scope="node_dc")
    assert part.entities["n1/1U"]["scope"] == "node_dc"
    assert part.entities["n1/1U"]["assumed"] == "scope=node_dc"
    assert count_of(part, "taken as its input") == 0
    assert count_of(loaded(tmp_path, at(0, environment())), "taken as its input") == 1


def test_a_report_gives_every_value_its_time_and_sets_other_metrics_aside(tmp_path):
    gpu = "/redfish/v1/Chassis/HGX_GPU_SXM_1/Sensors/HGX_GPU_SXM_1_"
    part = loaded(
        tmp_path,
        report(
            ("/redfish/v1/Chassis/1/Power#/PowerControl/0/PowerConsumedWatts", "100", STAMP),
            (f"{gpu}Power_0", "612.5", "2023-11-15T00:13:25+02:00"),
            (f"{gpu}Energy_0", "9.5", STAMP),
            (f"{gpu}TEMP_0", "48", STAMP),
            ("/redfish/v1/Chassis/1/PowerSupplies/0#/PowerState", "On", STAMP),
        ),
        node="n1",
    )
    assert readings(part) == [("n1/1", 0, 100), ("n1/HGX_GPU_SXM_1_Power_0", 5, 612.5)]
    assert part.counters["energy_j"].tolist() == [9.5]
    assert count_of(part, "not power or energy") == 2


def test_a_sensor_in_watts_is_a_reading(tmp_path):
    sensor = {
        "@odata.id": "/redfish/v1/Chassis/1U/Sensors/CPU1Power",
        "@odata.type": "#Sensor.v1_8_0.Sensor",
        "Reading": 12.87,
        "ReadingUnits": "W",
        "ReadingType": "Power",
        "ReadingTime": STAMP,
    }
    part = loaded(tmp_path, sensor)
    assert readings(part) == [("1U-CPU1Power", 0, 12.87)]
    assert part.entities["1U-CPU1Power"]["scope"] == "cpu"


def test_an_answer_that_is_an_error_says_so(tmp_path):
    error = {"error": {"code": "Base.1.8.GeneralError", "message": "no session"}}
    part = loaded(tmp_path, at(0, environment()), error)
    assert count_of(part, "an answer that is an error: no session") == 1
    with pytest.raises(NoPowerError, match="no session"):
        read(redfish, tmp_path, json.dumps(error))


def test_a_cut_file_gives_every_whole_line(tmp_path):
    text = "".join(json.dumps(at(n, environment(300 + n))) + "\n" for n in range(6))
    first = text.index("\n") + 1
    for cut in range(first, len(text), 67):
        part = read(redfish, tmp_path, text[:cut])
        whole = text[:cut].count("\n")
        assert [watts for *_, watts in readings(part)][:whole] == [300 + n for n in range(whole)]
        assert len(readings(part)) <= whole + 1


@pytest.mark.parametrize("text", ['{"a": 1}', "[]", "PowerWatts", '{"ReadingUnits": "W"}', "", "{"])
def test_what_is_no_power_of_redfish_is_not_recognised(text):
    assert not recognised(redfish, text)
