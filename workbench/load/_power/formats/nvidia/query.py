"""Logs of ``nvidia-smi -q``: one snapshot after the other, as indented text."""

from __future__ import annotations

import re
from collections.abc import Iterable

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.text import text_lines
from workbench.load._power.formats.nvidia.part import part_of, stamp_ns, table_of
from workbench.load._power.formats.nvidia.rows import (
    NOT_A_TIME,
    REASON_BITS,
    Table,
    active_value,
    is_missing,
)
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart

NAME = "nvidia-smi -q"
_MARK = b"NVSMI LOG="
_GPU = re.compile(r"GPU ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])\s*")
_POWERS = {
    None: ("Average Power Draw", "Power Draw", "Instantaneous Power Draw"),
    "average": ("Average Power Draw",),
    "instant": ("Instantaneous Power Draw",),
}
_LIMITS = ("Current Power Limit", "Enforced Power Limit", "Requested Power Limit", "Power Limit")
_METHODS = {
    "Average Power Draw": "power.draw.average",
    "Instantaneous Power Draw": "power.draw.instant",
    "Power Draw": "power.draw",
}
_REASONS = {
    "Idle": "gpu_idle", "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap", "HW Slowdown": "hw_slowdown", "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown", "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
}  # fmt: skip
_ROLES = {
    ("Clocks", "SM"): "clock", ("Utilization", "GPU"): "busy", ("Utilization", "Gpu"): "busy",
    ("Temperature", "GPU Current Temp"): "temperature",
    ("Clocks Event Reasons Counters", "SW Power Capping"): "violation",
}  # fmt: skip
_CUT = "a snapshot that breaks off before its power"
_GPU_LIKE = re.compile(r"GPU \S.*")
_DAMAGED = "GPUs with a damaged address; told by their place in the snapshot where it is whole"
_FEWER = "snapshots with fewer GPUs than they say are attached: cut, damaged or queried in part"


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the line ``====NVSMI LOG====``."""
    return _MARK in head


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the snapshots of one host: of each GPU its whole board, not what MIG makes of it."""
    findings = Findings(source.label)
    lines = text_lines(source, findings, whole=True)
    return part_of(snapshots(lines, options, findings), options, findings)


def snapshots(lines: Iterable[tuple[int, str]], options: PowerOptions, findings: Findings) -> Table:
    """Read numbered lines of one or several snapshots."""
    boards = _Boards(options)
    for number, line in lines:
        boards.see(number, line)
    boards.close()
    if not boards.rows:
        msg = f"{findings.source}: holds no power of a GPU with a stamp; log nvidia-smi -q -d POWER"
        raise NoPowerError(msg)
    findings.add("dropped", _CUT, boards.cut_count, boards.cut_where)
    findings.add("suspicious", _DAMAGED, boards.damaged_count, boards.damaged_where)
    # Who asks for some of the GPUs (-i) gets them in every snapshot.
    is_asked = len(boards.short) == boards.snapshot_count > 1 and len(set(boards.short)) == 1
    findings.add("suspicious", _FEWER, 0 if is_asked else len(boards.short))
    # A snapshot that lacks a GPU does not number them, but the others know them.
    index_of_bus = {row["bus"]: row["index"] for row in boards.rows if row["bus"] and row["index"]}
    for row in boards.rows:
        row["index"] = row["index"] or index_of_bus.get(row["bus"], "")
    return table_of(boards.rows, _METHODS[boards.rows[0]["column"]])


class _Boards:
    """Gathers what is told of each GPU, line by line."""

    def __init__(self, options: PowerOptions) -> None:
        self.rows: list[Row] = []
        self.cut_count, self.cut_where = 0, ""
        self.damaged_count, self.damaged_where = 0, ""
        # How many GPUs are missing from each snapshot that lacks some.
        self.short: list[int] = []
        self.snapshot_count = 0
        is_module = options.scope == "module"
        of_gpu = ("GPU Power Readings", "Power Readings")
        self._sections = ("Module Power Readings",) if is_module else of_gpu
        self._powers = _POWERS[options.reading]
        self._stamp = NOT_A_TIME
        self._attached = 0
        self._snapshot: list[Row] = []
        self._path: list[str] = []

    def see(self, number: int, line: str) -> None:
        if _MARK.decode() in line:
            self.close()
            return
        if (match := _GPU.fullmatch(line)) or _GPU_LIKE.fullmatch(line):
            bus = match[1] if match else ""
            if not bus:
                self.damaged_count += 1
                self.damaged_where = self.damaged_where or f"line {number:,}: {line[:40]!r}"
            self._snapshot.append({"bus": bus, "line": number, "reasons": -1})
            self._path = [line]
            return
        name, colon, value = line.partition(" : ")
        depth = (len(name) - len(name.lstrip())) // 4
        name, value = name.strip(), value.strip()
        if not colon:
            self._path = [*self._path[:depth], name] if name else []
            return
        if depth == 0:
            self._see_head(name, value)
        # Instances of MIG repeat fields of their GPU with values of their own.
        elif self._snapshot and self._path[1:2] != ["MIG Device"]:
            self._see_board(self._snapshot[-1], self._path[depth - 1 : depth] or [""], name, value)

    def close(self) -> None:
        is_all = self._attached == len(self._snapshot)
        self.snapshot_count += bool(self._snapshot)
        if self._snapshot and len(self._snapshot) < self._attached:
            self.short.append(self._attached - len(self._snapshot))
        for position, board in enumerate(self._snapshot):
            names = [name for name in self._powers if name in board]
            # The first that has a value; N/A only if none has.
            power = next((n for n in names if not is_missing(board[n])), next(iter(names), None))
            if power is None or self._stamp == NOT_A_TIME:
                self.cut_count += 1
                self.cut_where = self.cut_where or f"line {board['line']:,}"
                continue
            # GPUs are printed in their order, so the place is the index if none is missing.
            board["index"] = str(position) if is_all else ""
            board["time"], board["column"], board["power"] = self._stamp, power, board[power]
            limits = (board[name] for name in _LIMITS if name in board)
            board["limit"] = next(limits, "")
            self.rows.append(board)
        self._snapshot, self._path = [], []
        self._stamp, self._attached = NOT_A_TIME, 0

    def _see_head(self, name: str, value: str) -> None:
        if name == "Timestamp":
            self._stamp = stamp_ns(value)
        elif name == "Attached GPUs" and value.isdigit():
            self._attached = int(value)

    def _see_board(self, board: Row, path: list[str], name: str, value: str) -> None:
        section = path[0]
        if name == "Product Name":
            board["model"] = value
        elif name == "GPU UUID":
            board["uuid"] = value
        elif section in self._sections and (name in _METHODS or name in _LIMITS):
            self._keep(board, name, value)
        elif (section, name) in _ROLES:
            self._keep(board, _ROLES[section, name], value)
        elif name in _REASONS and (active := active_value(value)) >= 0:
            bit = REASON_BITS[_REASONS[name]] * active
            board["reasons"] = max(board["reasons"], 0) | bit

    @staticmethod
    def _keep(board: Row, name: str, value: str) -> None:
        """Keep a value with its unit, or a mark that there is none; others are cut off."""
        if value[-1:].isalpha() or value.endswith(("%", "]")):
            board.setdefault(name, value)
