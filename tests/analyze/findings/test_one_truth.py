"""Findings do not contradict each other, carry the doubts of the loader, and answer a clean log."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.analyze.findings.jobs import even, failure_log, steps_of, trace
from workbench import analyze, load, plot
from workbench.analyze._lib.advice import advice_for
from workbench.analyze._perfmodel import findings as of_replays
from workbench.analyze._traces import findings as of_traces
from workbench.cli import app
from workbench.tables import QUALITY, Bundle

OF_TORCH = re.compile(
    r"torch|PYTORCH|\.item\(\)|pin_memory|non_blocking|num_workers|prefetch_factor|"
    r"ProfilerActivity|prof\.step|cudaMalloc|CUDA graphs|CUPTI"
)


def advice():
    """Return every text of a rule on traces that names a means of PyTorch or of CUDA."""
    texts = set()
    for module in (of_traces, of_replays):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.keyword) and node.arg == "next_step":
                texts |= {text.value for text in ast.walk(node.value)
                          if isinstance(text, ast.Constant) and isinstance(text.value, str)}  # fmt: skip
    return sorted(text for text in texts if OF_TORCH.search(text))


def of_format(name):
    bundle = trace(steps_of(even())[0])
    ranks = bundle.trace.ranks.assign(format=name)
    return dataclasses.replace(bundle.trace, ranks=ranks)


@pytest.mark.parametrize("name", ["xplane", "xprof json"])
def test_advice_on_jax_names_nothing_of_torch(name):
    texts = [*advice(), *of_traces._NEXT.values(), "overlap it (prefetch, bucket size, another "
             "stream) or move fewer bytes"]  # fmt: skip
    assert len(texts) >= 8
    jax = of_format(name)
    left = {text: advice_for(jax, text) for text in texts}
    assert {text: now for text, now in left.items() if OF_TORCH.search(now)} == {}
    torch = of_format("kineto")
    assert all(advice_for(torch, text) == text for text in texts)


@pytest.mark.long
@pytest.mark.oracle
def test_a_real_trace_of_jax_is_advised_to_use_jit(real_data):
    found = analyze.findings(load.bundle(real_data("xplane"), progress=False)).findings
    assert not found["next_step"].str.contains(OF_TORCH).any()
    assert found["next_step"].str.contains("jax.jit").any()


def meters(folder, count, copies):
    """Write power logs of nodes; the last ones are copies of the first."""
    folder.mkdir()
    draws = np.random.default_rng(5)
    for node in range(count):
        if node >= count - copies:
            text = (folder / f"node{node - count + copies:02}.csv").read_text()
            (folder / f"node{node:02}.csv").write_text(
                text.replace(f"gpu{node - count + copies}", f"gpu{node}")
            )
            continue
        rows = [
            f"2026-03-01T10:{second // 60:02}:{second % 60:02}Z,gpu{node},"
            f"{500 + 400 * (second // 40 % 2) + draws.random():.3f}"
            for second in range(600)
        ]
        (folder / f"node{node:02}.csv").write_text("\n".join(["time,gpu,power_w", *rows]) + "\n")
    return folder


@pytest.mark.long
def test_a_doubt_of_check_on_copied_meters_reaches_every_finding_of_power(tmp_path):
    honest = analyze.findings(load.bundle(meters(tmp_path / "a", 8, 0), progress=False)).findings
    copied = analyze.findings(load.bundle(meters(tmp_path / "b", 8, 4), progress=False)).findings
    assert len(honest)
    assert len(copied)
    of_power = copied[copied["domain"] == "power"]
    assert of_power["doubt"].str.contains("is one a copy?", regex=False).all()
    assert not of_power["confidence"].eq("high").any()
    assert not honest["doubt"].str.contains("copy").any()


@pytest.mark.long
@given(what=st.sampled_from(["odd stamps", "holes; was it cut?"]), count=st.integers(1, 10**6))
@settings(max_examples=10, deadline=None)
def test_what_a_loader_doubts_stands_with_every_finding_that_rests_on_it(what, count):
    log = failure_log([{"at_h": hour, "node": "node001"} for hour in range(1, 9)])
    row = {"source": "kernel.log", "finding": "suspicious", "what": what, "count": count}
    doubted = dataclasses.replace(log, quality=QUALITY.of(pd.DataFrame([row | {"where": None}])))
    sure, unsure = (analyze.findings(Bundle(failures=each)).findings for each in (log, doubted))
    assert unsure["finding"].tolist() == sure["finding"].tolist()
    assert unsure["doubt"].str.contains(f"the file has {what} ({count:,})", regex=False).all()
    assert not unsure["confidence"].eq("high").any()


def contrary():
    """Compute 700 us and 100 us hidden by the host; communication is exposed, but gains little."""
    from tests.analyze.findings.test_rules import CASES

    return CASES["communication_on_path"]()


@pytest.mark.long
def test_a_page_of_one_domain_and_the_first_page_tell_of_exposed_communication_alike():
    bundle = contrary()
    every = analyze.findings(bundle).findings
    of_page = analyze.findings(bundle, domains=["traces"])
    assert "communication_on_path" not in set(of_page.rules["rule"])
    columns = ["finding", "cost", "time_share", "confidence", "doubt", "next_step"]
    for rule in of_page.findings["rule"]:
        first, page = (table[table["rule"] == rule] for table in (every, of_page.findings))
        pd.testing.assert_frame_equal(first[columns].reset_index(drop=True),
                                      page[columns].reset_index(drop=True))  # fmt: skip
    card = plot.dashboard(analyze.findings(bundle), bundle, source="job").text
    largest = every.iloc[0]
    assert str(largest["finding"]) in " ".join(card.split())
    assert str(largest["next_step"]) in " ".join(card.split())


CLEAN = "2026-03-01T10:00:{:02}Z node1 kernel: eth0: link becomes ready\n"


def diagnosed(path, *options):
    return CliRunner().invoke(app, ["diagnose", str(path), *options])


def test_a_clean_kernel_log_is_an_answer(tmp_path):
    (tmp_path / "kern.log").write_text("".join(CLEAN.format(second) for second in range(50)))
    shown = diagnosed(tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "Nothing found by 3 rules" in shown.stdout
    rules = pd.DataFrame(json.loads(diagnosed(tmp_path, "--json").stdout)["rules"])
    could = rules[rules["state"] == "nothing"]
    assert set(could["rule"]) == {"broken_gpu", "last_failure", "fatal_failure"}


def test_a_log_of_which_a_line_was_withheld_is_no_clean_one(tmp_path):
    lines = [{"__REALTIME_TIMESTAMP": str(1_772_359_200_000_000 + n), "_HOSTNAME": "node1",
              "SYSLOG_IDENTIFIER": "kernel", "_TRANSPORT": "kernel", "PRIORITY": "6",
              "MESSAGE": None if n == 5 else "eth0: link becomes ready"}
             for n in range(10)]  # fmt: skip
    (tmp_path / "journal.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    shown = diagnosed(Path(tmp_path))
    assert shown.exit_code == 2, shown.output
    assert "Nothing found" not in shown.stdout
