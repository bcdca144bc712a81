"""Every claim of the workbench holds on the real data, and would notice if it did not."""

import os

import pytest

import claims
from claims import traces
from workbench.errors import MissingExtraError

CLAIMS = claims.claims()


@pytest.fixture
def folders(real_data):
    """Give the folders that a claim needs."""
    return lambda claim: [real_data(name) for name in claim.needs]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.noun}-{claim.name}")
def test_claim_holds(claim, folders, absent, record_property):
    try:
        readings = list(claim.compute(*folders(claim)))
    except MissingExtraError as error:
        absent(str(error))
    record_property("claims", [reading.verdict() for reading in readings])
    assert readings
    # What is known to fall short of a target may not fall further, nor what meets it be excused.
    assert [reading for reading in readings if reading.verdict() == "FAIL"] == []
    assert [each for each in readings if each.reached is not None and each.holds()] == []


@pytest.mark.oracle
def test_a_nanosecond_more_would_be_noticed(folders, monkeypatch):
    (claim,) = [each for each in CLAIMS if each.name == "DLRM on 8 ranks"]
    printed = traces.published
    changed = {"trace_dlrm_blame": ("wait_us", "35552", "35552.001")}

    def misprinted(name):
        column, before, after = changed.get(name, ("source", "?", "?"))
        return [
            {**row, column: after if row[column] == before else row[column]}
            for row in printed(name)
        ]

    monkeypatch.setattr(traces, "published", misprinted)
    wrong = [reading for reading in claim.compute(*folders(claim)) if not reading.holds()]
    assert [(reading.what, reading.printed - reading.here) for reading in wrong] == [
        ("blamed on rank 7, wait", 1)
    ]


def test_printed_times_become_whole_nanoseconds():
    from claims.registry import printed_ns

    row = {"span_us": "660551.005", "overlap_us": ""}
    assert list(printed_ns(row, "span", "overlap")) == [("span", 660_551_005)]
    with pytest.raises(ValueError, match="not a whole number of nanoseconds"):
        list(printed_ns({"span_us": "0.0001"}, "span"))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b"\x08\xd8\x01\x12\x03abc\x18\x04", "COMP_NODE"),
        (b"\x12\x02\x18\x05\x18\x07", "COMM_COLL_NODE"),
        (b"\x08\x01", "INVALID_NODE"),
        (b"\x09\x18\x06\x00\x00\x00\x00\x00\x00\x18\x05", "COMM_SEND_NODE"),
    ],
    ids=["plain", "bytes that look like a type", "no type", "behind a fixed 64-bit field"],
)
def test_node_types_are_read_from_the_wire_format(message, kind):
    assert traces._node_type(message) == kind


def test_length_delimited_messages_are_cut_at_their_lengths():
    long = b"x" * 300
    content = b"\x02ab" + b"\xac\x02" + long + b"\x00"
    assert list(traces._messages(content)) == [b"ab", long, b""]


@pytest.mark.slow
def test_under_continuous_integration_no_claim_is_absent():
    absent = [claim.name for claim in CLAIMS if not all(map(_at_hand, claim.needs))]
    assert absent == [] or not os.environ.get("CI")


def _at_hand(name):
    from workbench import datasets

    return datasets.describe().set_index("dataset")["place"][name] != "not available"
