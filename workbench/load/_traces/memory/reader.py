"""The entry point for memory: snapshots of PyTorch's allocator, or profiles that recorded it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import Dropped, Finding, Findings, guarded, quality_frame
from workbench.load._files.rank_names import NO_RANK_TOLD, RankArgument, ranked
from workbench.load._files.stored import stored_tables
from workbench.load._files.wanted import LOGS_AND_INJECTIONS
from workbench.load._traces.memory.profile import ARGS, EVENT, profile_memory
from workbench.load._traces.memory.snapshot import RankMemory, looks_like, snapshot
from workbench.load._traces.reader import traces
from workbench.tables import MEMORY, MEMORY_BLOCKS, QUALITY, MemoryRecording, Table

_HEAD_BYTES = 1 << 16
_HOW = (
    "record a snapshot (torch.cuda.memory._record_memory_history(), then "
    "torch.cuda.memory._dump_snapshot('rank0.pickle')) or profile with profile_memory=True"
)


def memory(path: Paths, *, rank: RankArgument = None, progress: bool = True) -> MemoryRecording:
    """Load what the memory allocator did: every allocation, free and failure, with its stack.

    Snapshots of PyTorch are pickles; they are read by instructions that can make lists, dicts,
    texts and numbers, and nothing else. Where there is none, memory events of profiles are read.

    Parameters
    ----------
    path
        A snapshot (``torch.cuda.memory._dump_snapshot``), a profile recorded with
        ``profile_memory=True``, a folder, an archive or a list of these.
    rank
        Ranks where the files do not state them: one number for one file, a list in order of the
        files, or a dict from a part of the file name to the number.
    progress
        Whether to show a progress bar if loading traces takes more than a second.

    Returns
    -------
    MemoryRecording
        ``memory`` (:data:`workbench.tables.MEMORY`), ``blocks``
        (:data:`workbench.tables.MEMORY_BLOCKS`, of snapshots only) and ``quality``
        (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` holds memory, two files are of one rank, or a pickle asks for
        anything that is not a plain value.

    Notes
    -----
    A recording begins late and keeps the last ``max_entries`` actions. Memory from before is
    known by its free or from the blocks of the snapshot, and marked ``is_before_trace``. Sizes
    are as requested: ``torch.cuda.memory_allocated`` counts blocks, rounded up to 512 B or more.

    References
    ----------
    PyTorch, ``torch/cuda/memory.py`` (fields), ``torch/cuda/_memory_viz.py`` (its viewer).
    """
    stored: MemoryRecording | None = stored_tables(path, "memory snapshots")
    if stored is not None:
        return stored
    files = survey(path, wanted=LOGS_AND_INJECTIONS)
    dropped = Dropped()
    read: list[RankMemory] = []
    sources = _snapshots(files.sources, dropped)
    for source in sources:
        with dropped.trying(source.label):
            read.append(snapshot(source))
    if not sources:
        return _of_profiles(path, rank, progress=progress)
    if not read:
        dropped.raise_if_all()
    remarks = [*(remark.row for remark in files.remarks), *dropped.rows]
    if others := len(files.sources) - len(sources):
        remarks.append((shown_all(path), "skipped by design", "is not a snapshot", others, None))
    with guarded(shown_all(path)):
        return _assembled(read, rank, remarks)


def _snapshots(sources: Sequence[Source], dropped: Dropped) -> list[Source]:
    snapshots = []
    for source in sources:
        with dropped.trying(source.label):
            if looks_like(source.head(_HEAD_BYTES)):
                snapshots.append(source)
    return snapshots


def _assembled(
    read: Sequence[RankMemory], rank: RankArgument, remarks: list[Finding]
) -> MemoryRecording:
    memory, blocks = [], []
    for number, told_by, part in ranked(read, rank):
        memory.append(part.memory.assign(rank=number))
        blocks.append(part.blocks.assign(rank=number))
        if told_by == "assumed":
            remarks.append((part.label, "assumed", NO_RANK_TOLD, 1, f"rank {number}"))
    quality = [part.findings.frame() for part in read]
    return MemoryRecording(
        memory=_table(MEMORY, memory),
        blocks=_table(MEMORY_BLOCKS, blocks),
        quality=QUALITY.joined([*quality, quality_frame(remarks)]),
    )


def _of_profiles(path: Paths, rank: RankArgument, *, progress: bool) -> MemoryRecording:
    try:
        trace = traces(path, rank=rank, args=ARGS, progress=progress)
    except LoadError as error:
        msg = f"{shown_all(path)}: holds no memory snapshot and no profile: {error}; {_HOW}"
        raise LoadError(msg) from error
    if not (trace.events["name"] == EVENT).any():
        msg = f"{shown_all(path)}: the profile holds no memory event; {_HOW}"
        raise LoadError(msg)
    findings = Findings(shown_all(path))
    with guarded(shown_all(path)):
        table = _table(MEMORY, [profile_memory(trace, findings)])
    findings.add("read", "memory events", int((~table["is_before_trace"]).sum()))
    quality = QUALITY.joined([trace.quality, findings.frame()])
    return MemoryRecording(table, MEMORY_BLOCKS.empty(), quality)


def _table(table: Table, pieces: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the pieces of ranks and devices; columns that a format lacks are missing."""
    filled = [piece for piece in pieces if len(piece)]
    if not filled:
        return table.empty()
    joined = pd.concat(filled, ignore_index=True)
    if "event" in table.columns:
        joined["event"] = joined.groupby(["rank", "device"]).cumcount()
    return table.of(joined.reindex(columns=[*table.columns]))
