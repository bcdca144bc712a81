"""Pages of comparisons say what their tables say, in symbols as well as colours."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analyze.findings.jobs import even, job_log, steps_of, trace
from tests.analyze.fleet.test_run_trend import trend_of
from workbench import analyze, plot
from workbench.tables import Bundle


@pytest.fixture(scope="module")
def table():
    own = even(12)
    slow = own.copy()
    slow[:, 2] += 500
    return analyze.run_comparison(*(trace(steps_of(times)[0]) for times in (own, slow)))


def test_a_page_has_a_row_per_quantity_and_words_beside_colours(table):
    page = plot.run_comparison_page(table, names=("<b>", "second"), source="made", synthetic=True)
    assert page.count("<tr") == len(table) + table["quantity"].nunique()
    changed = table[table["verdict"] == "changed"]
    assert page.count("▲ more") == (changed["difference"] > 0).sum()
    assert page.count("▼ less") == (changed["difference"] < 0).sum()
    assert "&lt;b&gt;" in page
    assert "<script" not in page
    assert "Synthetic data." in page


def test_a_kernel_named_in_html_is_only_a_name(table):
    hostile = table.assign(name="<script>alert(1)</script>", quantity="kernel")
    hostile["quantity"] = hostile["quantity"].astype("category")
    page = plot.run_comparison_page(hostile)
    assert "<script" not in page


def test_failures_alone_are_shown_in_their_own_unit():
    from tests.analyze.findings.jobs import failure_log

    logs = [Bundle(failures=failure_log([{"at_h": h, "node": "node001"} for h in hours]))
            for hours in ([1], [1, 2, 3])]  # fmt: skip
    page = plot.run_comparison_page(analyze.run_comparison(*logs))
    assert "per 1,000 node-hours" in page
    assert "<h1>Cannot be resolved: of so few events" in page


def test_the_trend_names_the_first_run_of_a_change():
    values = 200 + np.random.default_rng(0).standard_normal(12)
    values[8:] *= 1.1
    trend = trend_of(values)
    changes = analyze.run_changes(trend)
    page = plot.run_trend_page(trend, changes)
    assert "<h1>Slower from night08 on by 9.46 %" in page
    assert page.count("night") >= 13


def test_few_runs_are_shown_without_a_verdict():
    runs = {name: Bundle(job=job_log([1.0, 1.01] * 5)) for name in "ab"}
    trend = analyze.run_trend(runs)
    page = plot.run_trend_page(trend, analyze.run_changes(trend))
    assert "Equal: step 1,006 ms" in page
