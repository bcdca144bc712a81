"""What may be one incident: a node with all its devices, or a job with all its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import numpy as np
import pandas as pd

# One fault of a GPU, a switch or the host is reported under many codes and by many devices, so
# these fold across codes, devices and kinds. What does not stop a node ("kernel", not fatal)
# may be repeated for weeks and would tie failures together that have nothing in common.
_NODE_KINDS = ("xid", "sxid", "amdgpu")
_HOST_KIND = "kernel"
# Reporters that tell of devices, each from its own point of view.
_DEVICE_REPORTERS = ("dcgm", "kubernetes")
# Of a collective that hangs or a process that dies, every rank of the job tells.
_JOB_KINDS = ("nccl", "torchelastic")


def fold_keys(rows: pd.DataFrame) -> np.ndarray:
    """Give what may fold together one number."""
    fatal = rows["severity"] == "fatal"
    of_node = rows["kind"].isin(_NODE_KINDS) | ((rows["kind"] == _HOST_KIND) & fatal)
    of_device = rows["kind"].isin(_DEVICE_REPORTERS) & rows["device"].notna()
    of_job = is_job_wide(rows)
    across_codes = of_node | of_device | of_job
    is_anywhere = (rows["node"].isna() & ~of_job) | (rows["clock"] == "own")
    text = rows[["kind", "clock", "node", "source", "rank", "code", "job"]].astype(object)
    run, repeat = _runs(rows, of_job)
    parts = pd.DataFrame(
        {
            "family": text["kind"].mask(of_node, "node").mask(of_device, text["kind"] + " device"),
            "clock": text["clock"],
            "is_timed": rows["start_ns"].notna(),
            "node": text["node"].mask(of_job, None),
            "source": text["source"].where(is_anywhere, None),
            "rank": text["rank"].mask(across_codes, None),
            "code": text["code"].mask(across_codes, None),
            "job": text["job"].mask(across_codes & ~of_job, None),
            "run": run,
            "repeat": repeat,
        }
    )
    return parts.groupby(list(parts), dropna=False, sort=False).ngroup().to_numpy()


def is_job_wide(rows: pd.DataFrame) -> pd.Series:
    """Say which rows any rank of a job may report of one and the same failure."""
    # Events of a network card are warnings, and of that card only.
    return rows["kind"].isin(_JOB_KINDS) & (rows["severity"] == "fatal")


def _runs(rows: pd.DataFrame, of_job: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Assign numbers to jobs that have no name, and to repeats that have no time."""
    run, repeat = pd.Series(0, index=rows.index), pd.Series(0, index=rows.index)
    some = rows[of_job].sort_values(["source", "line"], kind="stable")
    if some.empty:
        return run, repeat
    member = _members(some)
    nameless = some["job"].isna()
    run_of = _runs_of_files(some.loc[nameless, "source"], member[nameless])
    run[of_job] = some["source"].where(nameless).map(run_of).fillna(0).astype("int64")
    untimed = some["start_ns"].isna()
    who = [run.reindex(some.index), some["job"].astype(object), some["kind"], member, some["code"]]
    # Every rank tells of a failure once: what it tells again is another failure.
    again = some[untimed].groupby([each[untimed] for each in who], dropna=False).cumcount()
    repeat.update(again)
    return run, repeat


def _members(rows: pd.DataFrame) -> pd.Series:
    """Name the process that reports: its rank, else its host and GPU; empty if unknown."""
    place = rows["node"].fillna("").astype(str) + "|" + rows["device"].fillna("").astype(str)
    place = place.where(rows["node"].notna() & rows["device"].notna(), "")
    named = rows["rank"].astype(object).map(str).where(rows["rank"].notna(), place)
    return named.mask(rows["rank_count"] > 1, "several")


def _runs_of_files(sources: pd.Series, members: pd.Series) -> dict[str, int]:
    """Assign the files of one rank or host each to numbered jobs.

    No rank is in two files of one job that ran once; files of two jobs have ranks in common.
    Of several jobs that a file may belong to, the one with the most similar name is taken.
    """
    told = [(str(name), {*some} - {""}) for name, some in members.groupby(sources, sort=True)]
    runs: list[tuple[set[str], list[str]]] = []
    number_of: dict[str, int] = {}
    for source, names in told:
        # A file that names no rank is a job by itself.
        fits = [n for n, (taken, _) in enumerate(runs) if names and taken.isdisjoint(names)]
        fits = [n for n in fits if runs[n][0]]
        best = max(fits, key=lambda n: _alike(source, runs[n][1]), default=len(runs))
        if best == len(runs):
            runs.append((set(), []))
        runs[best][0].update(names)
        runs[best][1].append(source)
        number_of[source] = best + 1
    return number_of


def _alike(source: str, others: Iterable[str]) -> int:
    """Count the characters that a file name has in common with the last of others."""
    *_, last = others
    pairs = zip(source, last, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
