"""Logs of SPEC's PTDaemon: what a power analyser read, a line each second.

Notes
-----
MLPerf Inference, Tiny and Mobile submissions keep them as ``spl.txt``, one of the ranging run
and one of the run that counts. The analyser is between the wall and the system.

References
----------
MLCommons, power-dev, ptd_client_server. SPEC PTDaemon.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.text import text_lines
from workbench.load._files.time import utc_ns
from workbench.load._power.part import (
    PTDAEMON,
    PowerOptions,
    PowerPart,
    number_of,
    part_of,
    said,
    timed,
)

NAME = PTDAEMON
_LINE = re.compile(
    r"Time,(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d(?:\.\d{1,9})?),Watts,([^,]*)(,.*)?", re.ASCII
)
_HEAD = re.compile(rb"^Time,\d\d-\d\d-\d{4} [\d:.]{8,18},Watts,", re.MULTILINE)
# With several channels the first Watts of a line are their sum.
_CHANNEL = re.compile(r",Ch\d+,Watts,")
_CHANNELS = "lines with channels of the analyser beside their sum; the sum is taken"
_OTHER = "lines that are not readings"
_CUT = "lines that break off at their power; they are dropped"
_NO_NUMBER = "powers that are not numbers; they are missing"
_SCOPE = "the log says nothing of where it meters; taken as the input of the system (node_ac)"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise a line ``Time,03-03-2021 00:42:30.170,Watts,3.040000,Volts,...``."""
    return bool(_HEAD.search(head))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the power of all channels together; stamps are local times of the director."""
    findings = Findings(source.label)
    lines: list[int] = []
    stamps: list[str] = []
    watts: list[float] = []
    for number, text in text_lines(source, findings):
        where = f"line {number:,}"
        match = _LINE.fullmatch(text.strip())
        if match is None:
            findings.add("dropped", _OTHER, int(bool(text.strip())), where)
            continue
        if match[6] is None:
            findings.add("truncated", _CUT, 1, where)
            continue
        value = number_of(match[5])
        findings.add("dropped", _NO_NUMBER, int(value is None), where)
        findings.add("noted", _CHANNELS, int(bool(_CHANNEL.search(match[6]))), where)
        lines.append(number)
        stamps.append(f"{match[3]}-{match[1]}-{match[2]} {match[4]}")
        watts.append(np.nan if value is None else value)
    name = options.node or "node"
    rows = pd.DataFrame({"entity": name, "power_w": watts, "line": lines})
    times = utc_ns(pd.Series(stamps, dtype="str"), rows["line"], options.tz, findings)
    rows = timed(rows.assign(time_ns=times.ns))
    findings.add("assumed", _SCOPE, int(not options.scope))
    facts = {
        "scope": options.scope or "node_ac", "method": "average", "unit": "W", "node": options.node,
        "is_unnamed": options.node is None,
        "assumed": said(f"tz={options.tz}", f"scope={options.scope}" if options.scope else ""),
    }  # fmt: skip
    return part_of([rows[["time_ns", "entity", "power_w", "line"]]], {name: facts}, findings)
