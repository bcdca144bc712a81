"""Sweeps of the power limit: how fast a job is, and what it draws, under each limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.appearance import appearance
from workbench.load._files.archive import survey
from workbench.load._files.findings import Finding, listed
from workbench.load._files.paths import Paths, given_paths, shown
from workbench.load._files.wanted import FAILURE_LOGS
from workbench.load._power.sweep_rows import NUMBERS, TEXTS, rows_of
from workbench.tables import POWER_SWEEPS

_HEAD_BYTES = 1 << 16
_UNKNOWN = "is no sweep of power limits"
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
    found = survey(path, wanted=FAILURE_LOGS)
    passed_over = [each.row for each in found.remarks]
    parts = []
    for source in found.sources:
        head = source.head(_HEAD_BYTES)
        rows = rows_of(source, head)
        if rows is None:
            passed_over.append((source.label, "set aside", _UNKNOWN, 1, appearance(head)))
        else:
            parts.append(rows)
    if not any(map(len, parts)):
        _raise_unknown(path, passed_over)
    table = _together(pd.concat(parts, ignore_index=True))
    table.attrs["passed_over"] = [f"{source}: {what}" for source, _, what, *_ in passed_over]
    return POWER_SWEEPS.check(table)


def _together(rows: pd.DataFrame) -> pd.DataFrame:
    """Make one row of the measurements of one job under one limit."""
    rows = _whole(rows)
    keys = ["source", "gpu", "job", "limit_w"]
    # A measurement that lacks something is only taken where there is no whole one.
    whole = rows.groupby(keys, dropna=False)["energy_j"].transform("count")
    is_less = rows["energy_j"].isna() & (whole > 0)
    rows = rows.assign(power_w=rows["power_w"].mask(is_less), time_s=rows["time_s"].mask(is_less))
    groups = rows.groupby(keys, sort=False, dropna=False)
    first = ["dataset", "network", "batch_count", "gpu_count", "line"]
    table = groups[first].first()
    table["run_count"] = groups["energy_j"].count().clip(lower=1)
    for name in ("power_w", "time_s", "energy_j"):
        table[name] = groups[name].mean()
    table["variant"] = groups["variant"].agg(lambda texts: _joined(texts, ", "))
    table["doubt"] = groups["doubt"].agg(lambda texts: _joined(texts, "; "))
    quotient = table["energy_j"] / table["time_s"]
    table["power_w"] = quotient.fillna(table["power_w"])
    table["variant"] = table["variant"].where(table["variant"] != "")
    table = table.reset_index()
    by_name = table.sort_values(["gpu", "job", "limit_w", "source"], kind="stable")
    return POWER_SWEEPS.cast(by_name.reset_index(drop=True))


def _joined(texts: pd.Series, between: str) -> str:
    return between.join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def _whole(rows: pd.DataFrame) -> pd.DataFrame:
    """Work out what is missing of power, time and energy, and say what is odd."""
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


def _said(what: str, bad: pd.Series) -> tuple[list[str], pd.Series]:
    return [what] * len(bad), bad


def _listed(doubts: Sequence[tuple[Iterable[str], pd.Series]]) -> list[str]:
    columns = [
        [text if is_bad else "" for text, is_bad in zip(said, bad, strict=True)]
        for said, bad in doubts
    ]
    return ["; ".join(filter(None, each)) for each in zip(*columns, strict=True)]


def _raise_unknown(path: Paths, findings: Sequence[Finding]) -> NoReturn:
    paths = ", ".join(shown(entry) for entry in given_paths(path))
    msg = (
        f"{paths}: nothing here is a sweep of power limits. Known are traces, windows and profiles "
        "of Zeus, and CSV files with limit_w, time_s and power_w or energy_j."
        f"{listed(findings)}"
    )
    raise LoadError(msg)
