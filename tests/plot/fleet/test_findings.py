"""Cards of findings: every text escaped, made data labelled."""

from dataclasses import replace

import pytest

from workbench import analyze, datasets, load, plot, tables


@pytest.fixture(scope="module")
def found() -> tables.Findings:
    return analyze.findings(load.bundle(datasets.path("fleet-demo"), tz="UTC", progress=False))


def test_each_text_of_a_finding_is_escaped(found: tables.Findings) -> None:
    table = found.findings.assign(finding="<script>alert(1)</script>", where="<img src=x>")
    html = plot.findings(replace(found, findings=table)).html
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html


def test_made_data_are_labelled(found: tables.Findings) -> None:
    cards = plot.findings(found, source="fleet-demo", synthetic=True)
    assert "synthetic" in cards.html
    assert "synthetic" in repr(cards)


def test_findings_left_out_are_counted(found: tables.Findings) -> None:
    assert f"{len(found.findings) - 1} more" in plot.findings(found, count=1).html
