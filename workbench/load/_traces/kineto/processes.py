"""Files into which somebody merged several ranks: told apart by their processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from workbench._shared.kernel_kinds import GPU_WORK
from workbench.errors import LoadError
from workbench.load._files.findings import Findings
from workbench.load._traces.kineto._stream import RawTrace
from workbench.load._traces.kineto.blocks import MISSING, Columns, Copied
from workbench.load._traces.kineto.rank import RENAMED, RUNTIME

IntArray = npt.NDArray[np.int64]
_SEVERAL = -2
# Scripts that merge write the rank in front of each process: "[TP01] 4711", "rank1 python 4711".
_DIGITS = re.compile(r"(\d+)")
_NUMBER = re.compile(r"\d+\s*$")
_RANK = re.compile(r"rank[ _-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ADVICE = "load the files of the ranks as the profiler wrote them, one per rank"


class ProcessFinder:
    """Finds the processes of parsed files whose texts have common numbers."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [*texts, ""]  # the last, number -1, is that of rows without a text
        spelled = [RENAMED.get(text, text) for text in self._texts]
        self._is_call = np.array([text in RUNTIME for text in spelled])
        self._is_operator = np.array([text == "cpu_op" for text in spelled])
        self._is_work = np.array([text in GPU_WORK for text in spelled])

    def parts(self, raw: RawTrace) -> list[RawTrace]:
        """Return a file as it is, or one part per process of the host where it has several.

        Raises
        ------
        LoadError
            If it cannot be told which GPU work is of which process.
        """
        # Roctracer counts processes as the host does, PyTorch as the container: one kind decides.
        called = (self._hosts(raw.columns, is_of) for is_of in (self._is_call, self._is_operator))
        if (hosts := next((pids for pids in called if len(pids) > 1), None)) is None:
            return [raw]
        slots, rows = raw.columns.slots, raw.columns.whole()
        names = [self._texts[host] for host in hosts]
        owner, is_in_order = self._owner(rows, hosts, _ids(rows, slots.position, self._is_work))
        if lost := int((owner < 0).sum()):
            msg = (
                f"{raw.findings.source}: holds {len(hosts)} processes, merged into one file, and "
                f"{lost:,} rows of GPUs could be of more than one of them (neither ids of launches "
                f"nor names nor the order of the file tell); {_ADVICE}"
            )
            raise LoadError(msg)
        # Where rows are sorted by time, who was the first says nothing of ranks.
        by_rank = sorted(
            range(len(hosts)), key=lambda at: at if is_in_order else _natural(names[at])
        )
        columns = [Columns.part(slots, rows, owner == at) for at in by_rank]
        return _split(raw, columns, [names[at] for at in by_rank])

    def _hosts(self, columns: Columns, is_wanted: npt.NDArray[np.bool_]) -> list[int]:
        """Return the distinct processes of some categories, in the order of the file."""
        hosts: list[int] = []
        for pid, category in columns.pieces("pid", "cat"):
            of_host = pid[is_wanted[category]]
            if len(of_host) and (of_host != (hosts or of_host)[0]).any():
                distinct, first = np.unique(of_host, return_index=True)
                hosts += distinct[np.argsort(first)].tolist()
            elif not hosts:
                hosts += of_host[:1].tolist()
        # Rows of the profiler itself are of "Spans", "Traces" or nothing.
        return [host for host in dict.fromkeys(hosts) if _DIGITS.search(self._texts[host])]

    def _owner(self, rows: Copied, hosts: Sequence[int], ids: IntArray) -> tuple[IntArray, bool]:
        """Return the process of each row, and whether one process follows the other.

        -1 stands for GPU work that may be of more than one.
        """
        pid, work = rows[0]["pid"], self._is_work[rows[0]["cat"]]
        owner = np.full(len(pid), -1, np.int64)
        for number, host in enumerate(hosts):
            owner[pid == host] = number
        calls = np.where(self._is_call[rows[0]["cat"]], owner, -1)
        by_id = _by_id(ids, calls, work)
        by_place, is_in_order = _by_place(owner, len(hosts), rows[0]["ts"])
        labels = [_label(self._texts[host]) for host in hosts]
        for lane in np.unique(pid[owner < 0]).tolist():
            own = np.flatnonzero((pid == lane) & (owner < 0))
            label = _label(self._texts[lane])
            if label and labels.count(label) == 1:
                owner[own] = labels.index(label)
            else:
                owner[own] = by_place[own] if is_in_order else _of_lane(by_id[own])
        # Launches in none but another process contradict what names or places say.
        owner[work & (by_id >= 0) & (by_id != owner)] = -1
        owner = np.where(work | (owner >= 0), np.maximum(owner, -1), by_place.clip(0))
        return owner, is_in_order


def _by_place(owner: IntArray, count: int, ts: IntArray) -> tuple[IntArray, bool]:
    """Return the process whose part of the file holds each row, and if the file has such parts."""
    places = [np.flatnonzero(owner == number)[[0, -1]] for number in range(count)]
    first, last = np.array(places).T
    by_place = np.searchsorted(first, np.arange(len(owner)), side="right") - 1
    # Of rows that a script sorted by time, the place says nothing.
    is_sorted = bool((np.diff(ts) >= 0).all())
    return by_place, bool((last[:-1] < first[1:]).all()) and not is_sorted


def _of_lane(by_id: IntArray) -> IntArray:
    """Give rows without a launch in the file to the process of all others of their lane."""
    told = np.unique(by_id[by_id != -1])
    return np.full(len(by_id), told[0]) if len(told) == 1 else by_id


def _by_id(ids: IntArray, caller: IntArray, work: npt.NDArray[np.bool_]) -> IntArray:
    """Return the only process with calls of the id of a GPU row; -1 if none, -2 if several have."""
    process = np.full(len(ids), -1, np.int64)
    for number in range(int(caller.max(initial=-1)) + 1):
        own = ids[(caller == number) & (ids != MISSING)]
        is_there = work & np.isin(ids, own)
        process[is_there] = np.where(process[is_there] == -1, number, _SEVERAL)
    return process


def _natural(name: str) -> list[int | str]:
    return [int(text) if text.isdecimal() else text for text in _DIGITS.split(name)]


def _label(text: str) -> str:
    """Return what stands in front of the number of a process; of a plain number nothing."""
    if (rank := _RANK.search(text)) is not None:
        return f"rank {rank[1]}"
    return _NUMBER.sub("", text).strip()


def _ids(rows: Copied, slots: Mapping[str, int], is_work: npt.NDArray[np.bool_]) -> IntArray:
    """Return the first of correlation and external id that GPU rows have."""
    fields, values = rows
    work = is_work[fields["cat"]]
    for name in ("correlation", "External id", "external id"):
        ids = values.get(slots[name])
        if ids is not None and (ids[work] != MISSING).any():
            return ids
    return np.full(len(work), MISSING, np.int64)


def _split(raw: RawTrace, columns: Sequence[Columns], names: Sequence[str]) -> list[RawTrace]:
    """Make one raw trace per process; what was counted of the file stands with the first."""
    label, metadata = raw.findings.source, dict(raw.metadata)
    info = metadata.get("distributedInfo")
    info = dict(info) if isinstance(info, dict) else {}
    # It is that of the first file that was merged.
    info.pop("rank", None)
    ranks = [int(rank[1]) if (rank := _RANK.search(name)) else None for name in names]
    is_told = None not in ranks and len(set(ranks)) == len(ranks)
    parts = []
    columns[0].phases, columns[0].unreadable = raw.columns.phases, raw.columns.unreadable
    for number, (name, of_process) in enumerate(zip(names, columns, strict=True)):
        findings = Findings(f"{label}!process {name}")
        if number == 0:
            for _, finding, what, count, where in raw.findings.rows():
                findings.add(finding, what, count, where)
            what = "processes merged into one file, each of them a rank"
            what += "" if is_told else ", in the order of the file"
            findings.add("noted" if is_told else "assumed", what, len(names))
        told = info | ({"rank": ranks[number]} if is_told else {})
        parts.append(
            replace(raw, columns=of_process, findings=findings,
                    metadata=metadata | {"distributedInfo": told})
        )  # fmt: skip
    return parts
