"""Graphs of profiler traces as nodes of a Chakra trace."""

import numpy as np
import pandas as pd
import pytest

from claims._graph_tasks import chakra_nodes
from claims._tables import TASK_EDGES, TASKS
from tests.plot.conftest import build
from workbench import load, tables
from workbench.errors import PerformanceModelError


def test_profiler_work_becomes_nodes_with_collectives_and_sizes(tmp_path):
    events = build(
        tables.EVENTS,
        [
            {"rank": 0, "start_ns": 0, "dur_ns": 9, "name": "aten::mm", "category": "cpu_op"},
            {"rank": 0, "start_ns": 9, "dur_ns": 5, "name": "gemm", "category": "kernel",
             "kind": "compute", "stream": 7},
            {"rank": 0, "start_ns": 14, "dur_ns": 6, "name": "ncclDevKernel", "category": "kernel",
             "kind": "communication", "stream": 8, "collective": "allreduce", "group": "dp",
             "in_count": 10, "out_count": 10, "dtype": "Float"},
        ],
    )  # fmt: skip
    tasks = pd.DataFrame(
        {"task": np.arange(3), "rank": 0, "event": np.arange(3), "name": ["a", "b", "c"],
         "category": "x", "start_ns": [0, 9, 14], "dur_ns": [9, 5, 6], "stream": [None, 7, 8],
         "thread": ["1", None, None]}
    )  # fmt: skip
    edges = pd.DataFrame({"src": [0, 1], "dst": [1, 2], "kind": "launch", "is_inferred": False})
    nodes, needed = chakra_nodes(events, TASKS.cast(tasks), TASK_EDGES.cast(edges))
    assert nodes["type"].tolist() == ["COMP_NODE", "COMP_NODE", "COMM_COLL_NODE"]
    assert nodes["size_bytes"].iloc[2] == 40
    assert nodes["collective"].iloc[2] == "all_reduce"
    assert nodes["is_cpu"].tolist() == [True, False, False]
    load.write_chakra((nodes, needed), tmp_path / "job")
    back = load.traces(tmp_path, progress=False)
    assert back.nodes["dur_ns"].tolist() == [9, 5, 6]
    assert back.nodes["group"].iloc[2] == "dp"
    with pytest.raises(PerformanceModelError, match="edges are of tasks that do not exist"):
        chakra_nodes(events, TASKS.cast(tasks[:1]), TASK_EDGES.cast(edges))
