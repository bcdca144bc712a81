"""Captures of many ``nvidia-smi`` commands in one file, as nvidia_gpu_exporter collects them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import text_lines
from workbench.load._power.formats.nvidia import query as nvidia_query
from workbench.load._power.formats.nvidia.dmon import DmonReader
from workbench.load._power.formats.nvidia.part import part_of
from workbench.load._power.formats.nvidia.polls import QueryReader
from workbench.load._power.formats.nvidia.rows import Table, free_ns
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart
from workbench.load._power.rows import SECOND

NAME = "nvidia-smi capture of nvidia_gpu_exporter"
_RULE = "#" * 80
_TITLE = re.compile(r"# (\w+) :: (.+)")
_COMMAND = re.compile(r"# \$ (nvidia-smi .*)")
_COLLECTED = re.compile(r"collected_at:\s*(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z\s*")
_STAMP = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}")
_PERIOD = re.compile(r"(?:-d|--delay)[ =]?(\d+)")
_DMON_PERIOD_S = 1.0
_QUARTER_NS = 900 * SECOND
_ZONE = "time zone of the stamps, told by the time of the capture"
_SECTIONS = "sections of commands that report no power"
_NOTHING = "sections whose power could not be read"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    return b"nvidia_gpu_exporter GPU capture" in head[:1000]


@dataclass
class _Section:
    """The output of one command."""

    state: str
    command: str
    lines: list[tuple[int, str]]

    @property
    def block(self) -> bytes:
        return "".join(f"{line}\n" for _, line in self.lines).encode()


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the powers that the commands of a capture printed, idle and under load.

    ``--query-gpu`` and ``-q`` are readings of the same GPUs at their own times. What ``dmon``
    printed has no time; its rows become entities of their own, on a clock that begins at 0.
    The time at which the capture was collected, in UTC, tells the zone if the caller does not.
    """
    findings = Findings(source.label)
    collected, sections = _sections(source, findings)
    # Stamps are of the local clock, the time of the capture is UTC: they differ by the zone.
    if options.tz is None and (zone := _zone(collected, sections)):
        options = replace(options, tz=zone)
        findings.add("noted", _ZONE, 1, f"tz={zone}")
    contents = []
    for section in sections:
        read = _reader(section)
        if read is None:
            findings.add("skipped by design", _SECTIONS, 1, section.command[:60])
            continue
        try:
            contents.append(read(section, options, findings))
        except NoPowerError as error:
            findings.add("noted", _NOTHING, 1, str(error).removeprefix(f"{source.label}: "))
    if not contents:
        msg = f"{source.label}: none of its {len(sections)} sections holds a power"
        raise NoPowerError(msg)
    return _merged(contents, findings)


def _sections(source: Source, findings: Findings) -> tuple[int | None, list[_Section]]:
    collected: int | None = None
    result: list[_Section] = []
    state, is_title = "", False
    for number, line in text_lines(source, findings, whole=True):
        if line.strip() == _RULE:
            is_title = not is_title
        elif is_title and (title := _TITLE.fullmatch(line.strip())):
            state = title[1]
            result.append(_Section(state, "", []))
        elif is_title and result and (command := _COMMAND.fullmatch(line.strip())):
            result[-1].command = command[1].strip()
        elif not is_title and result:
            result[-1].lines.append((number, line))
        elif match := _COLLECTED.fullmatch(line):
            collected = free_ns(match[1])
    return collected, result


def _zone(collected: int | None, sections: list[_Section]) -> str | None:
    if collected is None:
        return None
    for section in sections:
        if not section.command.startswith("nvidia-smi --query-gpu="):
            continue
        for _, line in section.lines:
            if stamp := _STAMP.match(line):
                ahead = free_ns(stamp[0]) - collected
                quarters = round(ahead / _QUARTER_NS)
                # The first table is printed in the minutes after the capture began.
                if abs(ahead - quarters * _QUARTER_NS) > _QUARTER_NS // 3 or abs(quarters) > 56:
                    return None
                sign = "-" if quarters < 0 else "+"
                hours, content = divmod(abs(quarters), 4)
                return f"{sign}{hours:02}:{content * 15:02}"
    return None


_Read = Callable[[_Section, PowerOptions, Findings], PowerPart]


def _reader(section: _Section) -> _Read | None:
    command = section.command.removeprefix("nvidia-smi").strip()
    if command.startswith("--query-gpu="):
        return _read_query
    if command == "-q":
        return _read_snapshot
    return _read_dmon if command.split()[:1] == ["dmon"] else None


def _read_query(section: _Section, options: PowerOptions, findings: Findings) -> PowerPart:
    reader = QueryReader(options, findings)
    reader.read(section.lines[0][0] if section.lines else 1, section.block)
    return part_of(reader.finished(), options, findings)


def _read_snapshot(section: _Section, options: PowerOptions, findings: Findings) -> PowerPart:
    return part_of(nvidia_query.snapshots(section.lines, options, findings), options, findings)


def _read_dmon(section: _Section, options: PowerOptions, findings: Findings) -> PowerPart:
    period = _PERIOD.search(section.command)
    period_s = float(period[1]) if period else _DMON_PERIOD_S
    reader = DmonReader(options, findings)
    reader.read(section.lines[0][0] if section.lines else 1, section.block)
    table: Table = reader.finished()
    with_period = replace(options, period_s=period_s)
    return part_of(table, with_period, findings, f" (dmon, {section.state})")


def _merged(contents: list[PowerPart], findings: Findings) -> PowerPart:
    entities: dict[str, Row] = {}
    for content in contents:
        for name, facts in content.entities.items():
            merged = entities.setdefault(name, facts)
            merged.update({key: facts[key] for key in facts if merged.get(key) is None})
    readings = pd.concat([_as_text(content.readings) for content in contents], ignore_index=True)
    states = [_as_text(content.states) for content in contents if content.states is not None]
    joined = pd.concat(states, ignore_index=True) if states else None
    return PowerPart(readings, entities, findings, states=joined)


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(entity=frame["entity"].astype(str))
