"""All benchmarks run, with PyTorch and a browser and without."""

import subprocess
import sys

import pytest

WITHOUT_BOTH = """
import importlib.util
import sys

ABSENT = ("torch", "playwright")

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ABSENT else found(name, *rest)
from benchmarks import __main__ as every
for part in (*every._PARTS, every.traces):
    part.main = lambda arguments=None, part=part: print("ran", part.__name__) or 0
sys.exit(every.main())
"""


@pytest.mark.long
def test_without_torch_and_a_browser_all_others_run():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BOTH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    skipped = [f"# {name}: skipped, needs the extra inject" for name in
               ("checksums", "low_precision", "injections")]  # fmt: skip
    skipped.append("# lab: skipped, needs playwright and its browser")
    parts = (
        "failures",
        "goodput",
        "imbalance",
        "power",
        "replay",
        "diagnose",
        "ranks",
        "power_rollup",
        "exports",
        "timeline",
        "explorers",
        "snapshots",
    )
    ran = [f"ran benchmarks.{name}" for name in parts]
    assert done.stdout.splitlines() == [*ran, *skipped, "ran benchmarks.traces"]
