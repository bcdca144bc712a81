"""How long a memory snapshot takes beside its pickle, and how findings of many files are folded.

    python benchmarks/snapshots.py [--rounds N]

Everything runs in this process, the sides in turn, as processor time. The pickle of the snapshot
is of our own making, so plain ``pickle`` may read it here. The table goes to the screen and to
``benchmarks/results/snapshots.md`` and ``.json``.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks._measure import machine, seconds
from benchmarks._table import RESULTS, Row, publish
from workbench import load
from workbench.tables import folded_findings

SLOWEST = 10.0
ACTIONS = (24_000, 100_000)
FINDINGS = (1_000, 16_000, 100_000)
_ACTIONS = ("alloc", "free_requested", "free_completed")
Stack = Callable[[list[Any], random.Random], list[Any]]
STACKS: dict[str, Stack] = {
    "one stack of 40 frames": lambda frames, _: frames[:40],
    "stacks of 3 frames, all different": lambda frames, rng: rng.sample(frames, 3),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table; return 0 even if targets are missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        rows = [
            _snapshot(Path(place), count, name, options.rounds)
            for name in STACKS
            for count in ACTIONS
        ]
    rows.append(_folding(options.rounds))
    remarks = [
        f"Processor time, medians of {options.rounds} rounds in one process after one that is not "
        "counted. The workbench checks every instruction of a pickle before it carries one out, "
        "makes its tables and follows every allocation; pickle makes Python's objects."
    ]
    publish("snapshots", rows, machine(), remarks, options.out)
    return 0


def _snapshot(folder: Path, count: int, name: str, rounds: int) -> Row:
    rng = random.Random(0)
    frames = [{"filename": f"/torch/nn/m{n}.py", "line": n, "name": "f"} for n in range(3000)]
    acts = [
        {"action": _ACTIONS[n % 3], "addr": 512 * (n // 3 % 5000), "size": 512, "stream": 0,
         "time_us": 1_700_000_000_000_000 + n, "frames": [*STACKS[name](frames, rng)]}
        for n in range(count)
    ]  # fmt: skip
    block = {"address": 1, "size": 512, "state": "inactive"}
    segment = {"device": 0, "address": 1, "total_size": 512, "segment_type": "large",
               "segment_pool_id": (0, 0), "blocks": [block]}  # fmt: skip
    path = folder / f"rank0_{count}.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [acts]}))
    loaded, plain = seconds(
        lambda: load.memory(path, rank=0),
        lambda: pickle.loads(path.read_bytes()),  # noqa: S301 - written above
        rounds=rounds,
    )
    return Row(
        f"snapshot of {count:,} actions, {name}", f"{loaded:.2f} CPU s", f"pickle: {plain:.2f}",
        loaded / plain, SLOWEST, smaller_is_better=True,
    )  # fmt: skip


def _folding(rounds: int) -> Row:
    what = {"finding": "dropped", "what": "is of an unrecognized kind", "count": 1, "where": None}
    rows = [{"source": f"a.zip!d/{n}.dat", **what} for n in range(FINDINGS[-1])]
    few, some, many = seconds(
        *(lambda count=count: folded_findings(rows[:count]) for count in FINDINGS), rounds=rounds
    )
    a, b, c = (f"{count:,}" for count in FINDINGS)
    return Row(
        f"equal findings of {c} files folded", f"{many:.3f} CPU s",
        f"{a}: {few:.4f}, {b}: {some:.3f}", many / some, 2 * FINDINGS[-1] / FINDINGS[1],
        unit=f"× {b}", smaller_is_better=True,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
