"""Iterations of inference engines: prefill and decode, gaps between them, replays of graphs."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._lib.rows import MISSING, Ints, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import INFERENCE_ITERATIONS

_COUNT = r"\((?:sq)?(?P<{}_tokens>\d{{1,12}})[^)]*\)"
# The annotations that tell most come first: they stand around the others.
_MARKS = (
    ("vLLM", r"execute_(?:\d{1,9}_)?context_(?P<context>\d{1,9})" + _COUNT.format("context")
     + r"_generation_(?P<generation>\d{1,9})" + _COUNT.format("generation")),
    ("SGLang", r"step\[(?P<word>\w+)(?: bs=(?P<batch>\d{1,9}))?"
     r"(?: toks=(?P<tokens>\d{1,12}))?[^\]]*\]"),
    ("TensorRT-LLM", r"\[Executor\] _forward_step \d{1,12}: (?P<context>\d{1,9}) ctx reqs, "
     r"(?P<generation>\d{1,9}) gen reqs"),
    ("vLLM", r"gpu_model_runner: forward|execute_model"),
    ("xDiT", r"transformer_forward"),
)  # fmt: skip
_PATTERNS = tuple((engine, re.compile(pattern)) for engine, pattern in _MARKS)
_WORDS = {"DECODE": "decode", "EXTEND": "prefill", "PREFILL": "prefill", "MIXED": "mixed"}
_PHASES = ("prefill", "decode", "mixed", "unknown")
_REPLAY, _REPLAYED = "graph replay", "GraphLaunch"
_LAUNCHES = ("eager", "graph", "eager and graph")
_ALONE = "nothing is annotated: each replay of a graph counts, also of a piece of a model"
_COUNTS = ("context_request", "context_token", "generation_request", "generation_token")


class _Mark(NamedTuple):
    order: int  # position among the patterns
    phase: str
    counts: tuple[int | None, ...]


def _mark_of(name: str) -> _Mark | None:
    for order, (_, pattern) in enumerate(_PATTERNS):
        if (match := pattern.fullmatch(name)) is not None:
            return _Mark(order, *_told(match.groupdict()))
    return None


def _told(groups: dict[str, Any]) -> tuple[str, tuple[int | None, ...]]:
    """Return the phase that an annotation names, and its four counts."""
    number = {
        name: None if text is None else int(text) for name, text in groups.items() if name != "word"
    }
    context, generation = number.get("context"), number.get("generation")
    if "word" in groups:
        phase = _WORDS.get(groups["word"], "unknown")
        batch, tokens = number["batch"], number["tokens"]
        if phase == "decode":
            return phase, (0, 0, batch, tokens if tokens is not None else batch)
        return phase, (batch, tokens, 0, 0) if phase == "prefill" else (None,) * 4
    if context is None or generation is None:
        return "unknown", (None,) * 4
    phase = "mixed" if context and generation else "prefill" if context else "decode"
    # One token a request, unless the annotation says more (speculative decoding).
    counts = (context, number.get("context_tokens", None if context else 0), generation)
    return phase, (*counts, number.get("generation_tokens", generation))


@per_rank
def inference_iterations(events: pd.DataFrame) -> pd.DataFrame:
    """Find the iterations of an inference engine, and the time between them.

    An iteration is the GPU work that was launched inside one annotation of vLLM, SGLang,
    TensorRT-LLM or xDiT. The annotation itself is time of the host: its GPU work may run long after
    it has ended. Where a rank has no such annotation, each replay of a CUDA graph counts as one.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.INFERENCE_ITERATIONS`, without rows where nothing is annotated
        and no graph is replayed. ``attrs["left_out"]`` counts annotations inside of which no GPU
        work was launched.

    Notes
    -----
    Iterations of a rank are put in order of their first GPU work s_k. With r_k the latest end of
    the work of iterations up to k, the period of k lasts from max(s_k, r_(k-1)) to r_k and on to
    s_(k+1); ``idle_ns`` and ``gap_ns`` are the time in both parts in which the GPU runs nothing at
    all. So for each rank the periods, and busy time + idle + gaps, add up to the time from the
    first to the last.

    References
    ----------
    Annotations: vllm ``v1/worker/gpu_worker.py``, sglang ``model_executor/model_runner.py``,
    TensorRT-LLM ``_torch/pyexecutor/py_executor.py``, and AMD-AGI/TraceLens, which reads them.
    """
    work = arrays.gpu_work(events, "name", "launch", "stream")
    arrays.required(work, events, "iterations")
    marks = _marks(events)
    return _iterations(events, work, marks, with_replays=True)


@per_rank
def annotated_iterations(events: pd.DataFrame) -> pd.DataFrame:
    """Return iterations like :func:`inference_iterations`, without replays; there may be none."""
    marks = _marks(events)
    if marks.empty:
        return INFERENCE_ITERATIONS.empty()
    return _iterations(events, arrays.gpu_work(events, "name", "launch"), marks, with_replays=False)


def _iterations(
    events: pd.DataFrame, work: Work, marks: pd.DataFrame, *, with_replays: bool
) -> pd.DataFrame:
    launch = arrays.launches_of(events, work.row)
    graph, replay = _graphs(events, work, launch)
    number = _joined(events, marks, launch)
    used = np.unique(number[number != MISSING])
    if with_replays:
        alone = ~np.isin(work.rank, work.rank[number != MISSING]) & (replay != MISSING)
        number[alone] = len(marks) + replay[alone]
    if (number != MISSING).any():
        table = _presented(events, work, number, marks, (graph, launch))
    else:
        table = INFERENCE_ITERATIONS.empty()
    table.attrs["left_out"] = {"annotations without GPU work": len(marks) - len(used)}
    return table


def _marks(events: pd.DataFrame) -> pd.DataFrame:
    """Return the annotations of iterations on the host, the outermost of the most telling kind."""
    names = events["name"].cat.categories.astype(str)
    parsed = [_mark_of(name) for name in names]
    is_mark = np.append(np.array([mark is not None for mark in parsed], dtype=bool), False)
    code, category = arrays.codes(events["name"]), arrays.codes(events["category"])
    is_gpu = category == arrays.code_of(events["category"], "gpu_user_annotation")
    row = np.flatnonzero(is_mark[code] & (arrays.codes(events["kind"]) < 0) & ~is_gpu)
    start = events["start_ns"].to_numpy()[row].astype(np.int64)
    table = pd.DataFrame({"rank": events["rank"].to_numpy()[row].astype(np.int64), "start": start})
    told = pd.Series([parsed[at] for at in code[row]], dtype=object)
    table = table.assign(
        thread=arrays.threads(events, row), end=start + events["dur_ns"].to_numpy()[row],
        code=code[row].astype(np.int64), mark=told,
    )  # fmt: skip
    order = table["mark"].map(lambda mark: mark.order)
    table = table[order == order.groupby(table["rank"]).transform("min")]
    table = table.sort_values(["thread", "start", "end"], ascending=[True, True, False])
    reach = table.groupby("thread")["end"].cummax().groupby(table["thread"]).shift()
    return table[~(table["start"] < reach.fillna(np.iinfo(np.int64).min))].reset_index(drop=True)


def _joined(events: pd.DataFrame, marks: pd.DataFrame, launch: Ints) -> Ints:
    """Return for each piece of GPU work the mark that stands around its launch, on its thread."""
    number = np.full(len(launch), MISSING)
    has_launch = np.flatnonzero(launch != MISSING)
    thread = arrays.threads(events, launch[has_launch])
    moment = events["start_ns"].to_numpy()[launch[has_launch]]
    for of_thread, rows in marks.groupby("thread"):
        at = np.flatnonzero(thread == of_thread)
        found = np.searchsorted(rows["start"].to_numpy(), moment[at], side="right") - 1
        is_inside = (found >= 0) & (moment[at] < rows["end"].to_numpy()[found])
        number[has_launch[at[is_inside]]] = rows.index.to_numpy()[found[is_inside]]
    return number


def _graphs(events: pd.DataFrame, work: Work, launch: Ints) -> tuple[Ints, Ints]:
    """Return the graph, by its kernels, and the call that replayed it, both -1 for other work."""
    is_call = np.array([_REPLAYED in str(name) for name in events["name"].cat.categories] + [False])
    calls = np.where(launch == MISSING, MISSING, arrays.codes(events["name"])[launch])
    at = np.flatnonzero(is_call[calls])
    graph, replay = np.full(len(launch), MISSING), np.full(len(launch), MISSING)
    replay[at] = launch[at]
    names = arrays.codes(events["name"])[work.row[at]]
    # Kernels of several streams change places from replay to replay, so their order is left out.
    order = np.lexsort((names, launch[at]))
    bounds = np.flatnonzero(np.diff(launch[at][order])) + 1
    seen: dict[tuple[int, bytes], int] = {}
    count: dict[int, int] = {}
    for piece in np.split(order, bounds) if len(order) else []:
        rank = int(work.rank[at[piece[0]]])
        key = (rank, names[piece].astype(np.int64).tobytes())
        if key not in seen:
            seen[key] = count[rank] = count.get(rank, -1) + 1
        graph[at[piece]] = seen[key]
    return graph, replay


def _presented(
    events: pd.DataFrame, work: Work, number: Ints, marks: pd.DataFrame, launched: tuple[Ints, Ints]
) -> pd.DataFrame:
    graph, launch = launched
    at = np.flatnonzero(number != MISSING)
    rows = pd.DataFrame({
        "number": number[at], "rank": work.rank[at], "start": work.start[at], "end": work.end[at],
        "is_graph": graph[at] != MISSING, "graph": graph[at], "call": launch[at],
    })  # fmt: skip
    table = rows.groupby("number", as_index=False).agg(
        rank=("rank", "first"), start_ns=("start", "min"), end=("end", "max"),
        kernel_count=("start", "size"), graph_count=("is_graph", "sum"), call=("call", "first"),
    )  # fmt: skip
    most = rows[rows["is_graph"]].groupby(["number", "graph"]).size().sort_values(kind="stable")
    of_number = (
        most.reset_index().drop_duplicates("number", keep="last").set_index("number")["graph"]
    )
    table = table.sort_values(["rank", "start_ns", "number"], ignore_index=True)
    table["graph"] = table["number"].map(of_number).astype("Int64")
    table["launch"] = [
        _LAUNCHES[2 * (0 < graphs < count) or int(graphs > 0)]
        for graphs, count in zip(table["graph_count"], table["kernel_count"], strict=True)
    ]
    table["dur_ns"] = table["end"] - table["start_ns"]
    table["iteration"] = table.groupby("rank").cumcount()
    table = table.join(_periods(table, work)).join(_of_marks(events, table, marks))
    table["busy_ns"] = _busy(rows, table)
    return INFERENCE_ITERATIONS.of(table)


def _busy(rows: pd.DataFrame, table: pd.DataFrame) -> pd.Series:
    """Return how long the work of each iteration runs; what overlaps counts once."""
    rows = rows.sort_values(["number", "start"])
    of = rows.groupby("number")
    reach = of["end"].cummax().groupby(rows["number"]).shift().fillna(rows["start"]).astype("int64")
    fresh = (rows["end"] - np.maximum(rows["start"], reach)).clip(lower=0)
    return table["number"].map(fresh.groupby(rows["number"]).sum())


def _periods(table: pd.DataFrame, work: Work) -> pd.DataFrame:
    """Return period, idle time and gap of iterations that are in order of rank and start."""
    pieces = []
    for rank in table["rank"].unique().tolist():
        rows = table[table["rank"] == rank]
        low, high = np.searchsorted(work.rank, [rank, rank + 1])
        start, reach = rows["start_ns"].to_numpy(), np.maximum.accumulate(rows["end"].to_numpy())
        begin = np.maximum(start, np.append(start[0], reach[:-1]))
        after = np.maximum(np.append(start[1:], reach[-1]), reach)
        spans = (work.start[low:high], work.end[low:high])
        idle = reach - begin - measure_within(*spans, begin, reach)
        gap = after - reach - measure_within(*spans, reach, after)
        columns = {"period_ns": after - begin, "idle_ns": idle, "gap_ns": gap}
        pieces.append(pd.DataFrame(columns, index=rows.index))
    return pd.concat(pieces)


def _of_marks(events: pd.DataFrame, table: pd.DataFrame, marks: pd.DataFrame) -> pd.DataFrame:
    """Return what the annotations say; of a replay without one, the call."""
    names = [str(name) for name in events["name"].cat.categories]
    codes = arrays.codes(events["name"])
    replayed = _Mark(MISSING, "unknown", (None,) * 4)
    of_mark, code_of_mark = marks["mark"].tolist(), marks["code"].tolist()
    told = []
    for number, call in zip(table["number"].tolist(), table["call"].tolist(), strict=True):
        mark, name = replayed, names[codes[call]]
        if number < len(marks):
            mark, name = of_mark[number], names[code_of_mark[number]]
        engine = _REPLAY if mark is replayed else _PATTERNS[mark.order][0]
        told.append((name, engine, mark.phase, _ALONE * (mark is replayed), *mark.counts))
    columns = ["name", "engine", "phase", "doubt", *(f"{count}_count" for count in _COUNTS)]
    return pd.DataFrame(told, columns=columns, index=table.index)
