"""Sweeps of the power limit: how fast a job is, and what it draws, under each limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, given_paths, shown, survey
from workbench.load._files.findings import Finding, Findings, listed
from workbench.load._files.stream import plain_name
from workbench.load._files.tables import csv_table, header_of, json_table, keys_of
from workbench.load._files.wanted import FAILURE_LOGS, appearance
from workbench.load._power.formats.zeus import ENERGY, LIMIT, WINDOW
from workbench.tables import POWER_SWEEPS

_HEAD_BYTES = 1 << 16
_UNKNOWN = "is not a sweep of power limits"
# A sensor and the control of the limit are both this accurate.
_ABOVE_LIMIT_RATIO = 1.05


def power_sweeps(path: Paths) -> pd.DataFrame:
    r"""Load what jobs draw, and how long they take, under one power limit after the other.

    A limit costs time and saves energy; how much of each is different for every job, and only
    a sweep tells. Everything is per GPU: of a job on four GPUs, power and energy are the mean
    of the four. Measurements of one job under one limit are one row, their mean; numbers that
    can be none are missing, and ``doubt`` says so.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these, of

        - the traces of Zeus (``summary_power_v100.csv``): a row per job and limit,
        - windows of the ZeusMonitor, one per limit, as its optimiser names them,
        - the profile that this optimiser keeps (JSON: ``power_limit``, ``energy``, ``time``),
        - a CSV file of your own with ``limit_w``, ``time_s`` and one of ``power_w`` and
          ``energy_j``, and any of ``gpu``, ``job``, ``dataset``, ``network``,
          ``batch_count``, ``variant``, ``gpu_count`` (power and energy are per GPU, too).

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_SWEEPS`, in order of GPU, job and limit.
        ``attrs["passed_over"]`` lists the other files under ``path``.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is a sweep, or a row of one is damaged (names file, line and
        column).

    Notes
    -----
    ``energy_j`` and ``time_s`` are means over the measurements, and ``power_w`` is their
    quotient, so that ``energy_j = power_w * time_s`` holds for every row.

    References
    ----------
    You, Chung, Chowdhury: *Zeus*, NSDI 2023; ml-energy/zeus,
    ``examples/research_reproducibility/zeus_nsdi23/trace``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "mine.csv")
    >>> _ = file.write_text("job,limit_w,power_w,time_s\nbert,400,390,100\nbert,300,296,110\n")
    >>> power_sweeps(file)[["job", "limit_w", "energy_j", "run_count"]].values.tolist()
    [['bert', 300.0, 32560.0, 1], ['bert', 400.0, 39000.0, 1]]
    """
    result = survey(path, wanted=FAILURE_LOGS)
    passed_over = [remark.row for remark in result.remarks]
    tables = []
    for source in result.sources:
        head = source.head(_HEAD_BYTES)
        rows = rows_of(source, head)
        if rows is None:
            passed_over.append(
                (source.label, "skipped by design", _UNKNOWN, 1, appearance(head, source.label))
            )
        else:
            tables.append(rows)
    if not any(map(len, tables)):
        _raise_unknown(path, passed_over)
    table = _together(pd.concat(tables, ignore_index=True))
    table.attrs["passed_over"] = [f"{source}: {text}" for source, _, text, *_ in passed_over]
    return POWER_SWEEPS.check(table)


def _together(rows: pd.DataFrame) -> pd.DataFrame:
    rows = _whole(rows)
    keys = ["source", "gpu", "job", "limit_w"]
    # A measurement that lacks something is only taken where there is no whole one.
    total = rows.groupby(keys, dropna=False)["energy_j"].transform("count")
    is_less = rows["energy_j"].isna() & (total > 0)
    rows = rows.assign(power_w=rows["power_w"].mask(is_less), time_s=rows["time_s"].mask(is_less))
    groups = rows.groupby(keys, sort=False, dropna=False)
    first = ["dataset", "network", "batch_count", "gpu_count", "line"]
    table = groups[first].first()
    table["run_count"] = groups["energy_j"].count().clip(lower=1)
    for name in ("power_w", "time_s", "energy_j"):
        table[name] = groups[name].mean()
    table["variant"] = groups["variant"].agg(lambda texts: _joined(texts, ", "))
    table["doubt"] = groups["doubt"].agg(lambda texts: _joined(texts, "; "))
    # The power over several runs weighs each by its duration.
    quotient = table["energy_j"] / table["time_s"]
    table["power_w"] = quotient.fillna(table["power_w"])
    table["variant"] = table["variant"].where(table["variant"] != "")
    table = table.reset_index()
    by_name = table.sort_values(["gpu", "job", "limit_w", "source"], kind="stable")
    return POWER_SWEEPS.cast(by_name.reset_index(drop=True))


def _joined(texts: pd.Series, between: str) -> str:
    return between.join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    columns = [*NUMBERS, "batch_count", "gpu_count", *TEXTS, "source", "line"]
    rows = rows.reindex(columns=columns)
    doubts: list[tuple[Iterable[str], pd.Series]] = []
    for name in NUMBERS:
        bad = (rows[name] <= 0) | np.isinf(rows[name])
        doubts += [([f"{name} is {value:g}" for value in rows[name]], bad)]
        rows[name] = rows[name].mask(bad)
    for name in ("batch_count", "gpu_count"):
        is_whole = rows[name].between(1, 1e15) & (rows[name] % 1 == 0)
        doubts += [([f"{name} is {n:g}" for n in rows[name]], ~is_whole & rows[name].notna())]
        rows[name] = rows[name].where(is_whole)
    stated = rows["power_w"] * rows["time_s"]
    # A percent is left to rounding.
    is_off = (rows["energy_j"] / stated - 1).abs() > 0.01
    doubts += [_said("energy is not power x time", is_off)]
    rows["energy_j"] = rows["energy_j"].fillna(stated)
    rows["power_w"] = rows["power_w"].fillna(rows["energy_j"] / rows["time_s"])
    rows["time_s"] = rows["time_s"].fillna(rows["energy_j"] / rows["power_w"])
    is_above = rows["power_w"] > _ABOVE_LIMIT_RATIO * rows["limit_w"]
    doubts += [_said("draws more than its limit", is_above)]
    doubts += [_said(f"no {name[:-2]}", rows[name].isna()) for name in NUMBERS[:3]]
    rows["doubt"] = _listed(doubts)
    return rows.assign(gpu_count=rows["gpu_count"].fillna(1))


def _said(text: str, bad: pd.Series) -> tuple[list[str], pd.Series]:
    return [text] * len(bad), bad


def _listed(doubts: Sequence[tuple[Iterable[str], pd.Series]]) -> list[str]:
    columns = [
        [text if is_bad else "" for text, is_bad in zip(words, bad, strict=True)]
        for words, bad in doubts
    ]
    return ["; ".join(filter(None, column)) for column in zip(*columns, strict=True)]


def _raise_unknown(path: Paths, findings: Sequence[Finding]) -> NoReturn:
    paths = ", ".join(shown(entry) for entry in given_paths(path))
    msg = (
        f"{paths}: no readable sweep of power limits found; supported: traces, windows and "
        "profiles of Zeus, and CSV files with limit_w, time_s and power_w or energy_j."
        f"{listed(findings)}"
    )
    raise LoadError(msg)


# The rows of one file of a sweep of power limits, one per measurement.

NUMBERS = ("limit_w", "power_w", "time_s", "energy_j")
TEXTS = ("gpu", "job", "dataset", "network", "variant")
# Files of the optimiser are called GPU+job+gpu0,1.csv; those of its traces, by their GPU.
_PROFILED = re.compile(r"([^+]+)\+([^+]+)\+gpu[\d,]+")
_SUMMARY = re.compile(r"summary_power_(\w+)")

_ZEUS = ("network", "power_limit", "time_per_epoch", "average_power")
_PROFILE = ("power_limit", "energy", "time")


def rows_of(source: Source, head: bytes) -> pd.DataFrame | None:
    """Read one file, a row per measurement; None if it is not a sweep."""
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
    # The GPU is in the name of the file: summary_power_v100.csv.
    gpu = _SUMMARY.fullmatch(stem)
    rows = pd.DataFrame({
        "limit_w": cells.numbers("power_limit"), "power_w": cells.numbers("average_power"),
        "time_s": cells.numbers("time_per_epoch"), "dataset": cells.texts("dataset"),
        "network": cells.texts("network"), "variant": cells.texts("optimizer"),
    })  # fmt: skip
    rows["gpu"] = gpu[1].upper() if gpu else None
    rows["batch_count"] = cells.numbers("batch_size") if "batch_size" in cells.raw else np.nan
    return _named(rows, stem)


def _of_windows(cells: _Cells, stem: str) -> pd.DataFrame | None:
    """Read windows that the optimiser of Zeus made, one per limit; others are not sweeps."""
    limit = cells.raw["window_name"].str.extract(rf"^{LIMIT.pattern}$")[0].astype("float64")
    names = [str(name) for name in cells.raw.columns]
    energies = [name for name in names if (result := ENERGY.fullmatch(name)) and result[2] == "gpu"]
    if limit.isna().all() or not energies:
        return None
    energy = pd.DataFrame({name: cells.numbers(name) for name in energies})
    rows = pd.DataFrame(
        {
            "limit_w": limit,
            "time_s": cells.numbers("elapsed_time"),
            # Per GPU, and unknown if one of them has no energy.
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
    rows = pd.DataFrame({own: cells.numbers(foreign) for own, foreign in names.items()})
    return rows.assign(job=stem)


def _named(rows: pd.DataFrame, stem: str) -> pd.DataFrame:
    """Name jobs that have no name by what they ran, or by their file."""
    words = rows.reindex(columns=["job", "dataset", "network", "batch_count"])
    names = []
    for job, dataset, network, batch in words.itertuples(index=False):
        size = f"batch {batch:g}" if batch > 0 else None
        tables = [piece for piece in (dataset, network, size) if isinstance(piece, str)]
        names.append(job if isinstance(job, str) else "/".join(tables) or stem)
    return rows.assign(job=names)


def _refuse_damage(findings: Findings) -> None:
    # Files of sweeps are small, so a damaged one is refused instead of read in part.
    damaged = findings.frame()
    damaged = damaged[damaged["finding"].isin(["dropped", "truncated", "suspicious"])]
    if len(damaged):
        row = damaged.iloc[0]
        where = "" if pd.isna(row["where"]) else f", {row['where']}"
        msg = f"{findings.source}{where}: {row['what']}; repair it, or get the file again"
        raise LoadError(msg)


def _stem(source: Source) -> str:
    name = re.split(r"[/!]", source.member or source.path.name)[-1]
    return re.sub(r"\.(csv|json)$", "", plain_name(name))
