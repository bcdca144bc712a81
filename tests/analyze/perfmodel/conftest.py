"""Small traces of a CPU that launches work on streams, made by hand or drawn at random."""

from collections.abc import Callable
from itertools import pairwise

import networkx as nx
import pandas as pd
import pytest
from hypothesis import strategies as st

US = 1_000
CALLS = {
    "kernel": "cudaLaunchKernel",
    "copy": "cudaMemcpyAsync",
    "graph": "cudaGraphLaunch",
    "device": "cudaDeviceSynchronize",
    "stream": "cudaStreamSynchronize",
    "event": "cudaEventSynchronize",
    "record": "cudaEventRecord",
    "wait": "cudaStreamWaitEvent",
}


class Script:
    """Rows of a trace, in microseconds; give them to ``make_events``."""

    def __init__(self, rank: int = 0) -> None:
        self.rows: list[dict] = []
        self._rank, self._correlation = rank, 0

    def op(self, start, dur, name="aten::op", thread="1", **more):
        self._add(start, dur, name=name, category="cpu_op", thread=thread, **more)
        return self

    def call(self, what, start, dur=2, thread="1", **more):
        """Add a call without work on the GPU; return its correlation."""
        self._correlation += 1
        self._add(
            start, dur, name=CALLS[what], category="cuda_runtime", thread=thread,
            correlation=self._correlation, **more,
        )  # fmt: skip
        return self._correlation

    def launch(self, start, work, dur=2, thread="1", what="kernel"):
        """Add a call and the work it launches: (start, duration, stream) or several of them."""
        label = f"{self._rank}:{len(self.rows)}"
        number = self.call(what, start, dur, thread, id=label)
        for began, took, stream in work if isinstance(work, list) else [work]:
            self.work(began, took, stream, launch=label, correlation=number, what=what)
        return number

    def work(self, start, dur, stream=7, what="kernel", **more):
        row = {"kind": "compute", "name": f"{what} on {stream}", "stream": stream} | more
        if what == "copy":
            row |= {"category": "gpu_memcpy", "kind": "memory"}
        self._add(start, dur, **row)
        return self

    def told(self, correlation, stream, waited=None, record=None):
        """Add what ``cuda_sync`` says of a call."""
        self._add(
            0, 1, name="sync", category="cuda_sync", correlation=correlation, stream=stream,
            wait_stream=waited, wait_correlation=record,
        )  # fmt: skip

    def steps(self, *starts, thread="1"):
        """Add ProfilerSteps, each up to the next."""
        for number, (first, last) in enumerate(pairwise(starts)):
            name = f"ProfilerStep#{number}"
            self._add(first, last - first, name=name, category="user_annotation", thread=thread)
        for row in self.rows:
            inside = [n for n, first in enumerate(starts[:-1]) if first * US <= row["start_ns"]]
            row["step"] = inside[-1] if inside else None
        return self

    def _add(self, start, dur, **row):
        times = {"start_ns": round(start * US), "dur_ns": round(dur * US)}
        self.rows.append({"rank": self._rank} | times | row)


@pytest.fixture(scope="session")
def script() -> type[Script]:
    return Script


@pytest.fixture(scope="session")
def edges_of() -> Callable[..., list[tuple]]:
    """List edges of a kind as (name and point kind of both ends, weight in microseconds)."""

    def edges(events: pd.DataFrame, graph, kind: str) -> list[tuple]:
        points = graph.points
        name = events["name"].astype(object).reindex(points["event"].fillna(-1)).fillna("")
        labels = (name.to_numpy() + " " + points["kind"].astype(object).to_numpy()).tolist()
        chosen = graph.edges[graph.edges["kind"] == kind]
        return [
            (labels[edge.source].strip(), labels[edge.target].strip(), edge.weight_ns / US)
            for edge in chosen.itertuples()
        ]

    return edges


@pytest.fixture(scope="session")
def task_ends() -> Callable[..., pd.Series]:
    """Give the end of every task, played by a walk through networkx: an own, slow engine."""

    def ends(graph_of_tasks) -> pd.Series:
        network = nx.DiGraph()
        network.add_nodes_from(graph_of_tasks.tasks["task"])
        network.add_edges_from(
            zip(graph_of_tasks.edges["src"], graph_of_tasks.edges["dst"], strict=True)
        )
        dur = graph_of_tasks.tasks.set_index("task")["dur_ns"].to_dict()
        end: dict[int, int] = {}
        for task in nx.topological_sort(network):
            end[task] = max((end[needed] for needed in network.pred[task]), default=0) + dur[task]
        return pd.Series(end).loc[graph_of_tasks.tasks["task"]]

    return ends


ITEM = st.tuples(
    st.sampled_from([*CALLS, "op", "kernel", "kernel"]),
    st.integers(0, 1),  # thread
    st.integers(1, 3),  # stream
    st.integers(0, 300),  # gap before
    st.integers(0, 90),  # duration of the call
    st.integers(-20, 80),  # latency of the launch
    st.integers(0, 400),  # duration of the work
    st.booleans(),  # the trace tells what is waited for
)


def scripted(items: list[tuple], *, is_orderly: bool = True) -> Script:
    """Turn drawn items into a trace; an orderly one keeps streams in order and launches first."""
    trace = Script()
    now, free, records = [0, 0], {}, []
    for what, thread, stream, gap, dur, latency, took, is_told in items:
        at, name = now[thread] + gap, str(thread)
        now[thread] = at + dur
        if what == "op":
            trace.op(at, dur, thread=name)
        elif what in {"kernel", "copy", "graph"}:
            began = at + latency
            if is_orderly:
                began = max(at, began, free.get(stream, 0))
            free[stream] = began + took
            trace.launch(at, (began, took, stream), dur, name, what)
        else:
            number = trace.call(what, at, dur, name)
            if is_told and what in {"wait", "event", "stream"}:
                trace.told(number, stream, stream % 3 + 1, records[-1] if records else None)
            if what == "record":
                records.append(number)
    if not free:
        trace.launch(now[0], (now[0] + 5, 10, 1), thread="0")
    return trace


@pytest.fixture(scope="session")
def traces():
    """Give a strategy of random traces, as lists of rows."""

    def strategy(*, is_orderly: bool = True):
        items = st.lists(ITEM, min_size=1, max_size=25)
        return items.map(lambda drawn: scripted(drawn, is_orderly=is_orderly).rows)

    return strategy
