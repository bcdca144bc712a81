"""Claims about statistical twins: held-out ranks, other traces, and a twin of a twin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from workbench import analyze, load, simulate
from workbench.fidelity.registry import Reading, beside_named, claim
from workbench.tables import Trace

_SOURCE = "target of this project"
_FILE = "trace_likeness"
# Ranks of which all what-ifs alone agree: the others wait for a host whose delay no profile knows.
_ALONE_REACHED = 3
# Times in whole microseconds: what is drawn near them is spread a little more each time.
_TWIN_REACHED = 1.5
_OTHERS = {
    "H100, Qwen": "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "H100, BERT": "gaunernst_bert-small-uncased__1016001.json.gz",
    "ResNet": "resnet_kineto.json.gz",
    "HTA, control": "trace_diff/control",
}


@claim(
    noun="trace_likeness",
    name="behaviour of held-out ranks",
    source=_SOURCE,
    needs=("kineto-dlrm-8rank",),
)
def held_out(folder: Path) -> Iterator[Reading]:
    """Fit on seven of eight ranks, and count held-out ranks whose behaviour agrees to 10 %.

    A rank alone is asked too much: what its collectives wait depends on when its host was there,
    which the other ranks do not tell. In the job, where waits arise, it is not. Seed 0.
    """
    trace = load.traces(folder, progress=False)
    ranks = trace.ranks["rank"].tolist()
    alone, moves, steps = [], [], []
    for rank in ranks:
        profile = analyze.trace_profile(of_ranks(trace, [n for n in ranks if n != rank]))
        twin = simulate.traces_like(profile, ranks=len(ranks))
        scores = analyze.trace_likeness(of_ranks(trace, [rank]), twin).set_index("kind")
        alone.append(bool((_moves(scores, "")["verdict"] == "pass").all()))
        scores = analyze.trace_likeness(trace, twin).set_index("kind")
        moves.append(bool((_moves(scores, "job, ")["verdict"] == "pass").all()))
        steps.append(bool(scores.loc["job, time of a step", "verdict"] == "pass"))
    name = "held-out ranks alone: what-if moves alike to 10 %"
    yield replace(beside_named(_FILE, name, sum(alone)), reached=_ALONE_REACHED)
    name = "held-out ranks in their job: what-if moves alike to 10 %"
    yield beside_named(_FILE, name, sum(moves))
    yield beside_named(_FILE, "held-out ranks in their job: step time alike to 10 %", sum(steps))


def _moves(scores: pd.DataFrame, whose: str) -> pd.DataFrame:
    changes = ("compute x0.5", "communication x2", "CPU x0.5")
    return scores.loc[[f"{whose}{change}" for change in changes]]


def of_ranks(trace: Trace, ranks: list[int]) -> Trace:
    """Keep some ranks of a trace."""
    kept = trace.events["rank"].isin(ranks)
    of_rank = trace.ranks["rank"].isin(ranks)
    return replace(trace, events=trace.events[kept], ranks=trace.ranks[of_rank])


@claim(
    noun="trace_likeness",
    name="behaviour and leaks of other traces",
    source=_SOURCE,
    needs=("kineto-h100", "kineto-resnet", "kineto-hta"),
)
def other_traces(h100: Path, resnet: Path, hta: Path) -> Iterator[Reading]:
    """Compare twins of single ranks with their sources: inference on H100, training on V100."""
    folders = (h100, h100, resnet, hta)
    for folder, (name, file) in zip(folders, _OTHERS.items(), strict=True):
        trace = load.traces(folder / file, progress=False)
        profile = analyze.trace_profile(trace)
        scores = analyze.trace_likeness(trace, simulate.traces_like(profile))
        failed = scores[scores["verdict"] == "FAIL"]["score"]
        for score, words in (("behaviour", "behaviour"), ("leak", "leaks")):
            what = f"other traces: scores of {words} beyond their limit"
            count = int((failed == score).sum())
            yield beside_named(_FILE, what, count, f"{name}: scores of {words} beyond their limit")


@claim(
    noun="trace_likeness",
    name="a twin of a twin",
    source="Kolmogorov-Smirnov critical value at 5 %",
    needs=("kineto-h100", "kineto-resnet"),
)
def twin_of_twin(h100: Path, resnet: Path) -> Iterator[Reading]:
    """Fit a twin, draw from it, and compare durations of compute: scipy's test is independent.

    One rank each: ranks share a factor, so that their durations are no independent draws.
    """
    from scipy.stats import ks_2samp

    for name, path in (
        ("H100, Qwen", h100 / _OTHERS["H100, Qwen"]),
        ("ResNet", resnet / _OTHERS["ResNet"]),
    ):
        trace = load.traces(path, progress=False)
        first = simulate.traces_like(analyze.trace_profile(trace), seed=1)
        second = simulate.traces_like(analyze.trace_profile(first), seed=2)
        durations = [
            twin.events.loc[twin.events["kind"] == "compute", "dur_ns"] for twin in (first, second)
        ]
        chance = 1.36 * np.sqrt(2 / len(durations[0]))
        ratio = float(ks_2samp(*durations, method="asymp").statistic / chance)
        what = "twin of a twin: distance of durations over that of chance at 5 %"
        reading = beside_named(_FILE, what, ratio, f"{name}: distance over that of chance")
        yield replace(reading, reached=_TWIN_REACHED) if name == "ResNet" else reading
