"""Results of TensorFI2: one aggregate per run, as a Python list or one per line."""

from __future__ import annotations

import ast
import re

import numpy as np

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._pvf.columns import whole_text
from workbench.load._pvf.part import InjectionFile, InjectionPart, campaign, filled, stem
from workbench.tables import OUTCOMES

TOOL = "TensorFI2"
NAME = "TensorFI2"
_END = re.compile(rb"^Time for (\d+) injections: ([\d.]+(?:e[-+]?\d+)?) seconds", re.MULTILINE)
_FIRST = re.compile(rb"\A\s*(?:\[|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?\s*$)", re.MULTILINE)
_NAN = re.compile(r"\bnan\b")
# A list is parsed as a whole; results of millions of runs are not lists of this tool.
_LARGEST_BYTES = 1 << 20


def role(head: bytes, source: Source) -> str:  # noqa: ARG001 - the head tells
    """Recognise numbers that are followed by ``Time for 1000 injections: 82253.1 seconds``."""
    return "results" if _FIRST.match(head) and _END.search(head) else ""


def read(files: list[InjectionFile]) -> list[InjectionPart]:
    """Read each run as a campaign of aggregates: nothing is known of single faults."""
    return [result for file in files for result in _read_file(file.source)]


# A later run may have been appended to the file.
def _read_file(source: Source) -> list[InjectionPart]:
    findings = Findings(source.label)
    raw = whole_text(source, findings)
    if len(raw) > _LARGEST_BYTES:
        msg = f"{source.label}: is {len(raw):,} bytes, a list of TensorFI2 has at most 1 MiB"
        raise LoadError(msg)
    ends = list(_END.finditer(raw))
    starts = [0, *(end.end() for end in ends)]
    campaigns = [
        _run(raw[start : end.start()], (source, number), findings)
        for number, (start, end) in enumerate(zip(starts, ends, strict=False), 1)
    ]
    for end in ends:
        seconds = f"{float(end[2]):,.6g} s for {int(end[1]):,} injections"
        findings.add("noted", "the time of all injections together", 1, seconds)
    # The tool writes the time last: numbers behind the last time are of a run that did not end.
    if raw[starts[-1] :].strip():
        findings.add("truncated", "a last run without its time: it was stopped")
        campaigns.append(_run(raw[starts[-1] :], (source, len(ends) + 1), findings))
    text = "aggregates only: which faults there were, and how single inputs ended, is not recorded"
    findings.add("noted", text)
    campaigns[0].findings.append(findings)
    return campaigns


def _run(raw: bytes, origin: tuple[Source, int], findings: Findings) -> InjectionPart:
    source, number = origin
    text = raw.decode(errors="replace").strip()
    values = _list(text, source) if text.startswith("[") else _lines(text, source)
    findings.add("read", "aggregates", len(values))
    name = stem(source) if number == 1 else f"{stem(source)}, run {number}"
    columns = {"campaign_id": name, "exp_id": np.arange(len(values)), "metric_name": "aggregate"}
    columns["metric_value"] = np.array(values, np.float64)
    head = campaign(
        campaign_id=name, tool=TOOL, criterion="metric_drop", design="other",
        metric_name="aggregate",
    )  # fmt: skip
    outcomes = filled(OUTCOMES, columns, len(values))
    return InjectionPart(head, outcomes, findings=[Findings(source.label)])


def _list(text: str, source: Source) -> list[float]:
    try:
        # Means of nothing are written as nan, which is not a literal.
        values = ast.literal_eval(_NAN.sub("None", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        msg = f"{source.label}: is not a list of numbers ({str(error)[:80]}); probably cut off"
        raise LoadError(msg) from None
    if not isinstance(values, list) or not all(
        value is None or type(value) in {int, float} for value in values
    ):
        msg = f"{source.label}: holds something else than a list of numbers; only that is read"
        raise LoadError(msg)
    return [np.nan if value is None else float(value) for value in values]


def _lines(text: str, source: Source) -> list[float]:
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values.append(float(line))
        except ValueError:
            msg = f"{source.label}, line {number:,}: {line[:40]!r} is not a number"
            raise LoadError(msg) from None
    return values
