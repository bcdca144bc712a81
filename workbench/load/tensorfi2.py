"""Results of TensorFI2: one aggregate per run, as a Python list or one per line."""

from __future__ import annotations

import ast
import re

import numpy as np

from workbench.errors import LoadError
from workbench.load._findings import Findings
from workbench.load._injection_csv import whole_text
from workbench.load._injection_part import InjectionFile, InjectionPart, campaign, filled, stem
from workbench.load.archive import Source
from workbench.tables import OUTCOMES

TOOL = "TensorFI2"
NAME = "TensorFI2"
_END = re.compile(rb"^Time for (\d+) injections: ([\d.]+(?:e[-+]?\d+)?) seconds", re.MULTILINE)
_FIRST = re.compile(rb"\A\s*(?:\[|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?\s*$)", re.MULTILINE)
# A list is parsed as a whole; results of millions of runs are no list of this tool.
_LARGEST_BYTES = 1 << 20


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise numbers that are followed by ``Time for 1000 injections: 82253.1 seconds``."""
    return "results" if _FIRST.match(head) and _END.search(head) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read each file as a campaign of aggregates: nothing is known of single faults.

    Raises
    ------
    LoadError
        If a file is too large for such a list, or holds something else than numbers.
    """
    return [_read_file(file.source) for file in files]


def _read_file(source: Source) -> InjectionPart:
    findings = Findings(source.label)
    raw = whole_text(source, findings)
    if len(raw) > _LARGEST_BYTES:
        msg = f"{source.label}: is {len(raw):,} bytes, a list of TensorFI2 has at most 1 MiB"
        raise LoadError(msg)
    end = _END.search(raw)
    text = (raw[: end.start()] if end else raw).decode(errors="replace").strip()
    values = _list(text, source) if text.startswith("[") else _lines(text, source)
    if end:
        seconds = f"{float(end[2]):,.6g} s for {int(end[1]):,} injections"
        findings.add("noted", "the time of all injections together", 1, seconds)
    findings.add("read", "aggregates", len(values))
    what = "aggregates only: which faults there were, and how single inputs ended, is not told"
    findings.add("noted", what)
    name = stem(source)
    columns = {
        "campaign_id": name,
        "exp_id": np.arange(len(values)),
        "metric_name": "aggregate",
        "metric_value": np.array(values, np.float64),
    }
    head = campaign(
        campaign_id=name,
        tool=TOOL,
        criterion="metric_drop",
        design="other",
        metric_name="aggregate",
    )
    return InjectionPart(head, filled(OUTCOMES, columns, len(values)), findings=[findings])


def _list(text: str, source: Source) -> list[float]:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        msg = f"{source.label}: is no list of numbers ({str(error)[:80]}); it was probably cut off"
        raise LoadError(msg) from None
    if not isinstance(found, list) or not all(type(each) in {int, float} for each in found):
        msg = f"{source.label}: holds something else than a list of numbers; only that is read"
        raise LoadError(msg)
    return [float(each) for each in found]


def _lines(text: str, source: Source) -> list[float]:
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values.append(float(line))
        except ValueError:
            msg = f"{source.label}, line {number:,}: {line[:40]!r} is no number"
            raise LoadError(msg) from None
    return values
