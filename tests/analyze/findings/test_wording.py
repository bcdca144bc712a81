"""Findings as sentences: numbers that people read, and evidence that exists and shows them."""

import ast
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.make import pipeline_job
from tests.rules import for_every
from workbench import analyze, explore, load, plot
from workbench._shared.numbers import quantity, significant
from workbench.analyze import _findings
from workbench.analyze._imbalance import findings as imbalance_rules
from workbench.analyze._lib.finding_rules import RULES, Finding
from workbench.cli._diagnose import cost_text
from workbench.tables import Bundle

ROOT = Path(__file__).resolve().parents[3]
VERBS = {"load": load, "analyze": analyze, "plot": plot, "explore": explore}
FUNCTION = re.compile(r"\b(load|analyze|plot|explore)\.(\w+)")
WORDS = ("evidence", "next_step", "doubt", "cost_basis")


def texts_of(*names):
    """Give every text that a rule passes under some names, with the file it stands in."""
    texts = {}
    for file in sorted(ROOT.glob("workbench/analyze/_*/findings.py")):
        keywords = (node for node in ast.walk(ast.parse(file.read_text()))
                    if isinstance(node, ast.keyword) and node.arg in names)  # fmt: skip
        for keyword in keywords:
            for part in ast.walk(keyword.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    texts[f"{file.parent.name}: {part.value}"] = part.value
    return texts


def pages_of(evidence):
    """Read the notebooks and pages of docs/ that a text names."""
    for text in re.findall(r"\(notebooks? ([\d and,]+)\)", evidence):
        for number in re.findall(r"\d+", text):
            (file,) = ROOT.glob(f"notebooks/{number}_*.ipynb")
            cells = json.loads(file.read_text())["cells"]
            yield "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    for name in re.findall(r"\((docs/\w+\.md)\)", evidence):
        yield (ROOT / name).read_text()


@for_every(text=texts_of("evidence"))
def test_evidence_names_public_functions_and_a_page_that_calls_them(text):
    named = FUNCTION.findall(text)
    assert named, "names no function"
    shown = "\n".join(pages_of(text))
    assert shown, "names no notebook and no page of docs/"
    for verb, name in named:
        assert hasattr(VERBS[verb], name), f"{verb} has no {name}"
        assert re.search(rf"\b(?:{'|'.join(VERBS)})\.{name}\b", shown), (
            f"{name} is not called there"
        )


@for_every(text=texts_of(*WORDS))
def test_functions_that_a_finding_names_are_public(text):
    for verb, name in FUNCTION.findall(text):
        assert hasattr(VERBS[verb], name), f"{verb} has no {name}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1063.4, "1,060"), (0.0999, "0.0999"), (0.09996, "0.1"), (12, "12"), (123_456, "123,000"),
     (-0.5, "-0.5"), (0.0, "0"), (2e-7, "0.0000002"), (float("inf"), "inf")],
)  # fmt: skip
def test_a_number_has_three_significant_digits_and_no_power_of_ten(value, text):
    assert significant(value) == text


@given(st.floats(1e-6, 1e12))
def test_three_digits_are_within_half_a_per_cent(value):
    text = significant(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.01e-3)


@pytest.mark.parametrize(
    ("cost", "unit", "text"),
    [(1063, "ms per step", "1.06 s per step"), (999, "ms per step", "999 ms per step"),
     (1, "GPU-hours", "1 GPU-hour"), (1, "ms once", "1 ms once"), (1, "s of the job", "1 s of the job"),
     (5000, "msgs", "5,000 msgs")],
)  # fmt: skip
def test_a_second_is_never_a_thousand_milliseconds(cost, unit, text):
    assert quantity(cost, unit) == text
    row = pd.Series({"cost": cost, "cost_unit": unit, "time_share": None})
    assert cost_text(row) == text


def test_texts_of_any_rule_are_made_readable(monkeypatch):
    told = Finding(
        f"A step takes {1063.4:.3g} ms instead of {1200:,} ms on node-1e+05 and n1e+05",
        where=f"{5e7:.3g} tokens, 30% of them", cost_basis="12 ms",
    )  # fmt: skip
    monkeypatch.setitem(RULES, "slow_workers", RULES["slow_workers"].__class__(
        "imbalance", "slow_workers", "", imbalance_rules.Operated, "", lambda _: [told], {},
    ))  # fmt: skip
    job = pipeline_job(seed=1, shape=(2, 2, 4, 2))
    row = _findings.findings(
        Bundle(operations=job.operations), rules=["slow_workers"]
    ).findings.iloc[0]
    assert row["finding"] == "A step takes 1.06 s instead of 1.2 s on node-1e+05 and n1e+05"
    assert row["where"] == "50,000,000 tokens, 30 % of them"
    assert row["cost_basis"] == "12 ms"


def test_a_cause_never_explains_more_than_all_of_a_slowdown():
    # One worker of eight, of which the mean has its part: made ideal it saves more than there is.
    job = pipeline_job({"slow worker": 1.6}, seed=7, shape=(4, 2, 8, 4))
    slowdown = analyze.job_slowdown(job.operations).iloc[0]
    assert max(slowdown["worst_workers_ratio"], slowdown["slow_workers_ratio"]) > 1.005
    row = _findings.findings(
        Bundle(operations=job.operations), rules=["slow_workers"]
    ).findings.iloc[0]
    assert row["finding"] == "A few slow workers explain all of the slowdown"
    assert "saves more than equal operations everywhere do" in row["doubt"]
