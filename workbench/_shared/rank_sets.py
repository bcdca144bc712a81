"""The ranks of a job one after the other, and signs that files are not the ranks of one job."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import pandas as pd

from workbench.errors import WorkbenchError
from workbench.tables import QUALITY, RANKS, RankFile, RankFiles, Trace

# Ranks of one job run the same kernels, but for the ends of a pipeline.
_LEAST_COMMON_SHARE = 0.25
BY_ITSELF = "of other models or runs? load each by itself"

# Traces of more ranks are read one after the other by whoever needs no more than a part of each.
MOST_RANKS = 15
# Two worker processes take a second of processor time before they read, and as long to answer; the
# table of a file that is read in one of them is made, sent and joined apart.
_PARALLEL_FROM_S, _OWN_TABLE_S = 2.0, 0.01
# A task costs Dask some milliseconds, a rank of a few megabytes not many more. What is left is
# always enough for two tasks of each thread, so that all threads end at about the same time.
_MOST_PER_TASK, _TASKS_PER_THREAD = 8, 2
# What one process loads and analyses, of content that is not packed.
_ANALYSED_BYTES_PER_S = 160e6

# Behind the name of a file that holds several ranks.
PART = re.compile(r"(?:!process [^!]+)?(?:!GPU \d+)?$")

Result = TypeVar("Result")
Names = Sequence[AbstractSet[object]]


def remarks_on_set(
    ranks: pd.DataFrame, names: Callable[[], Names], *, communicates: Callable[[], bool]
) -> list[tuple[str, int]]:
    """Return findings about a set of ranks, with a count: ranks that lack, clocks that differ.

    ``ranks`` is a table of ranks; ``names`` gives the names of the GPU work of each file whose rank
    is not from the caller, and ``communicates`` says whether any file holds a collective. Both are
    asked only where nothing surer decides, since they cost a pass over the events.
    """
    remarks: list[tuple[str, int]] = []
    world = int(ranks["world_size"].fillna(0).max()) if len(ranks) else 0
    if 1 < len(ranks) < world:
        loaded = set(ranks["rank"])
        # A file may claim a world of any size; a million ranks is more than any job has.
        lacking = [str(rank) for rank in range(min(world, 1 << 20)) if rank not in loaded]
        shown = ", ".join(lacking[:8]) + (", ..." if len(lacking) > 8 else "")
        finding = f"ranks of {world:,} that are not loaded; waiting for them cannot be seen"
        remarks.append((f"{finding}: {shown}", len(lacking)))
    remarks += [(finding, len(ranks)) for finding in _apart(ranks, names, communicates)]
    filled = ranks[ranks["event_count"] > 0]
    on_wall_time = len(filled) > 1 and filled["clock"].eq("epoch").all()
    if on_wall_time and filled["first_ns"].max() > filled["last_ns"].min():
        finding = "ranks recorded at different times; waiting across them cannot be seen"
        remarks.append((f"{finding}: other windows of the job, or clocks far apart", 1))
    if filled["clock"].nunique() > 1:
        finding = "ranks on different clocks (see ranks.clock)"
        remarks.append((f"{finding}; times across ranks cannot be compared", 1))
    return remarks


def _apart(
    ranks: pd.DataFrame, names: Callable[[], Names], communicates: Callable[[], bool]
) -> list[str]:
    """List reasons why files read as ranks of one job may be of several; the surest first.

    Ranks that the caller gave are believed.
    """
    told = ranks[ranks["rank_source"] != "argument"]
    # Processes and GPUs that one profiler recorded together are of one job.
    files = {PART.sub("", str(source)) for source in told["source"]}
    if len(told) < 2 or (len(files) == 1 and told["source"].nunique() > 1):
        return []
    sizes = sorted(told["world_size"].dropna().unique())
    if len(sizes) > 1:
        jobs = " and ".join(f"{size:,}" for size in sizes)
        return [
            f"files of jobs of different sizes ({jobs} ranks), read as ranks of one; {BY_ITSELF}"
        ]
    share = _least_in_common(names())
    if share is not None and share < _LEAST_COMMON_SHARE:
        shown = f"{share:.0%} of the kernel names"
        return [f"files with little in common ({shown}), read as ranks of one job; {BY_ITSELF}"]
    if ranks["rank_source"].isin(["trace", "file name"]).any() or communicates():
        return []
    why = "no file states a rank or contains a collective"
    return [f"files that nothing ties together ({why}), read as ranks of one job; {BY_ITSELF}"]


def _least_in_common(names: Names) -> float | None:
    """Return the smallest share of names that a file has in common with the largest one."""
    filled = sorted(filter(None, names), key=len)
    if len(filled) < 2:
        return None
    *smaller, largest = filled
    return min(len(of_file & largest) / len(of_file) for of_file in smaller)


def over_ranks(
    files: RankFiles,
    function: Callable[[Trace], Result],
    *,
    join: Callable[[Sequence[Result]], Result] | None = None,
    client: Any = None,
    processes: int | None = None,
) -> Iterator[tuple[RankFile, Result | Exception | None]]:
    """Run ``function`` on each rank: in this process, in several, or on the workers of a client.

    In place of the result of a rank that cannot be read there is the error. Workers of a client
    ``join`` the results of ranks that follow each other: the first of them has the joint result,
    the others have None.
    """
    total = sum(file.size_bytes for file in files)
    most = 1 if files.needs_one_pass else len(files)
    workers = processes_for(most, total / _ANALYSED_BYTES_PER_S, processes)
    if client is not None:
        if files.needs_one_pass:
            msg = "members of a tar.gz are read in one pass; unpack the archive for a cluster"
            raise WorkbenchError(msg)
        yield from _on_workers(files, function, join, client)
    elif workers > 1:
        from joblib import Parallel, delayed

        run = Parallel(n_jobs=workers, return_as="generator")
        yield from zip(files, run(delayed(_of_file)(file, function) for file in files), strict=True)
    else:
        for file, trace in files.each():
            result = trace if isinstance(trace, Exception) else function(trace)
            del trace
            yield file, result


def processes_for(count: int, expected_s: float, asked: int | None = None) -> int:
    """Return how many processes to use for ``count`` files that take one ``expected_s`` in all."""
    if asked is not None:
        return max(asked, 1)
    is_worth_it = expected_s >= max(_PARALLEL_FROM_S, count * _OWN_TABLE_S)
    return max(1, min(count, os.cpu_count() or 1)) if is_worth_it else 1


def _on_workers(
    files: RankFiles,
    function: Callable[[Trace], Result],
    join: Callable[[Sequence[Result]], Result] | None,
    client: Any,
) -> Iterator[tuple[RankFile, Result | Exception | None]]:
    from workbench._shared.cluster import batches_on_cluster

    run = partial(_of_batch, function=function, join=join)
    threads = max(sum(client.nthreads().values()), 1)
    batches = _batches(sorted(files, key=lambda file: file.rank), threads)
    # The largest first: no worker begins with it when the others are done.
    batches.sort(key=lambda batch: sum(file.size_bytes for file in batch), reverse=True)
    yield from batches_on_cluster(client, run, batches)


def _batches(files: Sequence[RankFile], threads: int) -> list[Sequence[RankFile]]:
    batches: list[Sequence[RankFile]] = []
    at = 0
    while at < len(files):
        size = max(1, min(_MOST_PER_TASK, (len(files) - at) // (_TASKS_PER_THREAD * threads)))
        batches.append(tuple(files[at : at + size]))
        at += size
    return batches


def _of_batch(
    files: Sequence[RankFile],
    *,
    function: Callable[[Trace], Result],
    join: Callable[[Sequence[Result]], Result] | None,
) -> list[Result | Exception | None]:
    results: list[Any] = [_of_file(file, function, is_worker=True) for file in files]
    read = [at for at, result in enumerate(results) if not isinstance(result, Exception)]
    if join is not None and len(read) > 1:
        joint = join([results[at] for at in read])
        for at in read:
            results[at] = None
        results[read[0]] = joint
    return results


# An error must not end the process that reads other files.
def _of_file(
    file: RankFile, function: Callable[[Trace], Result], *, is_worker: bool = False
) -> Result | Exception:
    try:
        return function(file.load())
    except FileNotFoundError as error:
        from workbench._shared.cluster import missing_on_worker

        return missing_on_worker(file.label) if is_worker else error
    except (WorkbenchError, OSError) as error:
        return error


@dataclass(frozen=True)
class RankState:
    """Inputs of the quality of a set of ranks: of one rank, or of several in order."""

    ranks: pd.DataFrame
    quality: pd.DataFrame
    names: tuple[frozenset[int], ...]  # of each rank, checksums of the names of its GPU work
    communicates: bool


def rank_state(trace: Trace) -> RankState:
    """Return what is kept of a rank to judge the set."""
    kind, rank = trace.events["kind"], trace.events["rank"]
    checksums = tuple(
        frozenset(
            zlib.crc32(str(name).encode())
            for name in trace.events.loc[kind.notna() & (rank == number), "name"].unique()
        )
        for number in trace.ranks["rank"]
    )
    communicates = bool(kind.eq("communication").any())
    return RankState(trace.ranks, trace.quality, checksums, communicates)


def joint_state(states: Sequence[RankState]) -> RankState:
    """Make one state of those of ranks in order."""
    return RankState(
        RANKS.joined(state.ranks for state in states),
        QUALITY.joined(state.quality for state in states),
        tuple(chain.from_iterable(state.names for state in states)),
        any(state.communicates for state in states),
    )


def quality_of_set(
    state: RankState, listed: pd.DataFrame, dropped: Sequence[tuple[str, Exception]]
) -> pd.DataFrame:
    """Return the quality of ranks in order, of what was skipped and of what was dropped."""
    ranks = state.ranks
    is_told = ranks["rank_source"] != "argument"
    first = (
        PART.sub("", str(ranks["source"].iloc[0]))
        .rsplit("!", 1)[-1]
        .replace("\\", "/")
        .rsplit("/", 1)[-1]
    )
    remarks = remarks_on_set(
        ranks,
        lambda: [names for names, told in zip(state.names, is_told, strict=True) if told],
        communicates=lambda: state.communicates,
    )
    rows = [(first, "suspicious", what, count) for what, count in remarks]
    rows += [(label, "dropped", str(error), 1) for label, error in dropped]
    added = pd.DataFrame(rows, columns=["source", "finding", "what", "count"]).assign(where=None)
    return QUALITY.joined([state.quality, QUALITY.of(added) if rows else QUALITY.empty(), listed])
