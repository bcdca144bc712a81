"""Compiled code where no folder can hold it: a read-only installation without a home."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, json
import numpy as np
caching = importlib.import_module("numba.core.caching")
event = importlib.import_module("numba.core.event")

def refuse(self):
    raise OSError(30, "Read-only file system")

caching._CacheLocator.ensure_cache_path = refuse  # as each place of the cache would
counts = []
from workbench.analyze._perfmodel.timing.longest_path import LongestPath
source, target = np.array([0, 0], np.int32), np.array([1, 2], np.int32)
with event.install_recorder("numba:compile") as recorder:
    for _ in range(3):
        times = LongestPath(source, target, 3).times(np.array([5, 7]))
        counts.append(len(recorder.buffer))
print(json.dumps({"compiled": counts, "times": times.tolist()}))
"""


@pytest.mark.slow
def test_a_read_only_cache_compiles_once_per_process():
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    first, *later = told["compiled"]
    assert first > 0
    assert later == [first, first]
    assert told["times"] == [0, 5, 7]
    assert done.stderr == ""
