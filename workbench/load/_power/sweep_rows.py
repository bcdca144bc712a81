"""The rows of one file of a sweep of power limits, one per measurement."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Source
from workbench.load._files.findings import Findings
from workbench.load._files.packings import plain_name
from workbench.load._files.text_tables import csv_table, header_of, json_table, keys_of
from workbench.load._power.formats.zeus import ENERGY, LIMIT, WINDOW

NUMBERS = ("limit_w", "power_w", "time_s", "energy_j")
TEXTS = ("gpu", "job", "dataset", "network", "variant")
# Files of the optimiser are called GPU+job+gpu0,1.csv; those of its traces, by their GPU.
_PROFILED = re.compile(r"([^+]+)\+([^+]+)\+gpu[\d,]+")
_SUMMARY = re.compile(r"summary_power_(\w+)")

_ZEUS = ("network", "power_limit", "time_per_epoch", "average_power")
_PROFILE = ("power_limit", "energy", "time")


def rows_of(source: Source, head: bytes) -> pd.DataFrame | None:
    """Read one file, a row per measurement; None if it is no sweep."""
    findings = Findings(source.label)
    header, keys, stem = header_of(head), keys_of(head), _stem(source)
    rows: pd.DataFrame | None
    if set(_ZEUS) <= set(header):
        rows = _of_trace(_table(source, findings), stem)
    elif set(WINDOW) <= set(header):
        rows = _of_windows(_table(source, findings), stem)
    elif "limit_w" in header and {"power_w", "energy_j", "time_s"} & set(header):
        rows = _of_own(_table(source, findings), stem)
    elif set(_PROFILE) <= set(keys) or "measurements" in keys:
        rows = _of_profile(source, findings, stem)
    else:
        return None
    _refuse_damage(findings)
    return None if rows is None else rows.assign(source=source.label, line=rows.index)


class _Cells:
    """Columns of a table of text, as numbers and names; refuses what is none."""

    def __init__(self, raw: pd.DataFrame, label: str, noun: str = "line") -> None:
        self.raw, self._label, self._noun = raw, label, noun

    def numbers(self, name: str) -> pd.Series:
        """Read a column as floats, empty cells missing."""
        values = pd.to_numeric(self.raw[name], errors="coerce").astype("float64")
        bad = values.isna() & self.raw[name].notna()
        if bad.any():
            line = int(self.raw.index[bad][0])
            msg = (
                f"{self._label}, {self._noun} {line:,}: {name} is {self.raw[name][bad].iloc[0]!r}, "
                "not a number"
            )
            raise LoadError(msg)
        return values

    def texts(self, name: str) -> pd.Series:
        """Read a column as names; missing where the table has none."""
        if name in self.raw:
            return self.raw[name]
        return pd.Series(None, index=self.raw.index, dtype=pd.Series([""]).dtype)


def _table(source: Source, findings: Findings) -> _Cells:
    raw = csv_table(source, findings)
    _refuse_damage(findings)  # a header that is cut leaves no column to look at
    return _Cells(raw, source.label)


def _of_trace(cells: _Cells, stem: str) -> pd.DataFrame:
    """Read a trace of Zeus: the GPU is in the name of the file."""
    gpu = _SUMMARY.fullmatch(stem)
    rows = pd.DataFrame(
        {
            "limit_w": cells.numbers("power_limit"),
            "power_w": cells.numbers("average_power"),
            "time_s": cells.numbers("time_per_epoch"),
            "dataset": cells.texts("dataset"),
            "network": cells.texts("network"),
            "variant": cells.texts("optimizer"),
        }
    )
    rows["gpu"] = gpu[1].upper() if gpu else None
    rows["batch_count"] = cells.numbers("batch_size") if "batch_size" in cells.raw else np.nan
    return _named(rows, stem)


def _of_windows(cells: _Cells, stem: str) -> pd.DataFrame | None:
    """Read windows that the optimiser of Zeus made, one per limit; others are no sweep."""
    limit = cells.raw["window_name"].str.extract(rf"^{LIMIT.pattern}$")[0].astype("float64")
    names = [str(name) for name in cells.raw.columns]
    energies = [name for name in names if (found := ENERGY.fullmatch(name)) and found[2] == "gpu"]
    if limit.isna().all() or not energies:
        return None
    energy = pd.DataFrame({name: cells.numbers(name) for name in energies})
    rows = pd.DataFrame(
        {
            "limit_w": limit,
            "time_s": cells.numbers("elapsed_time"),
            "energy_j": energy.where(energy > 0).mean(axis="columns", skipna=False),
            "gpu_count": len(energies),
        }
    )
    profiled = _PROFILED.fullmatch(stem)
    count = f" on {len(energies)} GPUs" if len(energies) > 1 else ""
    rows["gpu"] = profiled[1] if profiled else None
    rows["network"] = profiled[2] if profiled else None
    rows["job"] = f"{profiled[2] if profiled else stem}{count}"
    return rows[limit.notna()]


def _of_own(cells: _Cells, stem: str) -> pd.DataFrame:
    rows = pd.DataFrame({name: cells.texts(name) for name in TEXTS})
    for name in (*NUMBERS, "batch_count", "gpu_count"):
        if name in cells.raw:
            rows[name] = cells.numbers(name)
    return _named(rows, stem)


def _of_profile(source: Source, findings: Findings, stem: str) -> pd.DataFrame | None:
    raw = json_table(source, findings, key="measurements")
    if not set(_PROFILE) <= set(raw.columns):
        return None
    cells = _Cells(raw, source.label, "record")
    names = dict(zip(("limit_w", "energy_j", "time_s"), _PROFILE, strict=True))
    rows = pd.DataFrame({ours: cells.numbers(theirs) for ours, theirs in names.items()})
    return rows.assign(job=stem)


def _named(rows: pd.DataFrame, stem: str) -> pd.DataFrame:
    """Name jobs that have no name by what they ran, or by their file."""
    said = rows.reindex(columns=["job", "dataset", "network", "batch_count"])
    names = []
    for job, dataset, network, batch in said.itertuples(index=False):
        size = f"batch {batch:g}" if batch > 0 else None
        parts = [part for part in (dataset, network, size) if isinstance(part, str)]
        names.append(job if isinstance(job, str) else "/".join(parts) or stem)
    return rows.assign(job=names)


def _refuse_damage(findings: Findings) -> None:
    """Refuse a file of which anything could not be read; such files are small."""
    damaged = findings.frame()
    damaged = damaged[damaged["finding"].isin(["left out", "truncated", "suspicious"])]
    if len(damaged):
        row = damaged.iloc[0]
        where = "" if pd.isna(row["where"]) else f", {row['where']}"
        msg = f"{findings.source}{where}: {row['what']}; mend it, or get the file again"
        raise LoadError(msg)


def _stem(source: Source) -> str:
    name = re.split(r"[/!]", source.member or source.path.name)[-1]
    return re.sub(r"\.(csv|json)$", "", plain_name(name))
