"""Windows of the ZeusMonitor: the energy that each GPU used between two points of a program.

References
----------
You, Chung, Chowdhury: *Zeus*, NSDI 2023; ml-energy/zeus, ``ZeusMonitor(log_file=...)``.
"""

from __future__ import annotations

import re

import pandas as pd

from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings, Row
from workbench.load._files.tables import csv_table, header_of
from workbench.load._power.part import (
    NoPowerError,
    PowerOptions,
    PowerPart,
    numbers_of,
    readings_of_windows,
)

NAME = "Zeus windows"
WINDOW = ("start_time", "window_name", "elapsed_time")
ENERGY = re.compile(r"((gpu|cpu|dram)(\d+))_energy")
LIMIT = re.compile(r"__GlobalPowerLimitOptimizer_(\d+(?:\.\d+)?)")
_SCOPES = {"gpu": "gpu", "cpu": "cpu", "dram": "memory"}
_SECOND = 1_000_000_000
# Times since 1970 are beyond this; a clock that counts from the start of a machine is not.
_EPOCH_S, _LAST_S = 1e9, 4e9


def looks_like(head: bytes, label: str) -> bool:  # noqa: ARG001 - the name says nothing
    """Recognise the header: a window, its time, and the energy of at least one device."""
    names = header_of(head)
    return set(WINDOW) <= set(names) and any(map(ENERGY.fullmatch, names))


def read_power(source: Source, options: PowerOptions) -> PowerPart:
    """Read the mean power of each window, and its energy as a counter.

    Zeus may stamp windows with a clock that counts from the start of the machine; such files
    are with an unsynchronized clock. The limit that a window of its optimiser names is a state.
    """
    findings = Findings(source.label)
    raw = csv_table(source, findings)
    windows, clock = _windows(raw, options, findings)
    if windows.empty:
        msg = f"{source.label}: holds a header and no window with a time"
        raise NoPowerError(msg)
    readings, counters, chosen = readings_of_windows(windows, findings)
    facts: Row = {"method": "average", "clock": clock, "node": options.node, "unit": "W"}
    facts["assumed"] = f"node={options.node}" if options.node else ""
    devices = windows[["entity", "scope", "device"]].drop_duplicates("entity").set_index("entity")
    entities = {
        str(name): {**facts, "scope": row["scope"], "device": row["device"]}
        for name, row in devices.to_dict("index").items()
    }
    return PowerPart(readings, entities, findings, counters, _states(chosen))


def _windows(
    raw: pd.DataFrame, options: PowerOptions, findings: Findings
) -> tuple[pd.DataFrame, str]:
    """Return a row per window and device, and the clock they are on."""
    start_s, spent_s = (numbers_of(raw, name, findings) for name in ("start_time", "elapsed_time"))
    # No window lasts 32 years (1e9 s).
    is_timed = start_s.between(0, _LAST_S) & spent_s.between(0, 1e9)
    if (~is_timed).any():
        where = f"line {int(raw.index[~is_timed][0]):,}"
        findings.add("dropped", "windows without a usable time", int((~is_timed).sum()), where)
    raw, start_s, spent_s = raw[is_timed], start_s[is_timed], spent_s[is_timed]
    clock = "epoch" if len(raw) and start_s.median() >= _EPOCH_S else "own"
    start_ns = (start_s * _SECOND).round().astype("int64")
    end_ns = start_ns + (spent_s * _SECOND).round().astype("int64")
    limit = raw["window_name"].str.extract(rf"^{LIMIT.pattern}$")[0].astype("float64")
    times = {"start_ns": start_ns, "end_ns": end_ns, "line": raw.index}
    pieces = [
        pd.DataFrame(
            {
                **times,
                "entity": f"{options.node}/{device[1]}" if options.node else device[1],
                "scope": _SCOPES[device[2]],
                "device": device[3],
                "energy_j": _energies(raw, device[0], findings),
                # The optimizer sets the limit of GPUs only.
                "limit_w": limit if device[2] == "gpu" else float("nan"),
            }
        )
        for device in filter(None, map(ENERGY.fullmatch, map(str, raw.columns)))
    ]
    return pd.concat(pieces, ignore_index=True), clock


def _energies(raw: pd.DataFrame, name: str, findings: Findings) -> pd.Series:
    energy = numbers_of(raw, name, findings)
    bad = (energy < 0) | (energy == float("inf"))
    if bad.any():
        where = f"line {int(raw.index[bad][0]):,}: {raw[name][bad].iloc[0]}"
        findings.add("dropped", f"energies of {name} that can be none", int(bad.sum()), where)
    return energy.mask(bad)


def _states(chosen: pd.DataFrame) -> pd.DataFrame | None:
    limited = chosen[chosen["limit_w"].notna()]
    if limited.empty:
        return None
    ends = [limited.assign(time_ns=limited[name]) for name in ("start_ns", "end_ns")]
    joined = pd.concat(ends).sort_values(["entity", "time_ns"], kind="stable", ignore_index=True)
    return joined[["time_ns", "entity", "limit_w", "line"]]
