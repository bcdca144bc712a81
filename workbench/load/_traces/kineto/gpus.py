"""The GPUs of a process: each is a rank of its own, with what the host did for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.load._files.findings import Findings
from workbench.load._files.json_events import to_integer
from workbench.load._traces.kineto.blocks import MISSING, CodedTexts
from workbench.load._traces.kineto.files import Files, IntArray, Timed

Mask = npt.NDArray[np.bool_]

# A process that is one rank of many has a GPU of its own. On others it does little: a copy between
# two GPUs, a context on the first one.
_OWN_SHARE = 0.01
_MOST_DEVICES = 1 << 31
_UNPLACED = "GPU work without a device, counted on the GPU of the process with most work"
_ELSEWHERE = "GPU work on other GPUs than the rank's own, counted as the rank's"


class Gpu(NamedTuple):
    """One GPU of a process, or all of a process with one at most, and how much is of it."""

    device: int | None  # None where the process uses one GPU at most
    rows: int
    steps: int


class Rows(NamedTuple):
    """Columns that decide which GPU a row is of."""

    device: IntArray | None
    dur: IntArray
    is_work: Mask
    is_call: Mask
    ids: IntArray  # by which calls and GPU work are joined


class _Split(NamedTuple):
    """The rows of one GPU of a process, with those of the host."""

    file: int
    device: int | None
    rows: IntArray
    unplaced_count: int = 0
    elsewhere_count: int = 0


def by_gpu(
    timed: Timed,
    rows: Rows,
    text_columns: dict[str, CodedTexts],
    numbers: dict[str, IntArray],
    metadata: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[int, int | None]], Timed]:
    """Set the rows of each GPU of a process apart, the columns in place.

    Rows of the host are given to every GPU of the process, but for calls that launched work of
    other GPUs only. Returned is the file of each set of rows, and the GPU where the file has
    several.
    """
    splits = [*_splits(rows, timed.files, metadata)]
    if all(split.device is None for split in splits):
        _tell(splits, timed.files.findings)
        return [(split.file, None) for split in splits], timed
    taken, sizes = np.concatenate([split.rows for split in splits]), [len(s.rows) for s in splits]
    files = Files.of(sizes, _tell(splits, timed.files.findings))
    launch = numbers["launch"][taken]
    for split, (_, own) in zip(splits, files, strict=True):
        has_launch = own.start + np.flatnonzero(launch[own] != MISSING)
        launch[has_launch] = own.start + np.searchsorted(split.rows, launch[has_launch])
    numbers |= {name: values[taken] for name, values in numbers.items()} | {"launch": launch}
    text_columns |= {name: coded.take(taken) for name, coded in text_columns.items()}
    return [(split.file, split.device) for split in splits], replace(
        timed, start=timed.start[taken], dur=timed.dur[taken], files=files,
        pick=lambda values: timed.pick(values)[taken], pid=timed.pid[taken], tid=timed.tid[taken],
        name=timed.name[taken], cat=timed.cat[taken],
    )  # fmt: skip


def _splits(rows: Rows, files: Files, metadata: Sequence[Mapping[str, Any]]) -> Iterator[_Split]:
    several = set[int]()
    if rows.device is not None:
        known = np.flatnonzero(rows.is_work & _is_index(rows.device))
        file = np.searchsorted(files.bounds, known, side="right") - 1
        differs = (np.diff(rows.device[known]) != 0) & (np.diff(file) == 0)
        several = set(file[1:][differs].tolist())
    for at, (_, own) in enumerate(files):
        if at not in several or rows.device is None:
            yield _Split(at, None, np.arange(own.start, own.stop))
            continue
        of_file = Rows(
            rows.device[own], rows.dur[own], rows.is_work[own], rows.is_call[own], rows.ids[own]
        )
        yield from _of_file(of_file, at, own.start, is_one_of_many=_is_one_of_many(metadata[at]))


def _of_file(rows: Rows, file: int, start: int, *, is_one_of_many: bool) -> Iterator[_Split]:
    device = rows.device if rows.device is not None else np.zeros(0, np.int64)
    is_placed = rows.is_work & _is_index(device)
    devices, number = np.unique(device[is_placed], return_inverse=True)
    busy = np.bincount(number, weights=rows.dur[is_placed])
    largest = int(busy.argmax())
    is_own = busy >= _OWN_SHARE * busy.max() * is_one_of_many
    elsewhere = is_placed & np.isin(device, devices[~is_own])
    # The GPU of each row, by its place among those of the process; -1 for what is of all.
    owner = np.searchsorted(devices, device).clip(max=len(devices) - 1)
    owner[devices[owner] != device] = -1
    owner[elsewhere | (rows.is_work & ~is_placed)] = largest
    has_id = rows.ids != MISSING
    is_launch = rows.is_call & has_id & np.isin(rows.ids, rows.ids[rows.is_work & has_id])
    is_several = int(is_own.sum()) > 1
    for place in np.flatnonzero(is_own).tolist():
        is_here = owner == place
        own_ids = rows.ids[is_here & rows.is_work & has_id]
        if is_several:
            is_here |= (owner < 0) & (~is_launch | np.isin(rows.ids, own_ids))
        else:
            is_here[:] = True
        is_most = place == largest
        yield _Split(
            file,
            int(devices[place]) if is_several else None,
            start + np.flatnonzero(is_here),
            int((rows.is_work & ~is_placed).sum()) * is_most,
            int(elsewhere.sum()) * is_most,
        )


def _is_index(device: IntArray) -> Mask:
    is_index: Mask = (device >= 0) & (device < _MOST_DEVICES)
    return is_index


def _is_one_of_many(metadata: Mapping[str, Any]) -> bool:
    info = metadata.get("distributedInfo")
    size = to_integer(info.get("world_size")) if isinstance(info, dict) else None
    return size is not None and size > 1


def _tell(splits: Sequence[_Split], of_files: Sequence[Findings]) -> list[Findings]:
    """Return the findings of each set of rows; those of a file go with its first GPU."""
    findings, seen = list[Findings](), set[int]()
    for split in splits:
        own = of_files[split.file]
        if split.file in seen:
            own = Findings(f"{own.source}!GPU {split.device}")
        seen.add(split.file)
        own.add("suspicious", _UNPLACED, split.unplaced_count)
        own.add("noted", _ELSEWHERE, split.elsewhere_count)
        findings.append(own)
    return findings
