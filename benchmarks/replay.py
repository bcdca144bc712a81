"""How fast execution graphs are built and replayed, and how soon a what-if answers.

    python benchmarks/replay.py [--rounds N] [--tasks N ...]

Replays of made graphs (ranks with one thread and three streams each, launches, waits between
streams, collectives) of growing size; the peer is the longest path of networkx on the smallest
one, with the same answer. Then the graph of a real trace, of the trace repeated, and one
question to it. Everything runs in this process, after one run that is not counted. The table
goes to the screen and to ``benchmarks/results/replay.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._enlarge import enlarge
from benchmarks._measure import machine
from benchmarks._table import Row, markdown
from workbench import analyze, datasets, load
from workbench.analyze._perfmodel.replays.change import changed_weights
from workbench.analyze._perfmodel.timing.longest_path import LongestPath

RESULTS = Path(__file__).with_name("results")
RANKS, STREAMS = 64, 3
PEER_TASKS = 100_000
TRACE = ("kineto-hta", "trace_diff/control/control.json.gz")
EVENTS_WANTED = 1_000_000
_CHANGE = analyze.Change(factor=0.5, kind="compute")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    about = machine()
    rows = [_against_networkx(options.rounds)]
    for count in options.tasks:
        rows += _replays(count, options.rounds)
    rows += _traces(options.rounds)
    remarks = [
        f"Medians of {options.rounds} rounds in one process, after one that is not counted (it "
        f"compiles, or loads what was compiled). Made graphs: {RANKS} ranks with one thread and "
        f"{STREAMS} streams each. Bytes are those of the arrays a replay holds, edges included.",
    ]
    text = markdown(rows, about, remarks)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "replay.md").write_text(text, encoding="utf-8")
    content = {"machine": about, "rows": [asdict(row) for row in rows]}
    (options.out / "replay.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return 0


def made_graph(count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a graph of tasks: source, target and weight (time of the source) of every edge."""
    each = count // RANKS
    half = each // 2
    task = np.arange(RANKS * each, dtype=np.int64)
    rank, place = np.divmod(task, each)
    on_cpu = place < half
    rng = np.random.default_rng(seed)
    shape, scale = np.where(on_cpu, 2, 1.2), np.where(on_cpu, 4_000, 40_000)
    took = rng.gamma(shape, scale).astype(np.int64)
    turn = place - half
    parts = [
        (task[on_cpu & (place > 0)], 1),  # thread
        (task[~on_cpu & (turn < half)], half),  # launch
        (task[~on_cpu & (turn >= STREAMS)], STREAMS),  # stream
        (task[~on_cpu & (turn % 8 == 0) & (turn > 0)], 1),  # another stream
    ]
    target = np.concatenate([part for part, _ in parts])
    source = np.concatenate([part - back for part, back in parts])
    met = task[~on_cpu & (turn % 64 == 0) & (turn > 0)]
    source = np.append(source, (rank[met] + 1) % RANKS * each + half + turn[met] - 1)
    target = np.append(target, met)
    return source.astype(np.int32), target.astype(np.int32), took[source]


def _seconds(action: Callable[[], object], rounds: int) -> list[float]:
    """Return how long every round took, shortest first."""
    action()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return sorted(times)


def _first_replay(source: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    count = int(max(source.max(), target.max())) + 1
    return LongestPath(source, target, count).times(weight)


def _against_networkx(rounds: int) -> Row:
    import networkx as nx

    source, target, weight = made_graph(PEER_TASKS)
    times = _seconds(lambda: _first_replay(source, target, weight), rounds)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        zip(source.tolist(), target.tolist(), weight.tolist(), strict=True)
    )
    began = time.perf_counter()
    longest = nx.dag_longest_path_length(graph, weight="weight")
    peer = time.perf_counter() - began
    if longest != _first_replay(source, target, weight).max():
        msg = f"networkx finds a longest path of {longest} ns, not the same"
        raise ValueError(msg)
    here = statistics.median(times)
    return Row(
        f"order and longest path of {PEER_TASKS:,} tasks against networkx",
        f"{1e3 * here:.1f} ms", f"{peer:.2f} s", peer / here, 100,
        note=f"{1e3 * times[0]:.1f} to {1e3 * times[-1]:.1f} ms; building not counted",
    )  # fmt: skip


def _replays(count: int, rounds: int) -> list[Row]:
    source, target, weight = made_graph(count)
    tasks = int(target.max()) + 1
    first = _seconds(lambda: _first_replay(source, target, weight), min(rounds, 3))
    path = LongestPath(source, target, tasks)
    again = _seconds(lambda: path.times(weight), rounds)
    held = path.nbytes + source.nbytes + target.nbytes + weight.nbytes + 8 * tasks
    wanted = 0.1 if count <= 1_000_000 else 2.0
    taken = [statistics.median(times) for times in (first, again)]
    return [
        Row(f"order and first replay of {tasks:,} tasks, {len(source):,} edges",
            f"{taken[0]:.3f} s", "", taken[0], None, "s", smaller_is_better=True,
            note=f"{first[0]:.3f} to {first[-1]:.3f}"),
        Row(f"further replay of {tasks:,} tasks", f"{taken[1]:.3f} s", "", taken[1], wanted, "s",
            smaller_is_better=True, note=f"{again[0]:.3f} to {again[-1]:.3f}"),
        Row(f"memory of {tasks:,} tasks", f"{held / 2**20:.0f} MiB", "", held / tasks, 60,
            "bytes per task", smaller_is_better=True),
    ]  # fmt: skip


def _traces(rounds: int) -> list[Row]:
    dataset, file = TRACE
    path = datasets.path(dataset) / file
    events = load.traces(path, progress=False).events
    graph = analyze.execution_graph(events)
    analyze.replay(graph)

    def ask() -> None:
        weight, _ = changed_weights(events, graph, [_CHANGE])
        analyze.replay(graph, weight_ns=weight)

    asked = [1e3 * each for each in _seconds(ask, rounds)]
    many = _repeated(path, len(events))
    built = _seconds(lambda: analyze.execution_graph(many), min(rounds, 3))
    taken = statistics.median(built) / len(many) * 1e6
    return [
        Row(f"one what-if on {len(events):,} events: {_CHANGE.question}",
            f"{statistics.median(asked):.0f} ms", "", statistics.median(asked), 200, "ms",
            smaller_is_better=True, note=f"{asked[0]:.0f} to {asked[-1]:.0f}"),
        Row(f"graph of {len(many):,} events (that trace repeated)",
            f"{statistics.median(built):.2f} s", "", taken, 8, "s per million events",
            smaller_is_better=True, note=f"{built[0]:.2f} to {built[-1]:.2f} s"),
    ]  # fmt: skip


def _repeated(path: Path, count: int) -> pd.DataFrame:
    """Load a trace as often repeated as it takes to have a million events."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        enlarge(path, large, 1)
        size = large.stat().st_size
        enlarge(path, large, round(size * EVENTS_WANTED / count))
        return load.traces(large, progress=False).events


if __name__ == "__main__":
    sys.exit(main())
