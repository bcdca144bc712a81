"""A job of a thousand ranks: one rank at a time, then a small reduce."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench._shared.kernel_kinds import KINDS
from workbench._shared.progress import progress as progress_bar
from workbench._shared.rank_sets import (
    RankState,
    joint_state,
    over_ranks,
    quality_of_set,
    rank_state,
)
from workbench.analyze._lib.scopes import Analysis, name_of, scope_of
from workbench.errors import WorkbenchError
from workbench.tables import (
    DEVICES,
    EVENTS,
    PROCESS_GROUPS,
    STEPS,
    RankFiles,
    Trace,
)

_NO_RANK = (1 << 31) - 1
# Small tables of each rank, kept whole.
_DESCRIBING = {"devices": DEVICES, "steps": STEPS, "process_groups": PROCESS_GROUPS}


@dataclass(frozen=True)
class _Part:
    """What is kept of one rank, or of several in order."""

    tables: list[Any]  # of each analysis; none without events
    communication: pd.DataFrame  # with the row labels of a load of these ranks
    trace: dict[str, pd.DataFrame]
    state: RankState


def by_rank(
    files: RankFiles,
    analyses: Sequence[Analysis],
    *,
    client: Any = None,
    processes: int | None = None,
    progress: bool = True,
) -> dict[str, pd.DataFrame]:
    """Run analyses on a job whose ranks do not fit into memory together.

    Each rank is loaded, analysed and forgotten; of its events only communication is kept. Analyses
    across ranks then run on what was kept of all of them. The tables are those of a load of all
    ranks at once.

    Parameters
    ----------
    files
        What :func:`workbench.load.rank_files` returned, or a slice of it.
    analyses
        Functions of ``analyze`` that state whether they are per rank or across ranks, or your own,
        marked by :func:`per_rank` or :func:`across_ranks`. Options are given by
        ``functools.partial``.
    client
        A ``distributed.Client``: each rank is a task for one of its workers, which must see the
        files under the same paths.
    processes
        Processes of this machine to use without a client; None uses all cores where one would take
        longer than they take to start.
    progress
        Whether to show a progress bar if it takes more than a second.

    Returns
    -------
    dict of str to pandas.DataFrame
        The table of each analysis by its name; ``communication``
        (:data:`workbench.tables.EVENTS`: the communication of all ranks, for further analyses
        across ranks; of a rank without any, its first GPU work), ``ranks``, ``devices``,
        ``steps``, ``process_groups`` and ``quality`` as of a load of all ranks. A file that cannot
        be read is a row in ``quality`` that says why.

    Raises
    ------
    WorkbenchError
        If an analysis states no scope, two share a name, no rank can be read, or the workers of the
        client do not see the files.
    MissingExtraError
        If a client is given and Dask is not installed.
    """
    local = _checked(analyses, "one rank")
    across = _checked(analyses, "all ranks")
    names = [name_of(analysis) for analysis in analyses]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        msg = f"analyses: {twins} is there twice; its tables would have one name"
        raise WorkbenchError(msg)
    collected = collect(files, local, client, processes, progress=progress)
    tables, communication = collected.tables, collected.tables["communication"]
    if not collected.has_work:
        # Without GPU work in any rank each analysis says for itself that it needs some.
        return tables | {
            name_of(analysis): analysis(communication) for analysis in [*local, *across]
        }
    for analysis in across:
        wants_groups = "process_groups" in inspect.signature(analysis).parameters
        options = {"process_groups": tables["process_groups"]} if wants_groups else {}
        tables[name_of(analysis)] = analysis(communication, **options)
    return tables


class Collected(NamedTuple):
    """Results over all ranks: by name the tables of analyses, and those of every load."""

    tables: dict[str, Any]
    has_work: bool  # GPU work in any of the ranks; without, no analysis was run


def collect(
    files: RankFiles,
    local: Sequence[Callable[[pd.DataFrame], Any]],
    client: Any,
    processes: int | None = None,
    *,
    progress: bool = True,
) -> Collected:
    """Run analyses of single ranks on each file; an analysis may return an error as its answer."""
    parts: dict[int, _Part] = {}
    dropped: list[tuple[str, Exception]] = []
    total = sum(file.size_bytes for file in files)
    with progress_bar(total=total, unit="B", label="ranks", enabled=progress) as bar:
        part_of = partial(_part, local=local)
        for file, part in over_ranks(
            files, part_of, join=_joint, client=client, processes=processes
        ):
            if isinstance(part, Exception):
                dropped.append((file.label, part))
            elif part is not None:
                parts[file.rank] = part
            bar.update(file.size_bytes)
    if not parts:
        raise dropped[0][1]
    numbers = pd.concat([part.state.ranks["rank"] for part in parts.values()])
    if numbers.duplicated().any():
        msg = (
            f"rank {numbers[numbers.duplicated()].iloc[0]} is there twice: processes use different "
            "numbers of GPUs, each of which is a rank; load.traces reads them together"
        )
        raise WorkbenchError(msg)
    return _reduced([parts[rank] for rank in sorted(parts)], local, files, dropped)


def _checked(analyses: Sequence[Analysis], scope: str) -> list[Analysis]:
    for analysis in analyses:
        if scope_of(analysis) is None:
            msg = (
                f"analyses: {name_of(analysis)} does not state its scope; mark it with "
                "analyze.per_rank or analyze.across_ranks if its rows allow it, else load all ranks"
            )
            raise WorkbenchError(msg)
    return [analysis for analysis in analyses if scope_of(analysis) == scope]


def _part(trace: Trace, local: Sequence[Callable[[pd.DataFrame], Any]]) -> _Part:
    events = trace.events
    is_work = events["kind"].notna()
    communication = communication_of(events).copy()
    for name in communication.columns[communication.dtypes == "category"]:
        communication[name] = communication[name].cat.remove_unused_categories()
    # The row of the launch is not among those kept.
    communication["launch"] = pd.array([pd.NA] * len(communication), dtype="Int64")
    seen = events if is_work.any() or events.empty else _beside_work(events)
    tables = [analysis(seen) for analysis in local] if len(events) else []
    if seen is not events:
        tables = [_of_ranks_that_exist(table) for table in tables]
    return _Part(
        tables,
        communication,
        {name: getattr(trace, name) for name in _DESCRIBING},
        rank_state(trace),
    )


def communication_of(events: pd.DataFrame) -> pd.DataFrame:
    """Return the communication of all ranks; of a rank without any, its first GPU work.

    A rank that takes no part in any collective still counts as one of the job.
    """
    rank, kind = events["rank"].to_numpy(), events["kind"]
    is_communication = kind.eq("communication").to_numpy(copy=True)
    others = np.flatnonzero(kind.notna() & ~np.isin(rank, rank[is_communication]))
    _, first = np.unique(rank[others], return_index=True)
    is_communication[others[first]] = True
    return events[is_communication]


def _of_ranks_that_exist(table: Any) -> Any:
    if isinstance(table, Exception):
        return table
    return table[table["rank"] != _NO_RANK].reset_index(drop=True)


def _beside_work(events: pd.DataFrame) -> pd.DataFrame:
    """Add a kernel of a rank that does not exist.

    Analyses that need GPU work refuse a rank without any, but give it a row beside ranks that have.
    """
    kernel = events.iloc[:1].assign(
        rank=np.int32(_NO_RANK), kind=pd.Categorical([KINDS[0]]), dur_ns=1, device=0, stream=0
    )
    dtypes = {name: "Int32" if name == "device" else "Int64" for name in ("device", "stream")}
    return _stacked([events, kernel.astype(dtypes)])


def _joint(parts: Sequence[_Part]) -> _Part:
    """Make one part of the parts of ranks in order."""
    filled = [part.tables for part in parts if part.tables]
    tables: list[Any] = []
    for of_ranks in zip(*filled, strict=True):
        errors = [answer for answer in of_ranks if isinstance(answer, Exception)]
        tables.append(errors[0] if errors else _stacked(of_ranks))
    communication = _stacked(part.communication for part in parts)
    events = [int(part.state.ranks["event_count"].sum()) for part in parts]
    before = accumulate(events[:-1], initial=0)
    labels = [part.communication.index + rows for part, rows in zip(parts, before, strict=True)]
    communication.index = pd.Index(np.concatenate(labels), dtype="int64")
    trace = {
        name: table.joined(part.trace[name] for part in parts)
        for name, table in _DESCRIBING.items()
    }
    return _Part(tables, communication, trace, joint_state([part.state for part in parts]))


def _reduced(
    parts: Sequence[_Part],
    local: Sequence[Callable[[pd.DataFrame], Any]],
    files: RankFiles,
    dropped: Sequence[tuple[str, Exception]],
) -> Collected:
    whole = _joint(parts)
    tables: dict[str, Any] = {"ranks": whole.state.ranks, **whole.trace}
    tables["communication"] = EVENTS.check(whole.communication)
    tables["quality"] = quality_of_set(whole.state, files.quality, dropped)
    has_work = any(whole.state.names)
    if has_work:
        tables |= dict(zip(map(name_of, local), whole.tables, strict=True))
    return Collected(tables, has_work)


def _stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Stack the tables of the ranks, whose categories are united."""
    frames = list(frames)
    # pandas lets empty frames decide on dtypes.
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    columns: dict[str, Any] = {}
    for name in filled[0]:
        of_ranks: list[Any] = [frame[name].array for frame in filled]
        is_alike = all(column.dtype == of_ranks[0].dtype for column in of_ranks)
        if isinstance(of_ranks[0], pd.Categorical):
            keeps_order = of_ranks[0].ordered or is_alike
            unite: Callable[..., Any] = pd.api.types.union_categoricals
            columns[str(name)] = unite(of_ranks, sort_categories=not keeps_order)
        elif is_alike:
            # What concat ends in, without an index for each rank on the way.
            columns[str(name)] = type(of_ranks[0])._concat_same_type(of_ranks)
        else:
            columns[str(name)] = pd.concat(map(pd.Series, of_ranks), ignore_index=True).array
    return pd.DataFrame(columns, copy=False)
