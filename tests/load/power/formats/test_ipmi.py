"""Power readings of IPMI. The samples are made, in the forms that ipmitool 1.8.18 and 1.8.19,
FreeIPMI's ipmi-dcmi and ipmiutil print."""

import pytest

from tests.load.power.power_texts import T0, S, count_of, read, readings, recognised
from workbench.errors import LoadError
from workbench.load._power.formats import ipmi
from workbench.load._power.part import NoPowerError


def block(watts=297, stamp="Tue Nov 14 22:13:20 2023", average=290, state="activated"):
    return (
        f"\n    Instantaneous power reading:                   {watts} Watts\n"
        "    Minimum during sampling period:                284 Watts\n"
        "    Maximum during sampling period:                317 Watts\n"
        f"    Average power reading over sample period:      {average} Watts\n"
        f"    IPMI timestamp:                           {stamp}\n"
        "    Sampling period:                          00000001 Seconds.\n"
        f"    Power reading state is:                   {state}\n\n"
    )


def freeipmi(watts=332, host="", state="Active"):
    front = f"{host}: " if host else ""
    return "".join(
        front + line
        for line in (
            f"Current Power                        : {watts} Watts\n",
            "Minimum Power over sampling duration : 68 watts\n",
            "Maximum Power over sampling duration : 504 watts\n",
            "Average Power over sampling duration : 348 watts\n",
            "Time Stamp                           : 11/14/2023 - 22:13:20\n",
            "Statistics reporting time period     : 2685198000 milliseconds\n",
            f"Power Measurement                    : {state}\n",
        )
    )


IPMIUTIL = """ipmiutil dcmi ver 3.17
-- BMC version 6.10, IPMI version 2.0
Current Power:                   332 Watts
Min Power over sample duration:  68 Watts
Max Power over sample duration:  504 Watts
Avg Power over sample duration:  348 Watts
Timestamp:                       Tue Nov 14 22:13:20 2023

Sampling period:                 1000 ms
Power reading state is:          active
Power Limit:       896 Watts (inactive)
ipmiutil dcmi, completed successfully
"""


@pytest.mark.parametrize("text", [block(), freeipmi(), freeipmi(host="n1"), IPMIUTIL])
def test_every_tool_is_recognised_and_read(tmp_path, text):
    assert recognised(ipmi, text)
    ((name, at, watts),) = readings(read(ipmi, tmp_path, text, tz="UTC", node="n1"))
    assert (name, at) == ("n1", 0)
    assert watts in (297, 332)


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "power.draw [W]\n300 W\n", "Temp | 30 degrees C | ok"]
)
def test_what_is_no_power_reading_is_not_recognised(text):
    assert not recognised(ipmi, text)


def test_blocks_follow_each_other(tmp_path):
    text = block(297) + block(301, "Tue Nov 14 22:13:25 2023")
    part = read(ipmi, tmp_path, text, tz="UTC")
    assert readings(part) == [("node", 0, 297), ("node", 5, 301)]
    facts = part.entities["node"]
    assert (facts["scope"], facts["method"], facts["assumed"]) == ("node_ac", "instant", "tz=UTC")


def test_where_it_is_metered_is_an_assumption_that_the_caller_can_replace(tmp_path):
    assert count_of(read(ipmi, tmp_path, block(), tz="UTC"), "taken as the input of the node") == 1
    told = read(ipmi, tmp_path, block(), tz="UTC", scope="node_dc")
    assert told.entities["node"]["scope"] == "node_dc"
    assert told.entities["node"]["assumed"] == "tz=UTC, scope=node_dc"
    assert count_of(told, "taken as the input of the node") == 0


def test_the_average_is_taken_on_demand(tmp_path):
    part = read(ipmi, tmp_path, block(297, average=290), tz="UTC", reading="average")
    assert readings(part)[0][2] == 290
    assert part.entities["node"]["method"] == "average"


def test_a_controller_that_does_not_measure_gives_a_missing_reading(tmp_path):
    for text in (block(234, state="deactivated"), freeipmi(234, state="Not Available")):
        part = read(ipmi, tmp_path, text, tz="UTC")
        assert readings(part) == [("node", 0, None)]
        assert count_of(part, "does not measure") == 1


def test_the_stamp_of_a_newer_version_may_share_its_line(tmp_path):
    stamp = (
        "11/14/2023 05:13:20 PM EST    Sampling period:                          00000005 Seconds."
    )
    part = read(ipmi, tmp_path, block(stamp=stamp), tz="America/New_York")
    assert readings(part) == [("node", 0, 297)]


def test_a_local_stamp_asks_for_the_zone(tmp_path):
    with pytest.raises(LoadError, match=r"line 6: 'Tue Nov 14 22:13:20 2023' has no time zone"):
        read(ipmi, tmp_path, block())


def test_hosts_in_front_of_lines_are_told_apart_though_they_interleave(tmp_path):
    one, two = (freeipmi(w, host=h).splitlines() for h, w in (("n1", 332), ("n2", 400)))
    text = "\n".join(line for pair in zip(one, two, strict=True) for line in pair) + "\n"
    assert sorted(readings(read(ipmi, tmp_path, text, tz="UTC"))) == [
        ("n1", 0, 332),
        ("n2", 0, 400),
    ]


def test_a_clock_that_was_never_set_takes_the_line_before_it(tmp_path):
    unset = block(stamp="Thu Jan  1 00:00:00 1970")
    text = f"2023-11-14T22:13:20Z\n{unset}2023-11-14T22:13:25Z\n{unset}"
    part = read(ipmi, tmp_path, text, tz="UTC")
    assert [at for _, at, _ in readings(part)] == [0, 5]
    assert count_of(part, "never set") == 2


def test_readings_without_any_time_ask_for_it(tmp_path):
    unset = block(stamp="Thu Jan  1 00:00:00 1970")
    assert read(ipmi, tmp_path, unset, tz="UTC").entities["node"]["clock"] == "own"
    with pytest.raises(LoadError, match=r"a second reading of 'node'.*date -u"):
        read(ipmi, tmp_path, unset * 2, tz="UTC")
    part = read(ipmi, tmp_path, unset * 3, tz="UTC", period_s=2)
    assert part.readings["time_ns"].tolist() == [0, 2 * S, 4 * S]


def test_sensors_in_watts_are_things_of_their_own(tmp_path):
    text = (
        f"{T0}\n"
        "Fan Power        | B0h | ok  | 215.15 | 44 Watts\n"
        "PSU1_Input       | 210.000    | Watts      | ok    | na        | na\n"
        "PS2_Input        | na         | Watts      | na    | na        | na\n"
        "Pwr Consumption  | 308 Watts         | ok\n"
        "Inlet Temp       | 30 degrees C      | ok\n"
        f"{T0 + 5}\n"
        "Pwr Consumption  | 310 Watts         | ok\n"
    )
    assert recognised(ipmi, text)
    part = read(ipmi, tmp_path, text, node="n1")
    assert readings(part) == [
        ("n1/Fan Power", 0, 44),
        ("n1/PSU1_Input", 0, 210),
        ("n1/PS2_Input", 0, None),
        ("n1/Pwr Consumption", 0, 308),
        ("n1/Pwr Consumption", 5, 310),
    ]
    scopes = {name: facts["scope"] for name, facts in part.entities.items()}
    assert scopes["n1/Pwr Consumption"] == "node_ac"
    assert scopes["n1/PSU1_Input"] == "unknown"


def test_a_reading_that_is_no_number_is_missing_and_counted(tmp_path):
    part = read(ipmi, tmp_path, block("Not available"), tz="UTC", reading="instant")
    assert readings(part) == [("node", 0, None)]
    assert count_of(part, "not numbers of watts") == 1


def test_a_cut_file_loses_no_more_than_its_last_block(tmp_path):
    stamps = [f"Tue Nov 14 22:13:{20 + n} 2023" for n in range(6)]
    text = "".join(block(300 + n, stamp) for n, stamp in enumerate(stamps))
    each = len(block(300, stamps[0]))
    for cut in range(each, len(text), 37):
        part = read(ipmi, tmp_path, text[:cut], tz="UTC")
        whole = cut // each
        timed = [row for row in readings(part) if row[1] >= 0]
        assert [watts for *_, watts in timed[:whole]] == [300 + n for n in range(whole)]
        assert len(timed) <= whole + 1


def test_a_file_without_a_reading_says_so(tmp_path):
    with pytest.raises(NoPowerError, match="holds no reading of power"):
        read(ipmi, tmp_path, "Get Device ID command failed\n")
