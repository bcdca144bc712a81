"""Which hosts the logs name, and over which time they watched each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from workbench.load._files.log_file import LogPart
from workbench.tables import NODE_SPANS

_CLOCKS = ("epoch", "own", "none")


def node_spans(
    failures: pd.DataFrame, timeline: pd.DataFrame, parts: Sequence[LogPart]
) -> pd.DataFrame:
    """Return table NODE_SPANS of what was loaded.

    A host that is named on clocks of several kinds has the span of the best of them.
    """
    seen = pd.DataFrame(
        [*_of_failures(failures), *_of_timeline(timeline), *_of_parts(parts)],
        columns=["node", "clock", "first_ns", "last_ns"],
        dtype=object,  # whole nanoseconds would not survive as floats
    )
    if seen.empty:
        return NODE_SPANS.empty()
    for name in ("first_ns", "last_ns"):
        seen[name] = pd.array(seen[name].tolist(), dtype="Int64")
    seen["order"] = seen["clock"].map(_CLOCKS.index)
    spans = seen.groupby(["node", "order"], sort=True).agg(
        clock=("clock", "first"), first_ns=("first_ns", "min"), last_ns=("last_ns", "max")
    )
    spans = spans.reset_index().drop_duplicates("node").drop(columns="order")
    gpus: dict[str, int | None] = {}
    for part in parts:
        gpus |= {node: count for node, count in part.nodes.items() if count is not None}
    counts = failures["node"].value_counts()
    spans["gpu_count"] = pd.array([gpus.get(node) for node in spans["node"]], dtype="Int64")
    spans["failure_count"] = [int(counts.get(node, 0)) for node in spans["node"]]
    return NODE_SPANS.check(NODE_SPANS.cast(spans.reset_index(drop=True)))


_Seen = tuple[str, str, int | None, int | None]


def _of_failures(failures: pd.DataFrame) -> Iterator[_Seen]:
    named = failures[failures["node"].notna()]
    grouped = named.groupby(["node", "clock"])
    spans = pd.DataFrame({"first": grouped["start_ns"].min(), "last": grouped["end_ns"].max()})
    for (node, clock), first, last in spans.itertuples(name=None):
        yield node, clock, _number(first), _number(last)


def _of_timeline(timeline: pd.DataFrame) -> Iterator[_Seen]:
    named = timeline[timeline["nodes"].notna()]
    ends = named["end_ns"].fillna(named["start_ns"])
    # Many runs share a list, and lists may be of thousands of hosts: each is taken apart once.
    grouped = named.assign(end_ns=ends).groupby(["nodes", "clock"], sort=False)
    spans = grouped.agg(first=("start_ns", "min"), last=("end_ns", "max"))
    for (nodes, clock), first, last in spans.itertuples(name=None):
        for node in nodes.split(","):
            if node.strip():
                yield node.strip(), clock, _number(first), _number(last)


def _of_parts(parts: Sequence[LogPart]) -> Iterator[_Seen]:
    for part in parts:
        for node in part.nodes:
            yield node, "none", None, None
        for node, (first, last) in part.watched.items():
            yield node, "epoch", first, last


def _number(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]
