"""NVIDIA DPS: what ``dpsctl check metrics`` prints of nodes, their GPUs and CPUs, as JSON.

Notes
-----
The command prints no time. One that was added beside ``nodes`` is read, e.g. by
``dpsctl check metrics | jq -c --arg time "$(date -u +%FT%TZ)" '{$time} + .'``.

References
----------
NVIDIA, *Domain Power Service*: dpsctl check metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Record, Row
from workbench.load._files.json_events import number_of
from workbench.load._files.tables import json_documents, records
from workbench.load._files.time import utc_ns
from workbench.load._power.part import NoPowerError, PowerOptions, PowerPart, said, timed

NAME = "DPS metrics"
_HEAD = re.compile(rb'"nodes"\s*:\s*\[')
_TIMES = ("time", "timestamp", "ts", "date")
_JOULES = {"joules": 1.0, "j": 1.0, "millijoules": 1e-3, "mj": 1e-3, "kilojoules": 1e3}
_JOULES |= {"watthours": 3600.0, "wh": 3600.0, "kilowatthours": 3.6e6, "kwh": 3.6e6}
_SECOND = 1_000_000_000


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    return bool(_HEAD.search(head)) and b'"power_usage"' in head


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read every poll of every node and of what is in it.

    Where a node is metered the metrics do not say: its scope is that of the caller, else
    unknown. The power of a node holds that of its GPUs and CPUs.
    """
    log = _Log(Findings(source.label))
    for line, document in json_documents(source, log.findings):
        for number, record in records(line, document, log.findings):
            log.take(number, record)
    if not log.rows:
        msg = f"{source.label}: holds no node with a power"
        raise NoPowerError(msg)
    table = pd.DataFrame(log.rows)
    clock = _place(table, options, log.findings)
    return _part(timed(table), log.findings, options, clock)


@dataclass
class _Log:
    findings: Findings
    rows: list[Row] = field(default_factory=list)
    polls: int = 0

    def take(self, line: int, record: Record) -> None:
        nodes = record.get("nodes")
        if not isinstance(nodes, list):
            self.findings.add("skipped by design", "JSON without nodes", 1, f"record {line:,}")
            return
        stamp = next((record[name] for name in _TIMES if record.get(name) is not None), "")
        for node in nodes:
            if not isinstance(node, dict) or not isinstance(node.get("name"), str):
                self.findings.add("dropped", "nodes without a name", 1, f"record {line:,}")
                continue
            for row in self._of_node(node, line):
                self.rows.append({**row, "stamp": str(stamp), "poll": self.polls, "line": line})
        self.polls += 1

    def _of_node(self, node: Record, line: int) -> Iterator[Row]:
        name = node["name"]
        yield self._row(node, line) | {"entity": name, "node": name, "scope": "", "device": None}
        for scope, devices in (("gpu", node.get("gpus")), ("cpu", node.get("cpus"))):
            for device in devices if isinstance(devices, list) else []:
                if not isinstance(device, dict) or not isinstance(device.get("id"), str | int):
                    text = f"{scope.upper()}s without an id"
                    self.findings.add("dropped", text, 1, f"record {line:,}: {name}")
                    continue
                facts = {"entity": f"{name}/{scope}{device['id']}", "node": name, "scope": scope}
                yield self._row(device, line) | facts | {"device": str(device["id"])}

    def _row(self, device: Record, line: int) -> Row:
        numbers = {"power_w": "power_usage", "limit_w": "set_limit"}
        numbers |= {"temperature_c": "temperature_celsius"}
        row = {column: self._number(device, name, line) for column, name in numbers.items()}
        row["energy_j"] = None
        energy = self._number(device, "energy_usage", line)
        if energy is not None:
            unit = str(device.get("energy_usage_unit", ""))
            factor = _JOULES.get(re.sub(r"[\s_-]", "", unit.lower()))
            text = f"energies in {unit[:20]!r}, which is not a known unit"
            self.findings.add("dropped", text, int(factor is None), f"record {line:,}")
            row["energy_j"] = None if factor is None else energy * factor
        return row

    def _number(self, device: Record, name: str, line: int) -> float | None:
        value = number_of(device.get(name))
        if value is None and device.get(name) is not None:
            where = f"record {line:,}: {str(device[name])[:40]}"
            self.findings.add("dropped", f"{name} that is not a number", 1, where)
        return value


def _place(table: pd.DataFrame, options: PowerOptions, findings: Findings) -> str:
    if not table["stamp"].eq("").any():
        table["time_ns"] = utc_ns(table["stamp"], table["line"], options.tz, findings).ns
        return "epoch"
    # Without any stamp, the polls are counted.
    if options.period_s is not None and table["stamp"].eq("").all():
        polls = table["poll"] * round(options.period_s * _SECOND)
        table["time_ns"] = polls.astype("Int64")
        return "own"
    line = int(table.loc[table["stamp"].eq(""), "line"].iloc[0])
    msg = (
        f"{findings.source}, record {line:,}: metrics of dpsctl hold no time; pass period_s=, the "
        "time between polls in s, or add it: dpsctl check metrics | "
        "jq -c --arg time \"$(date -u +%FT%TZ)\" '{$time} + .'"
    )
    raise LoadError(msg)


def _part(table: pd.DataFrame, findings: Findings, options: PowerOptions, clock: str) -> PowerPart:
    scope = options.scope or "unknown"
    entities: dict[str, Row] = {}
    for row in table.drop_duplicates("entity").itertuples(index=False):
        by_caller = f"scope={options.scope}" if not row.scope and options.scope else ""
        entities[str(row.entity)] = {
            "scope": row.scope or scope, "method": "unknown", "node": row.node, "clock": clock,
            "device": row.device, "unit": "W",
            "assumed": said(options.assumed_time(clock), by_caller),
        }  # fmt: skip
    numbers = ["power_w", "limit_w", "temperature_c", "energy_j"]
    table[numbers] = table[numbers].astype("float64")
    limits = table.dropna(subset="limit_w").groupby("entity")["limit_w"].last()
    for name, limit in limits[limits > 0].items():
        entities[str(name)]["limit_w"] = float(limit)
    common = ["time_ns", "entity", "line"]
    states = table.dropna(subset=["limit_w", "temperature_c"], how="all")
    states = states.assign(limit_w=states["limit_w"].where(states["limit_w"] >= 0))
    counters = table.dropna(subset="energy_j")
    energies = counters[[*common, "energy_j"]] if len(counters) else None
    explained = states[[*common, "limit_w", "temperature_c"]] if len(states) else None
    return PowerPart(table[[*common, "power_w"]], entities, findings, energies, explained)
