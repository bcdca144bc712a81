"""The quality of findings is counted as said, and the rules meet their goals."""

import pandas as pd
import pytest

import claims
from claims import FINDING_CASES, FINDING_QUALITY, findings
from data import make
from workbench import analyze


def cases(*rows):
    usual = {"rule": "straggler", "seed": 1, "others": "", "elsewhere_count": 0, "cost": None,
             "true_cost": None, "false_count": 0, "is_found": False, "loss_share": 0.0}  # fmt: skip
    table = pd.DataFrame([usual | row for row in rows], columns=list(FINDING_CASES.columns))
    return FINDING_CASES.cast(table)


def test_recall_counts_losses_from_the_limit_on_and_errors_of_what_was_found():
    table = claims.finding_quality(
        cases(
            {"trouble": "slow rank", "loss_share": 0.3, "is_found": True, "cost": 9.0,
             "true_cost": 10.0},
            {"trouble": "slow rank", "loss_share": 0.1, "is_found": True, "cost": 13.0,
             "true_cost": 10.0},
            {"trouble": "slow rank", "loss_share": 0.05, "elsewhere_count": 2},
            {"trouble": "slow rank", "loss_share": 0.01},
            {"trouble": "none", "false_count": 1},
            {"trouble": "none"},
        )
    )  # fmt: skip
    row, healthy = FINDING_QUALITY.check(table).to_dict("records")
    assert (row["case_count"], row["found_count"]) == (3, 2)
    assert row["recall_share"] == pytest.approx(2 / 3)
    assert row["cost_error_ratio"] == pytest.approx(0.2)
    assert row["elsewhere_ratio"] == pytest.approx(0.5)
    assert row["smallest_share"] == pytest.approx(0.1)
    assert row["verdict"] == "MISSED"
    assert (healthy["false_ratio"], healthy["verdict"]) == (0.5, "MISSED")


def test_a_rule_that_meets_its_goals_is_said_to():
    found = {"trouble": "low power", "rule": "odd_gpu", "loss_share": 0.2, "is_found": True}
    (row,) = claims.finding_quality(cases(found)).to_dict("records")
    assert row["verdict"] == "met"
    (row,) = claims.finding_quality(cases(found | {"loss_share": 0.1})).to_dict("records")
    assert row["verdict"] == "MISSED", "no case, no verdict in its favour"


def test_every_trouble_has_a_rule_that_exists():
    known = {name for names in make.TROUBLES.values() for name in names}
    assert set(findings.EXPECTED) == known
    assert {expected.rule for expected in findings.EXPECTED.values()} <= set(
        analyze.finding_rules()["rule"]
    )


def test_a_job_without_troubles_is_asked_all_rules(monkeypatch):
    loud = {"straggler": "one", "odd_gpu": "two"}
    monkeypatch.setattr(
        findings.analyze, "findings", lambda _: _Answer(pd.DataFrame({"rule": list(loud)}))
    )
    table = claims.finding_cases([3], troubles=["none"])
    assert table["false_count"].tolist() == [2]
    assert table["rule"].tolist() == ["straggler, odd_gpu"]


class _Answer:
    def __init__(self, table):
        self.findings = table


def test_one_case_tells_what_was_found_where():
    table = claims.finding_cases(range(1, 9), troubles=["interruption"])
    large = table[table["loss_share"] >= 0.02]
    assert large["is_found"].all()
    assert (large["cost"] / large["true_cost"]).between(0.9, 1.1).all()
    assert (table["elsewhere_count"] == 0).all()
