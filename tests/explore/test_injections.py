"""Explorers of fault injection: every rule can be changed, and none of them is hidden."""

import pytest

from tests.analyze.conftest import skewed_truth
from workbench import explore


@pytest.fixture(scope="module")
def truth():
    return skewed_truth()


def said(explorer):
    return explorer.figure().layout.title.subtitle.text.replace("<br>", " ")


def test_pvf_changes_its_rules_and_says_them(truth, title):
    explorer = explore.pvf(truth, source="a truth", synthetic=True)
    assert explorer.message.value == ""
    assert "top hurts most" in title(explorer)
    assert "every bit weighs the same" in said(explorer)
    explorer.controls["average"].value = "tensors"
    assert "every tensor weighs the same" in said(explorer)
    explorer.controls["nan_policy"].value = "ignore"
    assert "outputs that are not finite are dropped" in said(explorer)
    explorer.controls["by"].value = "param"
    assert len(explorer.figure().layout.yaxis.ticktext) == 5
