"""Compiled code where no folder can hold it: a read-only installation without a home."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, json, sys
caching = importlib.import_module("numba.core.caching")
event = importlib.import_module("numba.core.event")

def refuse(self):
    raise OSError(30, "Read-only file system")

caching._CacheLocator.ensure_cache_path = refuse  # as each place of the cache would
counts = []
from workbench import analyze, load
with event.install_recorder("numba:compile") as recorder:
    for _ in range(3):
        trace = load.traces(sys.argv[1], engine="compiled", progress=False)
        counts.append(len(recorder.buffer))
print(json.dumps({"compiled": counts, "events": len(trace.events)}))
"""


@pytest.mark.slow
def test_a_read_only_cache_compiles_once_per_process(fleet_demo):
    pytest.importorskip("numba")
    file = min((fleet_demo / "traces").glob("*.json.gz"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    first, *later = told["compiled"]
    assert first > 0
    assert later == [first, first]
    assert told["events"] > 0
    assert done.stderr == ""
