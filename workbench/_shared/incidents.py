"""Fold the lines of one burst into one incident: shared by loaders and analyses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile

import numpy as np
import pandas as pd

from workbench._shared.follow_ons import (
    FOLLOW_ON,
    KERNEL_KINDS,
    is_told_as_alone,
    with_lone_follow_ons,
)
from workbench.tables import FAILURES

SECOND = 1_000_000_000
# "GPU stopped processing" comes first if the job itself is at fault, and late if it suffers.
_LATE = ("xid", "43")
_OF_PORTS = ("PCIe link down", "PCIe not ready")
_WORST = ("fatal", "warning", "unknown", "info")
# Longer than any log, and still inside int64 when it is added to a time.
_NEVER_NS = 1 << 62


def fold(failures: pd.DataFrame, *, window_s: float) -> pd.DataFrame:
    """Fold rows that follow each other within ``window_s`` into incidents, in order of time.

    All devices of a node, and all ranks of a job, are one incident. A follow-on with nothing before
    it becomes a failure of unknown trigger. A window of 0 folds nothing; rows without a time come
    last.
    """
    window_ns = _window_ns(window_s)
    rows = failures.reset_index(drop=True)
    if rows.empty:
        return FAILURES.check(FAILURES.cast(rows))
    start, end = _nanoseconds(rows["start_ns"]), _nanoseconds(rows["end_ns"])
    end = np.where(rows["end_ns"].isna(), start, np.maximum(start, end))
    key = fold_keys(rows)
    order = np.lexsort((rows["line"], pd.factorize(rows["source"])[0], start, key))
    rows, start, end, key = rows.iloc[order], start[order], end[order], key[order]
    # The latest end so far of the same key, up to the row before.
    reach = pd.Series(end).groupby(key).cummax().to_numpy()
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (key[1:] != key[:-1]) | (start[1:] - reach[:-1] > window_ns)
    alone = rows["start_ns"].isna() & ~is_job_wide(rows)
    is_new |= alone.to_numpy() | (window_ns == 0)
    folded = _incidents(rows.reset_index(drop=True), end, np.cumsum(is_new) - 1, is_new)
    return with_lone_follow_ons(folded, window_ns) if window_ns else folded


def at_once(failures: pd.DataFrame, *, most: int, within_s: float) -> np.ndarray:
    """Mark incidents of which more than ``most`` begin within some seconds.

    Only those of one reporter are compared, and only those that count: several reporters tell of
    one failure by design.
    """
    counted = ~failures["category"].isin(["planned", FOLLOW_ON]) & failures["severity"].ne("info")
    counted &= failures["start_ns"].notna()
    who = failures["kind"].where(~failures["kind"].isin(KERNEL_KINDS), "kernel")
    crowded = np.zeros(len(failures), dtype=bool)
    for _, rows in pd.DataFrame({"who": who, "clock": failures["clock"]})[counted].groupby(
        ["who", "clock"]
    ):
        position = failures.index.get_indexer(rows.index)
        start = _nanoseconds(failures["start_ns"])[position]
        position, start = position[np.argsort(start, kind="stable")], np.sort(start)
        until = np.searchsorted(start, start + round(within_s * SECOND), side="right")
        begins = np.flatnonzero(until - np.arange(len(start)) > most)
        # Plus one where a crowd begins and minus one behind it: a running sum marks its members.
        change = np.zeros(len(start) + 1, dtype=np.int64)
        np.add.at(change, begins, 1)
        np.add.at(change, until[begins], -1)
        crowded[position[np.cumsum(change[:-1]) > 0]] = True
    return crowded


def _window_ns(window_s: float) -> int:
    number: object = window_s
    is_number = isinstance(number, int | float | np.number) and not isinstance(number, bool)
    if not is_number or not np.isfinite(window_s) or window_s < 0:
        msg = f"window_s must be a number of seconds, 0 or more; got {window_s!r}"
        raise ValueError(msg)
    return min(round(float(window_s) * SECOND), _NEVER_NS)


def _nanoseconds(times: pd.Series) -> np.ndarray:
    return times.fillna(0).to_numpy(dtype="int64")


def _incidents(
    rows: pd.DataFrame, end: np.ndarray, incident: np.ndarray, is_first: np.ndarray
) -> pd.DataFrame:
    lead = rows.iloc[_leaders(rows, incident, is_first)].reset_index(drop=True)
    grouped = rows.groupby(incident, sort=True)
    has_time = lead["start_ns"].notna()
    severity = rows["severity"].where(rows["severity"].isin(_WORST), "unknown")
    worst = pd.Series(severity.map(_WORST.index)).groupby(incident).min()
    lead = lead.assign(
        start_ns=rows["start_ns"][is_first].reset_index(drop=True),
        end_ns=pd.Series(end).groupby(incident).max().astype("Int64").where(has_time),
        line_count=grouped["line_count"].sum().to_numpy(dtype="int64"),
        other_codes=_other_codes(rows, incident, lead),
        severity=[_WORST[code] for code in worst],
        **members(rows, incident, lead),
    )
    by_time = np.lexsort((lead["line"], _nanoseconds(lead["start_ns"]), ~has_time))
    lead = lead.iloc[by_time].reset_index(drop=True)
    extras = [name for name in lead if name not in FAILURES.columns]
    return FAILURES.check(pd.concat([FAILURES.cast(lead), lead[extras]], axis=1))


def _leaders(rows: pd.DataFrame, incident: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    is_late = (rows["kind"] == _LATE[0]) & (rows["code"] == _LATE[1]) & ~is_first
    # Processes crash because of a GPU more often than the other way round.
    is_late |= (rows["kind"] == "kernel") & (rows["category"] == "software")
    # The port of a device that is gone says so, too, often before the driver of the device.
    is_late |= (rows["kind"] == "kernel") & rows["code"].isin(_OF_PORTS)
    follows = (rows["category"] == FOLLOW_ON) | is_late
    follows |= is_told_as_alone(rows)
    order = np.lexsort((np.arange(len(rows)), follows, incident))
    return order[np.flatnonzero(np.diff(incident[order], prepend=-1))]


def _other_codes(rows: pd.DataFrame, incident: np.ndarray, lead: pd.DataFrame) -> list[str]:
    pairs = pd.DataFrame(
        {"incident": incident, "code": rows["code"], "others": rows["other_codes"]}
    ).drop_duplicates()
    pairs = pairs[pairs["incident"].duplicated(keep=False) | (pairs["others"] != "")]
    codes: dict[int, set[str]] = {}
    for number, code, codes_besides in pairs.itertuples(index=False, name=None):
        own = codes.setdefault(number, set())
        own.update(name for name in codes_besides.split(", ") if name)
        if not pd.isna(code):
            own.add(code)
    joined, leading = [""] * len(lead), lead["code"].tolist()
    for number, own in codes.items():
        # Numbers in their order, before names.
        codes_besides = sorted(own - {leading[number]}, key=lambda code: (_as_number(code), code))
        joined[number] = ", ".join(codes_besides)
    return joined


def _as_number(code: str) -> int:
    return int(code) if code.isdecimal() and len(code) < 18 else _NEVER_NS


# One fault of a GPU, a switch or the host is reported under many codes and by many devices, so
# these fold across codes, devices and kinds. What does not stop a node ("kernel", not fatal)
# may be repeated for weeks and would tie failures together that have nothing in common.
_NODE_KINDS = ("xid", "sxid", "amdgpu")
_HOST_KIND = "kernel"
# Reporters that name devices, each from its own point of view.
_DEVICE_REPORTERS = ("dcgm", "kubernetes")
# Of a collective that hangs or a process that dies, every rank of the job tells.
_JOB_KINDS = ("nccl", "torchelastic")


def fold_keys(rows: pd.DataFrame) -> np.ndarray:
    """Enumerate the rows that may be folded together."""
    fatal = rows["severity"] == "fatal"
    of_node = rows["kind"].isin(_NODE_KINDS) | ((rows["kind"] == _HOST_KIND) & fatal)
    of_device = rows["kind"].isin(_DEVICE_REPORTERS) & rows["device"].notna()
    of_job = is_job_wide(rows)
    across_codes = of_node | of_device | of_job
    is_anywhere = (rows["node"].isna() & ~of_job) | (rows["clock"] == "own")
    text = rows[["kind", "clock", "node", "source", "rank", "code", "job"]].astype(object)
    run, repeat = _runs(rows, of_job)
    keys = pd.DataFrame(
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
    return keys.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy()


def is_job_wide(rows: pd.DataFrame) -> pd.Series:
    """Return which rows any rank of a job may report of one and the same failure."""
    # Events of a network card are warnings, and of that card only.
    return rows["kind"].isin(_JOB_KINDS) & (rows["severity"] == "fatal")


def _runs(rows: pd.DataFrame, of_job: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Assign numbers to jobs that have no name, and to repeats that have no time."""
    run, repeat = pd.Series(0, index=rows.index), pd.Series(0, index=rows.index)
    failed = rows[of_job].sort_values(["source", "line"], kind="stable")
    if failed.empty:
        return run, repeat
    member = _members(failed)
    nameless = failed["job"].isna()
    run_of = _runs_of_files(failed.loc[nameless, "source"], member[nameless])
    run[of_job] = failed["source"].where(nameless).map(run_of).fillna(0).astype("int64")
    untimed = failed["start_ns"].isna()
    reporter = [
        run.reindex(failed.index),
        failed["job"].astype(object),
        failed["kind"],
        member,
        failed["code"],
    ]
    # Every rank reports a failure once: what it tells again is another failure.
    again = (
        failed[untimed].groupby([column[untimed] for column in reporter], dropna=False).cumcount()
    )
    repeat.update(again)
    return run, repeat


def _members(rows: pd.DataFrame) -> pd.Series:
    """Name the process that reports: its rank, else its host and GPU; empty if unknown."""
    device = rows["node"].fillna("").astype(str) + "|" + rows["device"].fillna("").astype(str)
    device = device.where(rows["node"].notna() & rows["device"].notna(), "")
    member = rows["rank"].astype(object).map(str).where(rows["rank"].notna(), device)
    return member.mask(rows["rank_count"] > 1, "several")


def _runs_of_files(sources: pd.Series, members: pd.Series) -> dict[str, int]:
    """Assign the files of one rank or host each to numbered jobs.

    No rank is in two files of one job that ran once; files of two jobs have ranks in common. Of
    several jobs that a file may belong to, the one with the most similar name is taken.
    """
    members_of_file = [
        (str(name), {*members_of} - {""})
        for name, members_of in members.groupby(sources, sort=True)
    ]
    runs: list[tuple[set[str], list[str]]] = []
    number_of: dict[str, int] = {}
    for source, names in members_of_file:
        # A file that names no rank is a job by itself.
        fits = [n for n, (held, _) in enumerate(runs) if names and held.isdisjoint(names)]
        fits = [n for n in fits if runs[n][0]]
        best = max(fits, key=lambda n: _alike(source, runs[n][1]), default=len(runs))
        if best == len(runs):
            runs.append((set(), []))
        runs[best][0].update(names)
        runs[best][1].append(source)
        number_of[source] = best + 1
    return number_of


# Files of one job differ in their ends (the rank), so the common beginning tells.
def _alike(source: str, names: list[str]) -> int:
    pairs = zip(source, names[-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


# A rank that waited reports these as well as the one at fault.
_NO_CULPRIT = ("unknown", "network", "follow-on")


def members(rows: pd.DataFrame, incident: np.ndarray, lead: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the columns that list the members of each incident."""
    hosts = pd.Series(rows["node"].to_numpy()).groupby(incident).nunique()
    # A network port or a PCI address is reported by its own host; a GPU index also by waiting ones.
    has_port = lead["device"].astype(object).map(lambda name: ":" in str(name))
    is_told = has_port | ~lead["category"].isin(_NO_CULPRIT)
    is_spread = pd.Series(hosts.to_numpy() > 1)
    nowhere = is_spread & ~is_told
    listed = rows["devices"].where(rows["devices"] != "", rows["device"].fillna(""))
    devices = pd.Series(_joined(listed, incident, len(lead)))
    own = lead["device"].fillna("").astype(str)
    ranked = rows["rank"].astype(object).map(str).where(rows["rank"].notna(), "")
    ranks = _joined(rows["ranks"].where(rows["ranks"] != "", ranked), incident, len(lead))
    spans = [tuple(_spans(_numbers(text))) if text else () for text in ranks]
    names = [", ".join(str(a) if a == b else f"{a}-{b}" for a, b in of) for of in spans]
    counts = [sum(last - first + 1 for first, last in of) for of in spans]
    return {
        "node": lead["node"].astype(object).mask(nowhere, None),
        "device": lead["device"].astype(object).mask(nowhere, None),
        "devices": devices.mask(is_spread, own).mask(nowhere, ""),
        "ranks": pd.Series(names, dtype=object),
        "rank_count": pd.Series(counts, dtype="int64"),
    }


def _joined(listed: pd.Series, incident: np.ndarray, count: int) -> list[str]:
    pairs = pd.DataFrame({"incident": incident, "text": listed.to_numpy(dtype=object)})
    pairs = pairs[pairs["text"] != ""].drop_duplicates()
    texts: dict[int, list[str]] = {}
    for number, text in pairs.itertuples(index=False, name=None):
        texts.setdefault(number, []).append(text)
    names = ({name for text in texts.get(n, ()) for name in text.split(", ")} for n in range(count))
    return [", ".join(sorted(listed, key=lambda name: (len(name), name))) for listed in names]


def _numbers(text: str) -> set[int]:
    numbers: set[int] = set()
    for span in text.split(", "):
        first, _, last = span.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        of_run = [number for _, number in run]
        yield of_run[0], of_run[-1]
