"""Why GPUs and streams had nothing to run."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.dark import dark_times, named
from workbench.analyze._lib.intervals import measure_levels, running_end
from workbench.analyze._lib.latency import usual_latency
from workbench.analyze._lib.rows import LAUNCH_CATEGORIES, MISSING, Groups, Ints, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import IDLE_TIME

ACTIVITIES = ("blocking call", "runtime call", "operator", "Python", "untraced")
_COPY = re.compile("(?:cuda|cu|hip)Mem(?:cpy|set)")
_BLOCKING, _RUNTIME, _OPERATOR, _PYTHON, _UNTRACED = range(len(ACTIVITIES))


def time_by_activity(events: pd.DataFrame, call: Ints, start: Ints, end: Ints) -> Ints:
    """Split windows of time by what the thread of a call did in them: one row per activity [ns].

    Where records overlap, the more telling one counts: a blocking call before another runtime call,
    that before an operator, that before Python.
    """
    rank = events["rank"].to_numpy()
    process, thread = arrays.codes(events["process"]), arrays.codes(events["thread"])
    threads = arrays.grouped(*(column[call].astype(np.int64) for column in (rank, process, thread)))
    order = arrays.in_order(rank)
    level, ordered_rank = _levels(events), rank if order is None else rank[order]
    begin, lasting = events["start_ns"].to_numpy(), events["dur_ns"].to_numpy()
    times = np.zeros((len(ACTIVITIES), len(call)), dtype=np.int64)
    for number, (its_rank, *its_thread) in enumerate(
        # Python's numbers leave the small types of the columns as they are.
        zip(*(key.tolist() for key in threads.keys), strict=True)
    ):
        # Rows of one rank are searched, so that many threads do not each cost all events.
        limits = np.array([its_rank, its_rank + 1], dtype=rank.dtype)
        of_rank = slice(*np.searchsorted(ordered_rank, limits).tolist())
        row = of_rank if order is None else order[of_rank]
        is_other = (process[row] != its_thread[0]) | (thread[row] != its_thread[1])
        its_level = np.maximum(level[row], is_other * np.int8(_UNTRACED))
        windows = np.flatnonzero(threads.number == number)
        records = (its_level, begin[row], lasting[row])
        times[:, windows] = _split(records, start[windows], end[windows])
    return times


def _split(records: tuple[NDArray[np.int8], Ints, Ints], start: Ints, end: Ints) -> Ints:
    # Per level all that is at least as telling, so that what hides behind it drops out.
    covered = measure_levels(*records, start, end, levels=_UNTRACED)
    return np.diff([*covered, end - start], axis=0, prepend=0)


def _levels(events: pd.DataFrame) -> NDArray[np.int8]:
    """Give the activity that each row stands for; the last one where it means none."""
    meanings = dict.fromkeys(LAUNCH_CATEGORIES, _RUNTIME)
    meanings |= {"cpu_op": _OPERATOR, "python_function": _PYTHON}
    category = arrays.codes(events["category"])
    level = np.full(len(events), _UNTRACED, dtype=np.int8)
    # Comparing the codes of each category is quicker than looking up every row.
    for code, name in enumerate(events["category"].cat.categories):
        if name in meanings:
            level -= (category == code) * np.int8(_UNTRACED - meanings[name])
    # A step is around all operators and is none itself, in whatever category it was written.
    level[arrays.step_marks(events)[0]] = _UNTRACED
    is_blocking = np.array([*map(_blocks, map(str, events["name"].cat.categories)), False])
    calls = np.flatnonzero(level == _RUNTIME)
    level[calls[is_blocking[arrays.codes(events["name"])[calls]]]] = _BLOCKING
    return level


# Copies without Async in their name hold the caller until they are done.
def _blocks(name: str) -> bool:
    return "Synchronize" in name or ("Async" not in name and _COPY.match(name) is not None)


Method: TypeAlias = Literal["device", "stream"]

CAUSES = {
    "device": ("host late", "launch overhead", "kernel gap", "sync wait", "dark", "unknown"),
    "stream": ("host wait", "kernel wait", "other", "unknown"),
}
DETAILS = (
    *ACTIVITIES,
    "no launch recorded",
    "launch recorded after the work began",
    "collective",
    "stream wait",
    "CUDA graph",
    "late start",
)
_NO_LAUNCH, _LATE_LAUNCH, _COLLECTIVE, _STREAM_WAIT, _GRAPH, _LATE_START = range(
    len(ACTIVITIES), len(DETAILS)
)


_COLUMNS = ("name", "category", "process", "thread", "stream", "launch")


@per_rank
def idle_time(
    events: pd.DataFrame,
    *,
    method: Method = "device",
    kernel_gap_ns: int = 30_000,
    launch_ns: int = 6_000,
    fewest_launches: int = 3,
    longest_launch_ns: int = 100_000,
) -> pd.DataFrame:
    """Split the idle time of each GPU, or of each stream, by its cause.

    A gap ends when the next work begins, so the cause is what kept that work from beginning
    earlier: it had not been launched yet, or it had and waited.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    method
        ``"device"``: gaps in which no stream of a GPU works. ``"stream"``: gaps of each stream by
        itself, with the rule of HolisticTraceAnalysis; a stream that is parked while another works
        counts as idle there.
    kernel_gap_ns
        A gap shorter than this, before work that was launched in time, is the usual distance
        between two kernels [ns].
    launch_ns
        What a launch usually takes after its call, where too few launches tell [ns].
    fewest_launches
        As many launches of a GPU that had nothing to run tell what a launch usually takes.
    longest_launch_ns
        A launch that takes longer after its call is not usual [ns].

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.IDLE_TIME`, one row per rank, GPU (or stream), cause and
        detail that occurred. The idle times of a GPU add up to its span minus its busy time.

    Raises
    ------
    WorkbenchError
        If no rank has GPU work, or ``launch`` points to rows that launch nothing.
    ValueError
        If ``method`` is neither device nor stream.

    Notes
    -----
    For a gap from g0 to g1 and the launch call of the work that starts at g1, begun at l:

    * while a call waits for the GPU although all recorded work has ended, after the launch of a
      graph or of work without a record, or while work stands behind a CUDA graph of which nothing
      was recorded: *dark*, as the GPU does work that the trace lacks; ``detail`` says so where a
      graph was launched;
    * no launch in the trace, or l > g1 (clocks disagree): *unknown*;
    * g0 < l: *host late* until l, *launch overhead* from l until the call has ended and the usual
      time of a launch has passed; ``detail`` says what the launching thread did until l. What is
      left counts as below, if it is ``kernel_gap_ns`` or more; else it is launch overhead, too;
    * l ≤ g0 and the gap is shorter than ``kernel_gap_ns``: *kernel gap*;
    * l ≤ g0 and the stream had been told to wait for another one, or the work is a collective:
      *sync wait*;
    * beside work of a CUDA graph: *dark*, as the profiler missed some of it;
    * otherwise *unknown*: work was ready and started late for a reason that is not in the trace.

    The usual time of a launch is the median from the end of the call to the start of the work, over
    gaps with g0 < l. A call that goes on for ``kernel_gap_ns`` or more after g0 is launch overhead
    as well, if the work began when it ended.

    Per stream: *host wait* if g0 < l, else *kernel wait* if the gap is shorter than
    ``kernel_gap_ns``, else *other*; *unknown* without a launch.

    References
    ----------
    Per-stream rule: facebookresearch/HolisticTraceAnalysis, ``hta/analyzers/breakdown_analysis.py``
    (host wait, kernel wait, other).
    """
    if method not in get_args(Method):
        msg = f"method must be one of {get_args(Method)}, not {method!r}"
        raise ValueError(msg)
    work = arrays.required(arrays.gpu_work(events, *_COLUMNS), events, "idle time")
    per_stream = [arrays.taken(events["stream"], work.row)] if method == "stream" else []
    queues = arrays.grouped(work.rank, work.device, *per_stream)
    gaps = _gaps(events, work, queues)
    if method == "stream":
        causes = _stream_causes(gaps, kernel_gap_ns)
    else:
        latency = (fewest_launches, longest_launch_ns, launch_ns)
        causes = _device_causes(events, work, gaps, kernel_gap_ns, latency)
    return IDLE_TIME.check(_summary(causes, queues, work, method))


class Gaps(NamedTuple):
    """Idle times of GPUs or streams, each with the work that ended it."""

    queue: Ints  # number of the GPU or stream
    previous: Ints  # the work that began last before the gap, as a position in the GPU work
    following: Ints  # the work that ended the gap, as a position in the GPU work
    start: Ints
    end: Ints
    launches: Ints  # the call that launched each work, as a position in the events table; or -1
    launch: Ints  # that of the work that ended the gap
    launch_start: Ints
    launch_end: Ints


class Cause(NamedTuple):
    """Idle times with what caused them: each its own, or all the same."""

    queue: Ints
    cause: Ints | int
    detail: Ints | int
    time: Ints
    gap_count: Ints  # how many gaps; of a single one whether it has any


def _gaps(events: pd.DataFrame, work: Work, queues: Groups) -> Gaps:
    order = arrays.in_order(queues.number, work.start)
    columns = (np.arange(len(work.row)), queues.number, work.start, work.end)
    position, number, start, end = (
        columns if order is None else (column[order] for column in columns)
    )
    # The latest end so far: work that began earlier may end later than its successor.
    before = running_end(end, number)[:-1]
    gap = np.flatnonzero((number[1:] == number[:-1]) & (start[1:] > before))
    following = position[gap + 1]
    launches = arrays.launches_of(events, work.row)
    launch = launches[following]
    begun = events["start_ns"].to_numpy()[launch]
    return Gaps(
        queue=number[gap],
        previous=position[gap],
        following=following,
        start=before[gap],
        end=start[gap + 1],
        launches=launches,
        launch=launch,
        launch_start=begun,
        launch_end=begun + events["dur_ns"].to_numpy()[launch],
    )


def _stream_causes(gaps: Gaps, kernel_gap_ns: int) -> list[Cause]:
    host, kernel, neither, unknown = range(len(CAUSES["stream"]))
    unlaunched = gaps.launch == MISSING
    time = gaps.end - gaps.start
    tests = [unlaunched, gaps.launch_start > gaps.start, time < kernel_gap_ns]
    cause = np.select(tests, [unknown, host, kernel], neither)
    detail = np.where(unlaunched, _NO_LAUNCH, MISSING)
    return [Cause(gaps.queue, cause, detail, time, _some(time))]


def _device_causes(
    events: pd.DataFrame, work: Work, gaps: Gaps, kernel_gap_ns: int, latency: tuple[int, int, int]
) -> list[Cause]:
    host, overhead, kernel, sync, dark, unknown = range(len(CAUSES["device"]))
    unlaunched = gaps.launch == MISSING
    skewed = ~unlaunched & (gaps.launch_start > gaps.end)
    launched = np.maximum(gaps.launch_start, gaps.start)
    is_late, arrived = _on_its_way(gaps, ~unlaunched & ~skewed, kernel_gap_ns, latency)
    late = np.flatnonzero(is_late)
    since = np.where(is_late, arrived, gaps.start)
    known, rank = dark_times(events, work), work.rank[gaps.following]
    unrecorded, of_graph = known.within(rank, gaps.start, gaps.end)
    time = gaps.end - since - known.within(rank, since, gaps.end)[0]
    waited = _waited_for(events, work, gaps)
    is_graph = np.append(named(events, "GraphLaunch")[arrays.codes(events["name"])], False)
    beside_graph = is_graph[gaps.launches[gaps.previous]] | is_graph[gaps.launch]
    # In this order: what the trace does not know must not be named after the length of the gap.
    cause = np.where(waited != MISSING, sync, np.where(beside_graph, dark, unknown))
    cause[time < kernel_gap_ns] = kernel
    cause[unlaunched | skewed] = unknown
    detail = np.where(cause == sync, waited, MISSING)
    detail[cause == dark] = _GRAPH
    detail[cause == unknown] = _LATE_START
    detail[skewed] = _LATE_LAUNCH
    detail[unlaunched] = _NO_LAUNCH
    gpus, begun = arrays.grouped(gaps.queue[late]), launched[late]
    by_activity = time_by_activity(events, gaps.launch[late], gaps.start[late], begun)
    by_host = _less(by_activity, known.within(rank[late], gaps.start[late], begun)[0])
    parts = [(host, number, times) for number, times in enumerate(by_host)]
    launching = known.within(rank[late], begun, arrived[late])[0]
    parts.append((overhead, MISSING, arrived[late] - begun - launching))
    return [
        Cause(gaps.queue, cause, detail, time, _some(time)),
        Cause(gaps.queue, dark, _GRAPH, of_graph, _some(of_graph)),
        Cause(gaps.queue, dark, MISSING, unrecorded - of_graph, _some(unrecorded - of_graph)),
        *(
            Cause(gpus.keys[0], cause, detail, gpus.total(times), gpus.total(_some(times)))
            for cause, detail, times in parts
        ),
    ]


def _less(by_activity: Ints, dark: Ints) -> Ints:
    """Take dark times from those of activities: a host is not late while the GPU works.

    It mostly waits for the GPU then, so that blocking calls come first.
    """
    upto = np.cumsum(by_activity, axis=0)
    return np.asarray(np.diff(np.maximum(upto - dark, 0), axis=0, prepend=0))


def _some(time: Ints) -> Ints:
    return np.asarray(time != 0, dtype=np.int64)


# A launch takes time after its call has ended; until then the gap is its overhead, not the GPU
# waiting.
def _on_its_way(
    gaps: Gaps, is_known: NDArray[np.bool_], kernel_gap_ns: int, latency: tuple[int, int, int]
) -> tuple[NDArray[np.bool_], Ints]:
    fewest, longest_ns, default_ns = latency
    late = is_known & (gaps.launch_start > gaps.start)
    delay = gaps.end - gaps.launch_end
    usual = np.full(len(delay), default_ns)
    # Gaps are in order of their GPU.
    bounds = np.flatnonzero(np.diff(gaps.queue, prepend=MISSING, append=np.iinfo(np.int64).max))
    for first, last in pairwise(bounds.tolist()):
        of_gpu = slice(first, last)
        usual[of_gpu] = usual_latency(
            delay[of_gpu][late[of_gpu]], fewest=fewest, longest_ns=longest_ns, default_ns=default_ns
        )
    until = np.minimum(gaps.launch_end + usual, gaps.end)
    until = np.where(gaps.end - until < kernel_gap_ns, gaps.end, until)
    lasts = is_known & (gaps.launch_end - gaps.start >= max(kernel_gap_ns, 1))
    lasts &= gaps.end >= gaps.launch_end
    return late | lasts, until


def _waited_for(events: pd.DataFrame, work: Work, gaps: Gaps) -> Ints:
    """Say what the work after each gap had to wait for, as far as the trace knows.

    A wait for another stream is queued like work: it counts if the host issued it after it launched
    the previous work on that stream and before it launched this one.
    """
    waited = np.full(len(gaps.queue), MISSING)
    code = arrays.code_of(events["name"], "Stream Wait Event")
    row = np.flatnonzero(arrays.codes(events["name"]) == code) if code >= 0 else np.zeros(0, int)
    sync = arrays.code_of(events["category"], "cuda_sync")
    row = row[arrays.codes(events["category"])[row] == sync]
    if len(row):
        waits = events[["rank", "stream", "start_ns"]].iloc[row].dropna()
        stream = arrays.taken(events["stream"], work.row)
        earliest = _launch_of_previous(events, work, stream, gaps)
        rank, stream = work.rank[gaps.following], stream[gaps.following]
        for (its_rank, its_stream), issued in waits.groupby(["rank", "stream"])["start_ns"]:
            on_stream = (rank == its_rank) & (stream == its_stream)
            times = np.sort(issued.to_numpy())
            by_launch = np.searchsorted(times, gaps.launch_start[on_stream], side="right")
            by_previous = np.searchsorted(times, earliest[on_stream], side="right")
            waited[on_stream] = np.where(by_launch > by_previous, _STREAM_WAIT, MISSING)
    waited[work.kind[gaps.following] == KINDS.index("communication")] = _COLLECTIVE
    return waited


def _launch_of_previous(events: pd.DataFrame, work: Work, stream: Ints, gaps: Gaps) -> Ints:
    order = np.lexsort((work.start, stream, work.device, work.rank))
    queue = arrays.grouped(work.rank, work.device, stream).number[order]
    previous = np.full(len(order), MISSING)
    same = queue[1:] == queue[:-1]
    previous[order[1:][same]] = order[:-1][same]
    ahead = previous[gaps.following]
    launch = gaps.launches[ahead]
    is_known = (ahead != MISSING) & (launch != MISSING)
    # Without a known launch before, every wait that was issued before this launch counts.
    long_ago = np.iinfo(np.int64).min
    return np.where(is_known, events["start_ns"].to_numpy()[launch], long_ago)


def _summary(causes: list[Cause], queues: Groups, work: Work, method: Method) -> pd.DataFrame:
    shape = (len(queues.bounds), len(CAUSES[method]), len(DETAILS) + 1)
    idle, count = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for queue, cause, detail, time, gap_count in causes:
        # Detail -1, none, is the first cell.
        cell = queue * (shape[1] * shape[2]) + (cause * shape[2] + detail + 1)
        np.add.at(idle.reshape(-1), cell, time)
        np.add.at(count.reshape(-1), cell, gap_count)
    number, cause, detail = np.nonzero(idle)
    # Of a whole GPU there is no third key.
    rank, device, stream, *_ = (
        *(key[number] for key in queues.keys),
        np.full(len(number), MISSING),
    )
    span = queues.largest(work.end) - queues.smallest(work.start)
    return pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "device": arrays.nullable(device, "Int32"),
            "stream": arrays.nullable(stream, "Int64"),
            "cause": arrays.labelled(cause, CAUSES[method]),
            "detail": arrays.texts(detail - 1, DETAILS),
            "gap_count": count[number, cause, detail],
            "idle_ns": idle[number, cause, detail],
            "idle_share": arrays.shares(idle[number, cause, detail], span[number]),
        }
    )
