"""Kinds of faults: what dumps show of each, and that nothing invisible is said to be absent."""

import re

import pandas as pd
import pytest

from workbench import analyze, datasets, load
from workbench.errors import WorkbenchError
from workbench.tables import FLIGHT_SUSPECTS

KINDS = pd.read_csv(datasets.path("published") / "fault_kinds.csv", keep_default_na=False)


def test_every_kind_is_listed_once_and_its_reasons_are_those_of_suspects():
    assert KINDS["kind"].is_unique
    assert set(KINDS["scope"]) == {"rank", "job", "slow"}
    known = set(re.split(r", | or ", FLIGHT_SUSPECTS.columns["reason"].meaning))
    named = {reason for cell in KINDS["reasons"] for reason in cell.split(";") if reason}
    assert named <= known
    # What cannot be seen has no reason and another source; what can be seen has a reason.
    assert KINDS["reasons"].eq("").equals(KINDS["visible"].eq("no"))
    assert KINDS.loc[KINDS["visible"] != "yes", "needs"].ne("").all()


def test_without_dumps_it_is_a_list():
    table = analyze.fault_checklist()
    assert table["kind"].tolist() == KINDS["kind"].tolist()
    assert set(table["verdict"]) == {"not asked"}


def test_the_bundled_hang_is_a_rank_that_stopped_outside_the_library(hang_demo):
    table = analyze.fault_checklist(load.flight_recorder(hang_demo, progress=False))
    verdicts = table.set_index("kind")["verdict"]
    truth = pd.read_csv(hang_demo / "truth.csv")
    assert verdicts["stuck outside the library"] == "found"
    assert verdicts["rank did not join"] == "possible"
    assert verdicts["metadata mismatch"] == "not found"
    ranks = set(table.loc[table["verdict"] == "found", "ranks"])
    assert ranks == {str(truth["rank"].iloc[0])}
    assert (table.loc[table["visible"] == "no", "verdict"] == "cannot be seen").all()


def test_a_table_instead_of_a_recording_is_refused(hang_demo):
    recording = load.flight_recorder(hang_demo, progress=False)
    with pytest.raises(WorkbenchError, match="a FlightRecording is needed"):
        analyze.fault_checklist(recording.entries)
