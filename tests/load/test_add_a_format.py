"""A new format is one file and one row: the entry points and the command line do the rest."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from workbench import load
from workbench.cli import app
from workbench.load._files import signatures
from workbench.load._files.findings import Findings
from workbench.load._files.time import LogPart, failure_rows, timeline_rows
from workbench.load._power.part import PowerPart
from workbench.load.kinds import kinds_of

SECOND = 1_000_000_000


def looks_like(head, label):
    return head.startswith(b"acme ")


def read_power(source, given):
    """Read lines such as "acme 12 350": second and watts."""
    lines = [line.split() for line in source.head().decode().splitlines()]
    readings = pd.DataFrame(
        {
            "time_ns": [int(second) * SECOND for _, second, _ in lines],
            "entity": "node1",
            "power_w": [float(watts) for _, _, watts in lines],
            "line": np.arange(1, len(lines) + 1),
        }
    )
    entities = {"node1": {"scope": "node_ac", "method": "instant", "node": "node1"}}
    return PowerPart(readings, entities, Findings(source.label))


def read_failures(source, given):
    """Read lines such as "acme 12 lost": second and what failed."""
    rows = [
        {"start_ns": int(second) * SECOND, "kind": "acme", "cause": what, "line": number}
        for number, (_, second, what) in enumerate(
            (line.split() for line in source.head().decode().splitlines()), 1
        )
    ]
    label = source.label
    return LogPart(failure_rows(rows, label), timeline_rows([], label), Findings(label))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "meter.txt"
    path.write_text("acme 10 350\nacme 11 360\nacme 12 370\n")
    return path


def add_row(monkeypatch, module, *groups):
    monkeypatch.setitem(sys.modules, "workbench.load.acme", module)
    row = signatures.Signature("acme", re.compile(rb"acme "))
    for group in groups:
        monkeypatch.setattr(signatures, group, (row, *getattr(signatures, group)))


def test_a_row_among_the_formats_of_power_is_enough(file, monkeypatch):
    assert kinds_of(file) == set()
    acme = SimpleNamespace(NAME="Acme meter", looks_like=looks_like, read_power=read_power)
    add_row(monkeypatch, acme, "POWER_FORMATS")
    log = load.power(file, progress=False)
    assert log.power["power_w"].tolist() == [350, 360, 370]
    assert kinds_of(file) == {"power logs"}
    shown = CliRunner().invoke(app, ["check", str(file)]).output
    assert "power logs" in shown
    assert "Acme meter" in shown


def test_a_row_among_the_formats_of_failures_is_enough(file, monkeypatch):
    acme = SimpleNamespace(NAME="Acme log", looks_like=looks_like, read=read_failures)
    add_row(monkeypatch, acme, "FAILURE_FILES", "FAILURE_FORMATS")
    log = load.failures(file, progress=False)
    assert log.failures["line_count"].sum() == 3
    assert kinds_of(file) == {"failure logs"}
