"""Operations of a pipelined job, read from the profiler traces of its ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.jobs.replay import BACKWARD, FORWARD
from workbench.errors import WorkbenchError
from workbench.tables import EVENTS, JOB_OPERATIONS

# torch.distributed.pipelining: "PP:2F0" and "PP:3SEND_F1" in schedules of several stages per rank
# (stages counted along the pipeline), "Forward 0" in those of one.
PIPELINE_NAMES = (
    r"PP:(?P<stage>\d+)(?P<operation>[A-Z_]+?)(?P<micro_batch>\d+)"
    r"|(?P<pass>Forward|Backward) (?P<number>\d+)"
)
_OPERATIONS: Mapping[str, str] = {
    "F": FORWARD,
    "B": BACKWARD,
    "Forward": FORWARD,
    "Backward": BACKWARD,
    "SEND_F": "forward-send",
    "RECV_F": "forward-recv",
    "SEND_B": "backward-send",
    "RECV_B": "backward-recv",
}
# The replay knows one backward pass per micro-batch, and one computation at a time.
_REFUSED = {"I": "input gradients", "W": "weight gradients", "OVERLAP_F_B": "overlapped passes"}
_WORKER = ["step", "dp_rank", "stage"]


def job_operations(
    events: pd.DataFrame,
    *,
    stages: Mapping[int, int] | None = None,
    tensor_ranks: int = 1,
    names: str = PIPELINE_NAMES,
) -> pd.DataFrame:
    """Read the operations of a pipelined job from profiler traces of its ranks.

    An operation is the time on the GPU of what one annotated range of the host launched, from
    whichever thread: from the start of the first kernel to the end of the last one. The range
    itself only says how long the host took to launch it.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS` of as many ranks as there are, on one clock
        (:func:`workbench.analyze.align_clocks`).
    stages
        Pipeline stage by rank, where names do not state it (``Forward 3``).
    tensor_ranks
        Ranks of a tensor-parallel group, neighbours in the order of ranks; they share rows.
    names
        Regular expression for the whole name of a range, with groups ``operation`` (``F``, ``B``,
        ``Forward``, ``Backward``, ``SEND_F``, ``RECV_F``, ``SEND_B``, ``RECV_B``), ``micro_batch``
        and ``stage`` if the name has it. By default the names that torch.distributed.pipelining
        writes.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.JOB_OPERATIONS`. Passes are made of compute kernels, transfers
        of communication kernels. ``attrs["left_out"]`` counts ranges without such a kernel. Steps
        are those of ``ProfilerStep``, or runs of the schedule, from 0, where a step holds several
        or none was marked.

    Raises
    ------
    WorkbenchError
        If no range has such a name or none launched GPU work, the stage of a rank is not known,
        stages have unequal numbers of ranks, ranges overlap, or the backward pass is split.

    Notes
    -----
    A rank with several chunks of the model is the stage of its first chunk. The ranks of a stage,
    in order, are the data-parallel ranks. Collectives of gradients and parameters are not read,
    so time lost in them is not part of the replayed step.

    References
    ----------
    PyTorch, torch/distributed/pipelining/schedules.py: ``_get_profiler_function_name`` and
    ``ScheduleGPipe``.
    """
    EVENTS.check(events)
    ranges = _ranges(events, names)
    ranges = _placed(ranges, stages, tensor_ranks)
    timed = _timed(ranges, events)
    lacking = int(timed["start_ns"].isna().sum())
    timed = timed.dropna(subset=["start_ns"])
    if timed.empty:
        msg = f"{lacking:,} ranges of a pipeline launched no GPU work; record CUDA activities, too"
        raise WorkbenchError(msg)
    # Tensor-parallel ranks do the same operation together: it lasts until the last one is done.
    keys = [*_WORKER, "operation", "micro_batch", "chunk"]
    table = timed.groupby(keys, as_index=False, sort=False).agg(
        start_ns=("start_ns", "min"), end_ns=("end_ns", "max")
    )
    table["dur_ns"] = table["end_ns"] - table["start_ns"]
    table = table.sort_values([*_WORKER, "start_ns"], kind="stable", ignore_index=True)
    table["sequence"] = table.groupby([*_WORKER, "operation"]).cumcount()
    computes = table["operation"].isin([FORWARD, BACKWARD])
    for name in ("micro_batch", "chunk"):
        table[name] = table[name].astype("Int32").where(computes)
    table["operation"] = table["operation"].astype("category")
    return JOB_OPERATIONS.of(
        table[list(JOB_OPERATIONS.columns)],
        {"left_out": {"ranges without GPU work": lacking} if lacking else {}},
    )


def _ranges(events: pd.DataFrame, names: str) -> pd.DataFrame:
    """Take the annotated ranges of the host: rank, step, operation, micro-batch, chunk, times."""
    host = events[events["category"].isin(["user_annotation", "cpu_op"])]
    # Millions of rows share few names.
    pattern = re.compile(names)
    matches = {name: pattern.fullmatch(name) for name in host["name"].astype(str).unique()}
    told = {name: _told(match.groupdict()) for name, match in matches.items() if match}
    told = {name: parts for name, parts in told.items() if parts is not None}
    ranges = host.loc[host["name"].isin(list(told)), ["rank", "step", "name", "start_ns", "dur_ns"]]
    if ranges.empty:
        msg = (
            "no range of these traces is named like an operation of a pipeline, such as 'PP:0F3' "
            "or 'Forward 3'; name your own with names=, or annotate with record_function"
        )
        raise WorkbenchError(msg)
    parts = pd.DataFrame([told[str(name)] for name in ranges["name"]], index=ranges.index)
    ranges = ranges.assign(name=ranges["name"].astype(str), close_ns=ranges["start_ns"])
    ranges["close_ns"] += ranges.pop("dur_ns")
    ranges = ranges.rename(columns={"start_ns": "open_ns"}).join(parts)
    ranges = ranges.sort_values(["rank", "open_ns"], ignore_index=True)
    after = ranges.groupby("rank")["open_ns"].shift(-1)
    if (overlap := ranges["close_ns"] > after).any():
        row = ranges[overlap].iloc[0]
        msg = (
            f"rank {row['rank']}: the range {row['name']!r} overlaps the next one of the pipeline, "
            "so its kernels cannot be told apart; pass names= that match one level of ranges"
        )
        raise WorkbenchError(msg)
    return ranges.assign(step=_steps(ranges))


def _told(groups: dict[str, str | None]) -> dict[str, object] | None:
    """Parse the name of a range; None for what is neither a pass nor a transfer."""
    operation = groups.get("operation") or groups.get("pass") or ""
    number = groups.get("micro_batch") or groups.get("number")
    if operation in _REFUSED:
        msg = (
            f"the pipeline runs {_REFUSED[operation]} as operations of their own ({operation}); "
            "only schedules with one forward and one backward pass can be replayed"
        )
        raise WorkbenchError(msg)
    if operation not in _OPERATIONS or number is None:
        return None
    stage = groups.get("stage")
    return {
        "operation": _OPERATIONS[operation],
        "micro_batch": int(number),
        "chunk": -1 if stage is None else int(stage),
    }


def _steps(ranges: pd.DataFrame) -> pd.Series:
    """Return the steps that the profiler marked, or else the runs of the schedule by rank."""
    run = ranges.groupby(["rank", "name"]).cumcount()
    is_marked = ranges["step"].notna().all()
    doubled = ranges.duplicated(["rank", "step", "name"]).any()
    return run if doubled or not is_marked else ranges["step"].astype("int64")


def _placed(
    ranges: pd.DataFrame, stages: Mapping[int, int] | None, tensor_ranks: int
) -> pd.DataFrame:
    """Add to every range the stage and the data-parallel rank of its rank."""
    first_chunk = ranges.groupby("rank")["chunk"].min()
    stage = first_chunk if stages is None else first_chunk.index.to_series().map(dict(stages))
    if stage.isna().any() or (stage < 0).any():
        unknown = stage.index[stage.isna() | (stage < 0)].tolist()
        msg = f"the pipeline stage of ranks {unknown[:8]} is not known; pass stages={{rank: stage}}"
        raise WorkbenchError(msg)
    stage = stage.astype("int64")
    count = stage.value_counts().sort_index()
    if tensor_ranks < 1 or count.nunique() > 1 or count.iloc[0] % tensor_ranks:
        listed = ", ".join(f"stage {name}: {number}" for name, number in count.items())
        msg = (
            f"stages need equal numbers of ranks, in groups of tensor_ranks={tensor_ranks}; there "
            f"are {listed}. Load the traces of all ranks, or of the same ones of every stage"
        )
        raise WorkbenchError(msg)
    dp_rank = stage.sort_index().groupby(stage).cumcount() // tensor_ranks
    placed = ranges.assign(stage=ranges["rank"].map(stage), dp_rank=ranges["rank"].map(dp_rank))
    placed["chunk"] = placed["chunk"].where(placed["chunk"] >= 0, placed["stage"])
    return placed


def _timed(ranges: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Add when the GPU began and ended what each range launched; missing if it launched nothing."""
    work = events[events["kind"].isin(["compute", "communication"]) & events["launch"].notna()]
    work = work[["rank", "kind", "start_ns", "dur_ns", "launch"]]
    # The launching call decides, not its thread: backward passes launch from threads of autograd.
    launched = events["start_ns"].reindex(work["launch"].astype("int64")).to_numpy()
    work = work.assign(launched_ns=launched, end_ns=work["start_ns"] + work["dur_ns"])
    work = work.dropna(subset=["launched_ns"]).astype({"launched_ns": "int64"})
    matched = pd.merge_asof(
        work.sort_values("launched_ns"),
        ranges[["rank", "open_ns", "close_ns", "operation"]]
        .assign(range=np.arange(len(ranges)))
        .sort_values("open_ns"),
        left_on="launched_ns", right_on="open_ns", by="rank",
    )  # fmt: skip
    is_pass = matched["operation"].isin([FORWARD, BACKWARD])
    is_inside = matched["launched_ns"] < matched["close_ns"]
    matched = matched[is_inside & (matched["kind"].eq("compute") == is_pass)]
    spans = matched.groupby("range").agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    spans = spans.astype("Int64").reindex(np.arange(len(ranges)))
    return ranges.assign(start_ns=spans["start_ns"], end_ns=spans["end_ns"])
