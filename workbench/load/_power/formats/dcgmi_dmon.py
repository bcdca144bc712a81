"""Output of ``dcgmi dmon -e``: columns of fields, without a time.

Notes
-----
Time comes from the caller (``period_s``), or stands before each row because the output went
through a program that writes it, e.g. ``dcgmi dmon -e 155,156 | ts '%FT%.T%z'``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import COLOURS, text_lines
from workbench.load._files.time import utc_ns
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart, said, timed

NAME = "dcgmi dmon"
_HEADER = re.compile(r"^(?P<stamp>.*?)#\s*Entity\s+(?P<names>\S.*)$")
_HEAD = re.compile(
    rb"^[^\n]{0,60}#\s*Entity\s+(?:[A-Z][^\n]*\s)?(?:POWER|POWINST|TOTEC)\b", re.MULTILINE
)
_UNITS = re.compile(r"(?:^|\s)ID\s+(?P<units>[A-Za-z%/].*)$")
# A program such as ts may have put a stamp in front of the row.
_ROW = re.compile(
    r"^(?P<stamp>.*?)\b(?P<kind>GPU-CI|GPU-I|GPU|Switch|CPU|Core)\s+(?P<id>\d{1,4})\s+(?P<cells>\S.*)$"
)
_SCOPES = {"GPU": "gpu", "CPU": "cpu", "Switch": "switch"}
# Field -> column of the tables; of two powers one is taken.
_STATES = {"PMLMT": "limit_w", "EPLMT": "limit_w", "GPUTL": "busy_share", "TMPTR": "temperature_c"}
_STATES |= {"SMCLK": "clock_mhz"}
_FACTORS = {"w": 1.0, "mw": 1e-3, "kw": 1e3, "j": 1.0, "mj": 1e-3, "kj": 1e3}
_ABSENT = {"N/A", "-", "", "N/S"}
# DCGM writes values from here on for what it does not know.
_BLANKS_FROM = 140_737_488_355_328.0
_SECOND = 1_000_000_000


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the header ``#Entity   POWER   TOTEC``."""
    return bool(_HEAD.search(head))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read a row per device and poll; headers are repeated, and may change.

    Instances of a GPU (MIG) are skipped by design: they repeat the power of the whole GPU.
    """
    findings = Findings(source.label)
    log = _Log(findings, options.reading)
    for line, text in text_lines(source, findings, whole=True):
        log.take(line, COLOURS.sub("", text))
    if not log.rows:
        msg = f"{source.label}: holds a header of dcgmi dmon and no row of a device"
        raise NoPowerError(msg)
    table = pd.DataFrame(log.rows)
    clock = _place(table, options, findings)
    return _part(timed(table), log, options, clock)


@dataclass
class _Log:
    findings: Findings
    reading: str | None
    rows: list[Row] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    factors: dict[str, float] = field(default_factory=dict)
    taken: str = ""

    def take(self, line: int, text: str) -> None:
        where = f"line {line:,}"
        if header := _HEADER.match(text):
            self.names, self.factors = header["names"].split(), {}
        elif row := _ROW.match(text):
            self._row(row, line)
        elif self.names and (units := _UNITS.search(text)):
            columns = zip(self.names, units["units"].split(), strict=False)
            self.factors = {name: _FACTORS.get(unit.lower(), math.nan) for name, unit in columns}
        elif text.strip():
            self.findings.add("skipped by design", "lines that are not rows of a device", 1, where)

    def _row(self, row: re.Match[str], line: int) -> None:
        where = f"line {line:,}"
        if row["kind"] not in _SCOPES:
            text = "rows of parts of a GPU or CPU, which repeat the draw of the whole"
            self.findings.add("skipped by design", text, 1, where)
            return
        cells = row["cells"].replace("N/A ", "N/A  ").split()
        if len(cells) != len(self.names):
            text = "rows with more or fewer cells than the header"
            self.findings.add("dropped", text, 1, where)
            return
        values = dict(zip(self.names, cells, strict=True))
        power, energy = self._power_name(), "TOTEC"
        result: Row = {"stamp": row["stamp"].strip(), "kind": row["kind"], "line": line}
        result |= {"id": row["id"], "power_w": self._number(values, power, line, "W")}
        result["energy_j"] = self._number(values, energy, line, "mJ")
        for name, column in _STATES.items():
            if name in values and column not in result:
                unit = "W" if column == "limit_w" else ""
                result[column] = self._number(values, name, line, unit)
        if "busy_share" in result:
            result["busy_share"] /= 100
        self.rows.append(result)

    def _power_name(self) -> str:
        wanted = ("POWINST", "POWER") if self.reading == "instant" else ("POWER", "POWINST")
        self.taken = next((name for name in wanted if name in self.names), "")
        return self.taken

    def _number(self, values: Mapping[str, str], name: str, line: int, unit: str) -> float:
        text = values.get(name, "")
        if text in _ABSENT:
            return math.nan
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value >= _BLANKS_FROM:
            message = f"cells of {name} that are not numbers"
            self.findings.add("dropped", message, 1, f"line {line:,}: {text[:40]}")
            return math.nan
        factor = self.factors.get(name, math.nan)
        if unit and math.isnan(factor):
            message = f"{name} without a unit taken as {unit}, as DCGM writes it"
            self.findings.add("assumed", message, 1, f"line {line:,}")
            factor = _FACTORS[unit.lower()]
        return value * factor if unit else value


def _place(table: pd.DataFrame, options: PowerOptions, findings: Findings) -> str:
    if table["stamp"].eq("").all():
        table["time_ns"] = pd.array(list(_polls(table, options, findings)), dtype="Int64")
        return "own"
    lines = table["line"]
    table["time_ns"] = utc_ns(table["stamp"].str.strip("[] "), lines, options.tz, findings).ns
    blank = table["time_ns"].isna()
    if blank.all():
        msg = (
            f"{findings.source}, line {int(lines.iloc[0]):,}: {table['stamp'].iloc[0][:40]!r} is "
            "not a stamp with a date; log with: dcgmi dmon ... | ts '%FT%.T%z'"
        )
        raise LoadError(msg)
    return "epoch"


def _polls(table: pd.DataFrame, options: PowerOptions, findings: Findings) -> Iterator[int]:
    # A device that was seen since the last poll begins another.
    if options.period_s is None:
        msg = (
            f"{findings.source}, line {int(table['line'].iloc[0]):,}: rows of dcgmi dmon hold no "
            "time; pass period_s=, the time between polls (its -d, in s), or log with stamps: "
            "dcgmi dmon ... | ts '%FT%.T%z'"
        )
        raise LoadError(msg)
    step_ns = round(options.period_s * _SECOND)
    seen: set[tuple[str, str]] = set()
    poll = 0
    for device in zip(table["kind"], table["id"], strict=True):
        if device in seen:
            seen, poll = set(), poll + 1
        seen.add(device)
        yield poll * step_ns


def _part(table: pd.DataFrame, log: _Log, options: PowerOptions, clock: str) -> PowerPart:
    prefix = f"{options.node}/" if options.node else ""
    table["entity"] = prefix + table["kind"].str.lower() + table["id"]
    assumed = said(f"node={options.node}" if options.node else "", options.assumed_time(clock))
    facts: Row = {"node": options.node, "clock": clock, "assumed": assumed}
    facts |= {"method": "instant" if log.taken == "POWINST" else "unknown", "unit": "W"}
    devices = table[["entity", "kind", "id"]].drop_duplicates().itertuples(index=False)
    entities = {
        n: {**facts, "scope": _SCOPES[kind], "device": device} for n, kind, device in devices
    }
    common = ["time_ns", "entity", "line"]
    columns = [name for name in dict.fromkeys(_STATES.values()) if name in table]
    states = table[[*common, *columns]] if columns else None
    counters = table[[*common, "energy_j"]] if table["energy_j"].notna().any() else None
    readings = table[[*common, "power_w"]] if log.taken else table[[*common, "power_w"]].iloc[:0]
    return PowerPart(readings, entities, log.findings, counters, states)
