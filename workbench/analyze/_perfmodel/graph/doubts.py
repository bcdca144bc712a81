"""What makes a trace a poor base for predictions, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from workbench.analyze._lib.rows import MISSING
from workbench.analyze._perfmodel.graph.rank_rows import RankRows
from workbench.analyze._perfmodel.graph.rules import GraphRules

# Shares from which on a trace is in doubt.
_EARLY, _WITHOUT_WORK, _WITHOUT_LAUNCH = 0.01, 0.05, 0.2
_SHOWN = 4


def rank_doubts(events: pd.DataFrame, rows: RankRows, rules: GraphRules) -> list[str]:
    """Say what is missing from the trace of a rank, or cannot be as it says."""
    gpu, cpu = rows.gpu, rows.cpu
    if not len(cpu.row):
        return ["nothing of the CPU is in the trace: GPU work keeps its place"]
    doubts = []
    has = gpu.call != MISSING
    early = gpu.start[has] < cpu.start[gpu.call[has]] - rules.jitter_ns
    if (share := _share(early)) > _EARLY:
        doubts.append(f"{share:.0%} of the GPU work begins before its launch: clocks are off")
    if (share := _share(~has)) > _WITHOUT_LAUNCH:
        doubts.append(f"{share:.0%} of the GPU work has no launch in the trace")
    is_launch = np.array(["LaunchKernel" in str(each) for each in events["name"].cat.categories])
    calls = np.flatnonzero(cpu.is_call & np.append(is_launch, False)[cpu.name])
    if (share := _share(~np.isin(calls, gpu.call))) > _WITHOUT_WORK:
        doubts.append(f"{share:.0%} of the kernel launches have no work on the GPU in the trace")
    return doubts


def step_doubts(events: pd.DataFrame) -> list[str]:
    """Say whether ranks recorded different steps."""
    if "step" not in events or events["rank"].nunique() < 2:
        return []
    pairs = events[["rank", "step"]].dropna().drop_duplicates()
    ranks = np.unique(pairs["rank"].to_numpy()).tolist()
    steps = {rank: sorted(pairs.loc[pairs["rank"] == rank, "step"]) for rank in ranks}
    if len({tuple(each) for each in steps.values()}) < 2:
        return []
    said = [f"rank {rank}: {len(each)}" for rank, each in list(steps.items())[:_SHOWN]]
    return [f"ranks recorded different steps ({', '.join(said)})"]


def _share(chosen: np.ndarray) -> float:
    return float(chosen.mean()) if len(chosen) else 0.0
