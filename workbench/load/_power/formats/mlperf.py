"""Power logs of MLPerf Training submissions: one file of MLLOG lines per node and switch.

Notes
-----
A file does not say whether its node is metered before or after the power supply; only a
conversion efficiency below one tells that it is before (AC). The power of a switch may be one
estimate, its maximum, whose stamp has nothing to do with the run: it is given on a clock of its
own.

References
----------
MLCommons, *MLPerf Training: Power Measurement Rules* (training_policies,
power_measurement.adoc). Tschand et al., *MLPerf Power*, arXiv:2410.12032.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import MARK, Entry, entry_of, number_of
from workbench.load._files.stream import BLOCK_BYTES, Stream, plain_name
from workbench.load._files.text import repaired, tell_of_damage, tell_of_no_end
from workbench.load._power.part import (
    MLPERF,
    BesidePowerError,
    NoPowerError,
    PowerOptions,
    PowerPart,
)
from workbench.tables import SAYS_SYNTHETIC

NAME = MLPERF
_MILLISECOND = 1_000_000
_HEAD = re.compile(rb":::(?:MLLOG|SYSJSON|DLPAL)|^Total Power Usage: ", re.MULTILINE)
_TOTAL = re.compile(r"Total Power Usage: \S+ \S+")
# As the logger writes readings; every other line is read as JSON by itself.
_REGULAR = re.compile(
    rb'^ *(?:\d{1,7}: *)?:::MLLOG \{"namespace": "[^"\\\n]*", "time_ms": (\d{10,12}|1\d{12}), '
    rb'"event_type": "POINT_IN_TIME", "key": "power_reading", "value": (\d{1,15}(?:\.\d{1,17})?), '
    rb'"metadata": (""|null|\{[^{}\n]*\})\}\r?$',
    re.MULTILINE,
)
# Marks lines that are read already; no line that a logger writes is a single NUL.
_TAKEN = b"\0"
_MARKS = ("power_measurement_start", "power_measurement_stop")
_NAMES = ("node", "node_id", "switch_id")
_SWITCH = re.compile(r"sw(?:itch)?[_-]?\d*", re.IGNORECASE)


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise a line of MLPerf's logger, or the total that lies beside the power logs.

    The log of the run itself is one, too; it holds no power, and the findings say so.
    """
    return bool(_HEAD.search(head))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the readings of one node or switch.

    The node is the one that the lines name, else the one that the caller names, else the name
    of the file.
    """
    log = _Log(Findings(source.label))
    with source.open() as stream:
        for first_line, block in _blocks(stream, log.findings):
            log.take(first_line, block)
        tell_of_damage(stream, log.findings)
    return log.part(_stem(source), options)


class _Owner(NamedTuple):
    """The metered entity, as far as a line states it."""

    name: str
    is_switch: bool
    is_estimate: bool


@dataclass
class _Log:
    """Contents of the lines of one file."""

    findings: Findings
    times: list[Any] = field(default_factory=list)
    watts: list[Any] = field(default_factory=list)
    lines: list[Any] = field(default_factory=list)
    codes: list[Any] = field(default_factory=list)
    owners: dict[_Owner, int] = field(default_factory=dict)
    efficiency: float | None = None
    total: str = ""
    open_spans: int = 0
    others: int = 0

    def take(self, first_line: int, block: bytes) -> None:
        """Read whole lines: regular ones all at once, others one by one."""
        entries = _REGULAR.findall(block)
        numbers = np.arange(first_line, first_line + block.count(b"\n"))
        if len(entries) != len(numbers):
            # Lines taken by the expression become a mark, so that the others keep their numbers.
            lines = _REGULAR.sub(_TAKEN, block).split(b"\n")[:-1]
            is_taken = np.array([line == _TAKEN for line in lines])
            if is_taken.sum() != len(entries):  # a damaged file may hold the sign itself
                entries, lines = [], block.split(b"\n")[:-1]
                is_taken = np.zeros(len(lines), dtype=bool)
            for at in np.flatnonzero(~is_taken).tolist():
                self._take_line(first_line + at, lines[at])
            numbers = numbers[is_taken]
        if entries:
            self._take_regular(entries, numbers)

    def _take_regular(self, entries: Sequence[tuple[bytes, bytes, bytes]], numbers: Any) -> None:
        times, watts, metadata = zip(*entries, strict=True)
        owner_of = {}
        # Thousands of readings share few texts of metadata: each is parsed once.
        for text in dict.fromkeys(metadata):
            try:
                words = json.loads(text)
            except ValueError:
                words = {}
            owner_of[text] = self._owner(words, count=metadata.count(text))
        # 13 digits are milliseconds of today; numpy parses fixed-width bytes at once.
        self.times.append(np.array(times, dtype="S13").astype(np.int64) * _MILLISECOND)
        self.watts.append(np.array(watts, dtype="S34").astype(np.float64))
        self.lines.append(numbers)
        self.codes.append(np.array([owner_of[text] for text in metadata], dtype=np.int32))

    def _take_line(self, number: int, raw: bytes) -> None:
        where = f"line {number:,}"
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = repaired(raw, self.findings, where)
        entry = entry_of(number, text, self.findings)
        if entry is not None:
            self._take_entry(entry)
        elif total := _TOTAL.search(text):
            self.total = total[0]
        elif MARK not in text and text.strip():
            message = "lines that are none of MLPerf's logger"
            self.findings.add("skipped by design", message, 1, where)

    def _take_entry(self, entry: Entry) -> None:
        where = f"line {entry.line:,}"
        is_estimate = entry.key == "interconnect_power_est"
        if entry.key == "conversion_eff":
            self.efficiency = number_of(entry.value)
            self.findings.add("noted", f"conversion efficiency {entry.value!r}", 1, where)
        elif entry.key == "power_reading" or is_estimate:
            value = number_of(entry.value)
            text = "readings that are not numbers; they are missing"
            self.findings.add("dropped", text, int(value is None), where)
            self.times.append([entry.time_ns])
            self.watts.append([np.nan if value is None else value])
            self.lines.append([entry.line])
            self.codes.append([self._owner(entry.metadata, is_estimate=is_estimate)])
        elif entry.key in _MARKS:
            self.open_spans += {"power_measurement_start": 1, "power_measurement_stop": -1}.get(
                entry.key, 0
            )
        else:
            self.others += 1
            self.findings.add("skipped by design", "lines on other things than power", 1, where)

    def _owner(self, words: object, *, count: int = 1, is_estimate: bool = False) -> int:
        metadata = words if isinstance(words, dict) else {}
        self.findings.add("noted", SAYS_SYNTHETIC, count * (metadata.get("synthetic") is True))
        names = [str(metadata[n]) for n in _NAMES if isinstance(metadata.get(n), str | int)]
        is_switch = "switch_id" in metadata or is_estimate
        owner = _Owner(names[0] if names else "", is_switch, is_estimate)
        return self.owners.setdefault(owner, len(self.owners))

    def part(self, stem: str, options: PowerOptions) -> PowerPart:
        if not self.lines:
            raise self._nothing()
        facts = [_facts(owner, stem, options, self.efficiency) for owner in self.owners]
        entities: dict[str, Row] = {}
        names: list[str] = []
        for fact in facts:
            name = fact.pop("name")
            # A switch may have readings and an estimate under one name.
            names.append(name if name not in entities else f"{name} {fact['method']}")
            entities[names[-1]] = fact
        kinds = {"time_ns": np.int64, "power_w": np.float64, "line": np.int64, "code": np.int64}
        pieces = (self.times, self.watts, self.lines, self.codes)
        data = {
            name: np.concatenate([*arrays, np.array([], kind)]).astype(kind)
            for (name, kind), arrays in zip(kinds.items(), pieces, strict=True)
        }
        readings = pd.DataFrame(data).sort_values("line", kind="stable", ignore_index=True)
        categories = pd.Index(names, dtype=pd.Series([""]).dtype)
        codes = readings.pop("code").to_numpy()
        entity = pd.Categorical.from_codes(codes, categories=categories)
        readings.insert(1, "entity", pd.Series(entity))
        self._tell(readings, entities)
        return PowerPart(readings, entities, self.findings)

    def _nothing(self) -> NoPowerError:
        label = self.findings.source
        if self.total:
            return BesidePowerError(f"{label}: a total that the submitter computed: {self.total}")
        if self.others:
            msg = f"{label}: the log of a run, without power; load.job_log reads its steps"
            return BesidePowerError(msg)
        return NoPowerError(f"{label}: no line of MLPerf's logger in it is a reading of power")

    def _tell(self, readings: pd.DataFrame, entities: dict[str, Row]) -> None:
        text = "a measurement that does not end: the log was cut, or its writer stopped"
        last = f"line {int(readings['line'].iloc[-1]):,}"
        self.findings.add("truncated", text, max(self.open_spans, 0), last)
        scopes = readings["entity"].map({name: facts["scope"] for name, facts in entities.items()})
        text = 'readings that do not state whether they are AC or DC; pass scope="node_ac" if AC'
        self.findings.add("noted", text, int((scopes == "unknown").sum()))
        clocks = readings["entity"].map({n: facts.get("clock") for n, facts in entities.items()})
        text = "estimates, with an unsynchronized clock: their stamps are not those of the run"
        self.findings.add("noted", text, int((clocks == "own").sum()))
        is_low = self.efficiency is not None and 0 < self.efficiency < 1
        text = "readings before the power supply (AC); the efficiency is not applied"
        self.findings.add("noted", text, is_low * len(readings))


def _facts(owner: _Owner, stem: str, options: PowerOptions, efficiency: float | None) -> Row:
    is_switch = owner.is_switch or (not owner.name and bool(_SWITCH.fullmatch(stem)))
    said_node = options.node if not owner.name and not is_switch else None
    name = owner.name or said_node or stem
    facts: Row = {"name": name, "node": None if is_switch else name}
    facts["unit"] = "W"
    facts["method"] = "estimate" if owner.is_estimate else "meter"
    facts["clock"] = "own" if owner.is_estimate else "epoch"
    is_before_supply = efficiency is not None and 0 < efficiency < 1
    scope = "switch" if is_switch else options.scope
    facts["scope"] = scope or ("node_ac" if is_before_supply else "unknown")
    assumed = [f"node={said_node}"] if said_node else []
    assumed += [f"scope={options.scope}"] if options.scope and not is_switch else []
    facts["assumed"] = ", ".join(assumed)
    return facts


def _blocks(stream: Stream, findings: Findings) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, many at a time, and the number of the first; all end in a newline.

    A last one without an end is given one; it is told where it may have been an entry.
    """
    begun: list[bytes] = []
    line = 1
    while block := stream.read(BLOCK_BYTES):
        head, newline, remainder = block.rpartition(b"\n")
        if not newline:
            begun.append(remainder)
            continue
        total = b"".join([*begun, head, newline])
        yield line, total
        line += total.count(b"\n")
        begun = [remainder]
    if last := b"".join(begun):
        if MARK.encode() not in last:  # of entries their JSON tells
            tell_of_no_end(last, stream, findings, f"line {line:,}")
        yield line, last + b"\n"


def _stem(source: Source) -> str:
    name = re.split(r"[/!]", source.member or source.path.name)[-1]
    return plain_name(name).rsplit(".", 1)[0] or name
