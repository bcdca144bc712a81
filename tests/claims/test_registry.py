"""Claims are computed when run, and none can pass without comparing something."""

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest

import claims
from claims import RESULTS, Reading
from claims import registry as _registry
from workbench.errors import MissingExtraError, WorkbenchError


@pytest.fixture
def no_claims(monkeypatch):
    """Start from an empty list of claims."""
    monkeypatch.setattr(_registry, "_CLAIMS", [])


def register(compute, *, noun="things", name="a claim", needs=()):
    return claims.claim(noun=noun, name=name, source="a paper", needs=needs)(compute)


@pytest.mark.usefixtures("no_claims")
def test_every_number_compared_has_a_row_with_its_verdict():
    register(lambda: [Reading("same", 10, 10), Reading("near", 1.0, 1.1, "s", 0.2)])
    register(lambda: [Reading("off by one", 10, 11)], name="another")
    table = RESULTS.check(claims.run())
    assert table["verdict"].tolist() == ["pass", "pass", "FAIL"]
    assert table["claim"].tolist() == ["a claim", "a claim", "another"]
    assert table["what"].tolist() == ["same", "near", "off by one"]
    assert table["printed"].tolist() == [10, 1, 10]
    assert table["here"].tolist() == [10, 1.1, 11]
    assert claims.failed(table)
    assert claims.summary(table) == "2 pass, 1 FAIL, 0 absent"


@pytest.mark.parametrize(
    ("here", "verdict"), [(5, "pass"), (9, "short"), (9.5, "FAIL"), (math.nan, "FAIL")]
)
@pytest.mark.usefixtures("no_claims")
def test_a_limit_that_is_known_to_be_missed_is_never_passed_and_never_missed_by_more(here, verdict):
    register(lambda: [Reading("error", 5, here, "%", bound="at most", reached=9)])
    table = claims.run()
    assert table["verdict"].tolist() == [verdict]
    assert claims.failed(table) == (verdict == "FAIL")
    if verdict == "short":
        assert claims.summary(table) == "0 pass, 1 short, 0 FAIL, 0 absent"


def test_integers_are_compared_before_they_become_floats():
    assert not Reading("x", 2**60, 2**60 + 1).holds()


def test_a_missing_number_agrees_with_nothing():
    assert not Reading("x", math.nan, math.nan, tolerance=math.inf).holds()


@pytest.mark.usefixtures("no_claims")
def test_a_claim_that_compares_nothing_fails():
    register(list)
    (row,) = claims.run().to_dict("records")
    assert (row["verdict"], row["note"]) == ("FAIL", "the claim compared nothing")


@pytest.mark.usefixtures("no_claims")
def test_a_claim_that_breaks_fails_alone_and_says_why():
    def breaks():
        yield Reading("x", 1, 1)
        {}["span_ns"]

    register(breaks)
    register(lambda: [Reading("y", 2, 2)], name="whole")
    table = claims.run()
    assert table["claim"].tolist() == ["a claim", "a claim", "whole"]
    assert table["what"].tolist() == ["x", "", "y"]
    assert table["verdict"].tolist() == ["pass", "FAIL", "pass"]
    assert table["note"].tolist() == ["", "KeyError: 'span_ns'", ""]


@pytest.mark.usefixtures("no_claims")
def test_an_absent_data_set_says_how_to_get_it_and_fails_nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("WORKBENCH_DATA_MIRROR", raising=False)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    register(lambda _: pytest.fail("must not be called"), needs=("kineto-hta",))
    table = claims.run()
    assert table["verdict"].tolist() == ["absent"]
    assert table["note"].tolist() == ["get it with: workbench datasets fetch kineto-hta"]
    assert not claims.failed(table)
    assert "workbench datasets fetch kineto-hta" in claims.text(table)


@pytest.mark.usefixtures("no_claims")
def test_a_claim_about_an_unknown_data_set_fails():
    register(lambda _: [], needs=("kineto-dlrm",))
    (row,) = claims.run().to_dict("records")
    assert row["verdict"] == "FAIL"
    assert "did you mean 'kineto-dlrm-8rank'" in row["note"]


@pytest.mark.usefixtures("no_claims")
def test_a_claim_gets_the_folders_of_its_data_sets():
    given = []
    register(lambda folder: given.append(folder) or [Reading("x", 1, 1)], needs=("fleet-demo",))
    assert claims.run()["verdict"].tolist() == ["pass"]
    assert [folder.name for folder in given] == ["fleet-demo"]


@pytest.mark.usefixtures("no_claims")
def test_one_noun_can_be_run_alone():
    register(lambda: [Reading("x", 1, 1)], noun="power")
    register(lambda: pytest.fail("must not be called"), noun="traces")
    assert claims.run("power")["noun"].tolist() == ["power"]
    with pytest.raises(WorkbenchError, match=r"no claims about 'pwer'.*\['power', 'traces'\]"):
        claims.run("pwer")


@pytest.mark.usefixtures("no_claims")
def test_two_claims_cannot_share_a_name():
    register(list)
    with pytest.raises(ValueError, match="'things' has a claim named 'a claim' already"):
        register(list)


@pytest.mark.usefixtures("no_claims")
def test_no_claims_give_an_empty_table():
    assert len(RESULTS.check(claims.run())) == 0


@pytest.mark.usefixtures("no_claims")
def test_the_page_escapes_every_text():
    register(lambda: [Reading("<script>x</script>", 1, 2)], name="<b>bold</b>")
    register(lambda: {}["<u>key</u>"], name="<i>broken</i>")
    page = claims.html(claims.run())
    assert not re.search(r"<(script|b|i|u)>", page)
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "&lt;u&gt;key&lt;/u&gt;" in page


@pytest.mark.usefixtures("no_claims")
def test_the_page_unfolds_what_fails():
    register(lambda: [Reading("x", 1, 1), Reading("y", 2, 2)], name="right")
    register(lambda: [Reading("x", 1, 2)], name="wrong")
    page = claims.html(claims.run())
    assert "<strong>2 pass, 1 FAIL, 0 absent</strong>" in page
    assert "<details><summary>right - 2 pass</summary>" in page
    assert "<details open><summary>wrong - 1 FAIL</summary>" in page


@pytest.mark.usefixtures("no_claims")
def test_text_keeps_every_digit_and_names_units_and_sources():
    register(
        lambda: [
            Reading("w", 660_551_005, 660_551_005),
            Reading("r", 0.5, 0.25, "", 0.3, source="another paper"),
        ]
    )
    blocks = [block.splitlines() for block in claims.text(claims.run()).split("\n\n")]
    assert blocks[0][:2] == ["things: a claim - 1 pass", "source: a paper"]
    assert blocks[0][2].split() == ["what", "printed", "here", "tolerance", "verdict"]
    assert blocks[0][3].split() == [
        "w",
        "660,551,005",
        "ns",
        "660,551,005",
        "ns",
        "0",
        "ns",
        "pass",
    ]
    assert blocks[1][1] == "source: another paper"
    assert blocks[1][3].split() == ["r", "0.5", "0.25", "0.3", "pass"]
    assert blocks[-1] == ["2 pass, 0 FAIL, 0 absent"]


@pytest.mark.usefixtures("no_claims")
@pytest.mark.parametrize(
    ("bound", "here", "verdict"),
    [
        *[("at least", 5.0, "pass"), ("at least", 19.0, "pass"), ("at least", 4.9, "FAIL")],
        *[("at most", 5.0, "pass"), ("at most", 0.1, "pass"), ("at most", 5.1, "FAIL")],
        *[("at least", math.nan, "FAIL"), ("at most", math.nan, "FAIL")],
    ],
)
def test_a_limit_is_kept_or_not(bound, here, verdict):
    register(lambda: [Reading("times as robust", 5.0, here, "ratio", bound=bound)])
    table = claims.run()
    assert table["what"].tolist() == [f"times as robust, {bound}"]
    assert table["verdict"].tolist() == [verdict]


@pytest.mark.usefixtures("no_claims")
def test_a_claim_whose_package_is_absent_says_how_to_get_it():
    def compute():
        message = "needs PyTorch; pip install it"
        raise MissingExtraError(message)

    register(compute)
    table = claims.run()
    assert table["verdict"].tolist() == ["absent"]
    assert table["note"].tolist() == ["needs PyTorch; pip install it"]
    assert not claims.failed(table)


def test_every_module_of_claims_is_registered():
    folder = Path(claims.__file__).parent
    modules = {f"claims.{path.stem}" for path in folder.glob("[a-z]*.py")}
    listed = claims.claims()
    assert {claim.compute.__module__ for claim in listed} == modules - {_registry.__name__}
    homes = {(claim.noun, claim.compute.__module__) for claim in listed}
    assert len(homes) == len({noun for noun, _ in homes})


def test_every_claim_of_the_workbench_names_known_data_sets():
    from workbench import datasets

    for claim in claims.claims():
        assert set(claim.needs) <= set(datasets.names()), claim.name
        assert claim.source


def test_the_table_survives_json():
    frame = RESULTS.empty()
    assert json.loads(frame.to_json(orient="records")) == []
    assert isinstance(frame, pd.DataFrame)
