"""Rules on profiler traces: stragglers, exposed communication, and GPUs without work."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from workbench.analyze._lib.finding_rules import (
    Confidence,
    Finding,
    first_of,
    needs,
    ranks_text,
    rule,
)
from workbench.analyze._traces.idle import ACTIVITIES, DETAILS
from workbench.analyze._traces.inference import annotated_iterations
from workbench.analyze._traces.kernels import kernel_kinds
from workbench.analyze._traces.launches import copy_bandwidth
from workbench.analyze._traces.rank_evidence import host_calls, rank_facts
from workbench.analyze._traces.traced import Traced
from workbench.errors import WorkbenchError

_HTA = "HolisticTraceAnalysis, https://hta.readthedocs.io"
_FALCON = "arXiv:2410.12588, Falcon: pinpointing stragglers in hybrid-parallel training"
_NSYS = "Nsight Systems expert rules, docs.nvidia.com/nsight-systems/UserGuide"
_TUNING = "PyTorch performance tuning guide, pytorch.org/tutorials/recipes/recipes/tuning_guide"
_NCCL = "nccl-tests, doc/PERFORMANCE.md"
_BLOCKING = ACTIVITIES[0]
_GRAPH, _LATE_START = DETAILS[-2:]
# Longer gaps between short kernels are no matter of launches.
_PCIE_GB_PER_S = 6.0  # half of what PCIe 3.0 x16 moves
_LAUNCH_GAP_NS = 50_000
_SHORT_US = 10.0


def _steps(numbers: pd.Index) -> str:
    if (numbers < 0).all():
        return "no step marks"
    first, last = int(numbers.min()), int(numbers.max())
    return f"step {first}" if first == last else f"{len(numbers)} of the steps {first} to {last}"


_LATE_BECAUSE = {
    "compute": "its compute kernels take longer",
    "memory": "it copies longer",
    "other": "it runs other GPU work for longer",
    "idle": "its host launches work late",
    "communication": "it waits in another process group",
    "began late": "it was late before the window began",
}
_NEXT = {
    "compute": "compare SM clocks, ECC remaps and temperature of this GPU; swap it if they differ",
    "memory": "look at the copies of this rank: pinned memory, PCIe width, NUMA placement",
    "idle": "look at the host of this rank: data loader, Python, CPU placement",
}
_LOADER = "dataloader"


@rule(Traced, reference=_FALCON)
def straggler(
    traced: Traced, *, least_share: float = 0.01, least_step_share: float = 0.005
) -> Iterator[Finding]:
    """One rank delays the others.

    The cost is gone if that rank becomes as fast as the next slowest.
    """
    lost = traced.lost_to
    rank_count = len(traced.by_rank)
    needs(rank_count, 2, "ranks with GPU work")
    told = False
    # Among equal ranks chance decides who is last; only what is beyond that has a cause. Of two
    # ranks the mean would be half of what the slower one costs.
    every = lost.reindex(columns=traced.by_rank.index).fillna(0.0)
    usual = every.quantile(0.5, axis=1, interpolation="lower")
    least_ns = least_step_share * traced.gpu_ns / max(len(lost), 1)
    for rank in lost.columns:
        excess = (lost[rank] - usual).clip(lower=0)
        steps = excess.index[excess > least_ns]
        total = float(excess.loc[steps].sum())
        if not len(steps) or total < least_share * traced.gpu_ns:
            continue
        reason, where_from, confidence, doubt = _cause(traced, int(rank), steps)
        next_step = _NEXT.get(reason, "open the timeline of this rank at the steps named")
        is_loader, told = _LOADER in where_from.lower(), True
        cause = "it waits for its data loader" if is_loader else _LATE_BECAUSE.get(reason, "")
        yield Finding(
            f"Rank {rank} delays the other {rank_count - 1}" + (f": {cause}" if cause else ""),
            where=f"rank {rank}, {_steps(steps)}" + (f", {where_from}" if where_from else ""),
            **traced.cost(total),
            cost_basis="exposed waiting for this rank, of the rank that waits least for it",
            confidence=confidence,
            doubt=doubt,
            evidence="analyze.late_arrivals, plot.late_arrivals (notebook 01)",
            next_step="raise num_workers or prefetch, or look at the storage of this host"
            if is_loader
            else next_step,
        )
    if not told and (reason := _unknown_arrivals(traced, least_share * traced.gpu_ns)):
        raise WorkbenchError(reason)


def _unknown_arrivals(traced: Traced, least_ns: float) -> str:
    """Say why it cannot be told which rank was last, where that could hide much waiting."""
    off = traced.clocks[~traced.clocks["is_sure"] & traced.clocks["residual_ns"].notna()]
    hidden = off["offset_ns"].abs() * off["collective_count"]
    if len(off) and hidden.max() >= least_ns:
        return (
            f"clocks of {ranks_text(off['rank'])} seem off by up to "
            f"{_time(float(off['offset_ns'].abs().max()))}, and nothing says whether they are: "
            f"{off['note'].iloc[0]}. Mark steps in the profile (prof.step())"
        )
    table = traced.collectives
    lacking = table[
        table["wait_ns"].isna() & table["note"].str.contains("disagree|differ", na=False)
    ]
    by_rank = lacking.groupby("rank")["dur_ns"].sum()
    if len(lacking) and 2 * len(lacking) >= len(table) and by_rank.median() >= least_ns:
        return f"{len(lacking):,} of {len(table):,} collectives: {lacking['note'].mode().iloc[0]}"
    return ""


def _cause(
    traced: Traced, rank: int, steps: pd.Index
) -> tuple[str, str, Confidence, str]:  # reason, place, confidence, doubt
    """Read from the late arrivals of a rank what it spent the excess on."""
    late = traced.late
    rows_of_rank = late[(late["blamed_rank"] == rank) & late["step"].isin(steps) & late["is_sure"]]
    rows_of_rank = rows_of_rank[
        rows_of_rank["excess_kind"].notna() & (rows_of_rank["excess_kind"] != "began late")
    ]
    if rows_of_rank.empty:
        return "", "", "medium", "no matched collective shows what the rank did before"
    by_kind = rows_of_rank.groupby("excess_kind", observed=True)["excess_ns"].sum()
    reason = str(by_kind.idxmax())
    rows = rows_of_rank[rows_of_rank["excess_kind"] == reason].sort_values(
        "excess_ns", ascending=False
    )
    top = first_of(rows)
    where = ""
    if reason == "idle":
        operator = traced.host_operator(rank, int(top["begin_ns"]), int(top["end_ns"]))
        where = f"host in {operator}" if operator else ""
    elif reason == "compute" and pd.notna(top["compute_ratio"]):
        ratio = float(rows["compute_ratio"].median())
        where = f"compute {ratio:.2f} times the median of the other ranks"
    share = float(by_kind.max() / by_kind.sum())
    doubt = "" if share > 0.6 else f"only {share:.0%} of its excess has this cause"
    return reason, where, "high" if share > 0.6 else "medium", doubt


@rule(Traced, reference=_HTA)
def exposed_communication(traced: Traced, *, least_share: float = 0.015) -> Iterator[Finding]:
    """Communication that no computation hides, on the rank that waits least."""
    exposed = traced.by_rank["exposed_communication_ns"].astype("float64")
    if traced.by_rank["communication_ns"].max() == 0:
        return
    # Others wait for that rank as well; what it has left itself is mostly transfer.
    least = float(exposed.min())
    if least < least_share * traced.gpu_ns:
        return
    rank = exposed.idxmin()
    waiting = float(exposed.median()) - least
    is_alone = len(exposed) == 1
    more = f"; the median rank is exposed for another {waiting / traced.gpu_ns:.0%}, waiting"
    yield Finding(
        f"{least / traced.gpu_ns:.0%} of the time is exposed communication"
        + (
            ": transfer, or waiting for other ranks, that nothing hides"
            if is_alone
            else " on the rank that waits least: transfer that nothing hides"
        ),
        where=f"read on rank {rank}" + ("" if is_alone else more),
        **traced.cost(least),
        cost_basis="communication without compute on the rank with the least of it",
        confidence="low" if is_alone else "medium",
        doubt="one rank alone cannot tell transfer from waiting; load all ranks"
        if is_alone
        else "an upper bound: part of it may be waiting for one another",
        evidence="analyze.communication_overlap, plot.communication_overlap (notebook 01)",
        next_step="overlap it (prefetch, bucket size, another stream) or move fewer bytes",
    )


@rule(Traced, reference=_NCCL)
def slow_group(
    traced: Traced, *, least_bytes: float = 4e6, most_ratio: float = 0.85, least_share: float = 0.01
) -> Iterator[Finding]:
    """One process group moves large messages more slowly than its peers."""
    table = traced.collectives
    sized = table[
        table["collective"].notna() & table["bus_gb_per_s"].notna()
        & (table["size_bytes"] >= least_bytes)
    ]  # fmt: skip
    needs(len(sized), 1, "matched collectives of a known, large size")
    once = sized.drop_duplicates("collective").set_index("collective")
    # The first rank names a group: groups of one operation and size do not overlap.
    once = once.assign(
        first=sized.groupby("collective")["rank"].min(),
        bits=np.log2(once["size_bytes"].astype(float)).round(),
    )
    for (operation, *_), of_like in once.groupby(
        ["operation", "group_size", "bits"], observed=True
    ):
        rates = of_like.groupby("first")["bus_gb_per_s"].median().astype("float64")
        middle = float(rates.median())
        for first, rate in rates[rates < most_ratio * middle].items():
            rows = of_like[of_like["first"] == first]
            ranks = sized.loc[sized["collective"].isin(rows.index), "rank"]
            size = float(rows["size_bytes"].median())
            lost = float((rows["transfer_min_ns"].astype(float) * (1 - rate / middle)).sum())
            if lost < least_share * traced.gpu_ns:
                continue
            yield Finding(
                f"{operation} of {_size(size)} moves at {rate:.3g} GB/s in one group, at "
                f"{middle:.3g} in its peers: a slow link",
                where=ranks_text(ranks),
                **traced.cost(lost),
                cost_basis="shortest durations beyond those at the median bandwidth of like groups",
                confidence="medium",
                doubt="the groups may lie on different levels of the network",
                evidence="analyze.collectives (notebook 01), plot.collectives (docs/traces.md)",
                next_step="run nccl-tests over these ranks; look at link errors and rail placement",
                told_by="slow_node",
            )


def _time(ns: float) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1e9 else f"{ns / 1e6:.3g} ms"


def _size(number_of_bytes: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number_of_bytes >= size:
            return f"{number_of_bytes / size:.3g} {unit}"
    return f"{number_of_bytes:.0f} B"


def _idle_of(traced: Traced, *causes: str, detail: str = "", but_for: str = "") -> pd.Series:
    """Sum the idle time of some causes by rank; of one detail alone, or of all but one.

    It is the mean over the devices of a rank, so that no share of its time is above one.
    """
    rows = traced.idle[traced.idle["cause"].isin(causes) & traced.idle["stream"].isna()]
    details = rows["detail"].fillna("")
    rows = rows[((details == detail) | (not detail)) & ((details != but_for) | (not but_for))]
    by_rank = rows.groupby("rank")["idle_ns"].sum()
    sums = by_rank.reindex(traced.by_rank.index, fill_value=0).astype("float64")
    return sums / traced.by_rank["device_count"]


@rule(Traced, reference=_NSYS)
def host_bound(traced: Traced, *, least_share: float = 0.012) -> Iterator[Finding]:
    """GPUs run out of work on most ranks: the host launches too slowly."""
    idle = _idle_of(traced, "host late", "launch overhead", "kernel gap", but_for=_BLOCKING)
    elsewhere = traced.sum_by_rank(traced.pauses) + traced.sum_by_rank(traced.drained)
    idle = (idle - elsewhere).clip(lower=0)
    share = float((idle / traced.by_rank["span_ns"].astype(float)).median())
    if share < least_share:
        return
    # Copies can take longer than all kernels, and none of them is one that could be fused.
    table = traced.kernels[traced.kernels["kind"] != "memory"]
    mean_us = float(table["total_ns"].sum() / max(table["kernel_count"].sum(), 1)) / 1e3
    total = float(idle.median())
    yield Finding(
        f"The job is host-bound: GPUs are idle {total / traced.gpu_ns:.0%} of the time because "
        "the host launches work late",
        where=f"{ranks_text(traced.by_rank.index)}; mean kernel {mean_us:.3g} µs",
        **traced.cost(total),
        cost_basis="idle time with an empty queue, without pauses, median rank",
        evidence="analyze.idle_time, plot.idle_time (notebook 01)",
        next_step="CUDA graphs, torch.compile or larger batches; fewer, larger kernels",
        # Most of it lies between kernels that are too short, which is the cause.
        told_by="tiny_kernels"
        if traced.sum_by_rank(_short_gaps(traced, _SHORT_US)).median() > total / 2
        else "",
    )


def _short_gaps(traced: Traced, most_us: float) -> pd.DataFrame:
    table, longest = traced.gaps, most_us * 1e3
    is_short = (table["before_ns"] < longest) & (table["after_ns"] < longest)
    # In longer gaps the host does other things than to launch.
    return table[is_short & (table["dur_ns"] < _LAUNCH_GAP_NS)]


@rule(Traced, reference=_NSYS)
def long_pauses(traced: Traced, *, least_share: float = 0.015) -> Iterator[Finding]:
    """All GPUs pause for milliseconds to seconds: start-up, data, evaluation or checkpoints."""
    table = traced.pauses
    if table.empty:
        return
    others = table.assign(dur_ns=table["dur_ns"] - table["loading_ns"])
    others = others[others["dur_ns"] > table["dur_ns"] / 2]
    is_told = float(traced.sum_by_rank(others).min()) < least_share * traced.gpu_ns
    # Pauses in which hosts load data are left to that rule, if it finds them.
    table = table if is_told else others
    by_rank = traced.sum_by_rank(table)
    least = float(by_rank.min())
    if least < least_share * traced.gpu_ns:
        return
    longest = first_of(table.nlargest(1, "dur_ns"))
    after_ns = longest["start_ns"] - traced.first_ns
    count = int(table.groupby("rank").size().min())
    yield Finding(
        f"GPUs pause for {least / traced.gpu_ns:.0%} of the trace in {count} "
        f"gap{'s' * (count > 1)} of {_time(float(table['dur_ns'].min()))} and more",
        where=f"{ranks_text(by_rank.index)}; longest {_time(longest['dur_ns'])} on rank "
        f"{int(longest['rank'])}, {_time(after_ns)} after the first kernel",
        **traced.cost(least),
        cost_basis="gaps without GPU work that are longer than those of launches, rank with the "
        "least of them",
        confidence="medium",
        doubt="start-up and the profiler itself count in it, where they are in the trace",
        evidence="analyze.idle_time, explore.timeline (notebook 01)",
        next_step="look at what the host does in the longest: data, evaluation, checkpoint",
        told_by="data_loader" if is_told else "",
    )


@rule(Traced, reference=_NSYS)
def gpus_unused(traced: Traced, *, least_share: float = 0.05) -> Iterator[Finding]:
    """GPUs that have no work yet, or none any more, while others of their process work.

    The time before the first and after the last work of a GPU is no idle time of its rank.
    """
    span = traced.by_rank["span_ns"].astype("int64")
    first = traced.table(rank_facts).set_index("rank")["first_ns"].reindex(span.index)
    source = traced.trace.ranks.set_index("rank")["source"].reindex(span.index)
    process = source.str.extract(r"^(.*)!GPU \d+$")[0]
    process = process[process.duplicated(keep=False) & process.notna()]
    first, last = first[process.index], (first + span)[process.index]
    window = last.groupby(process).transform("max") - first.groupby(process).transform("min")
    outside = (window - span[process.index]).astype("float64")
    shares = (outside / window).groupby(process).mean()
    needs(len(shares), 1, "processes of several GPUs")
    if (share := float(shares.max())) < least_share:
        return
    of_process = outside[process == shares.idxmax()]
    cost = float(of_process.mean())
    yield Finding(
        f"GPUs of one process have no work for {share:.0%} of the time: they start later or finish "
        "earlier than its other GPUs",
        where=ranks_text(of_process.index[of_process > 0]),
        cost=cost / 1e6,
        cost_unit="ms of the trace",
        time_share=share,
        cost_basis="before the first and after the last work of a GPU, from the first to the last "
        "work of its process; mean over the GPUs",
        confidence="medium",
        doubt="start-up counts in it, where it is in the trace",
        evidence="analyze.time_breakdown, explore.timeline (notebook 01)",
        next_step="divide the work of a step among the GPUs, or run micro-batches through them",
    )


@rule(Traced, reference=_NSYS)
def synchronising_calls(traced: Traced, *, least_share: float = 0.015) -> Iterator[Finding]:
    """GPUs run dry because the host waits for them first."""
    idle = traced.sum_by_rank(traced.drained)
    total = float(idle.median())
    if total < least_share * traced.gpu_ns:
        return
    calls = traced.table(host_calls)
    names = calls[calls["is_sync"]].groupby("name")["call_count"].sum()
    names = names.sort_values(ascending=False, kind="stable")
    yield Finding(
        f"Synchronising calls leave the GPUs idle {total / traced.gpu_ns:.0%} of the time",
        where=ranks_text(idle.index[idle > 0])
        + "".join(f"; {count:,} times {name}" for name, count in names.head(1).items()),
        **traced.cost(total),
        cost_basis="gaps that begin while the host waits for the GPU; median rank",
        evidence="analyze.idle_time, plot.idle_time (notebook 01)",
        next_step="remove .item(), .cpu(), print and synchronize() from the step",
    )


@rule(Traced, reference=_HTA)
def graph_holes(traced: Traced, *, least_share: float = 0.05) -> Iterator[Finding]:
    """The GPU works, mostly in a graph, and the trace does not show it."""
    of_graphs, all_dark = _idle_of(traced, "dark", detail=_GRAPH), _idle_of(traced, "dark")
    for idle, sentence, doubt, next_step in (
        (of_graphs, "launches of CUDA graphs without recorded kernels",
         "the GPU worked in that time", "record with CUPTI graph-node tracing, or one step without "
         "graphs"),
        (all_dark - of_graphs, "the host waits for GPU work that the trace lacks",
         "the GPU worked in that time, or waited for another process",
         "look for lost records: larger buffers of the profiler, fewer steps"),
    ):  # fmt: skip
        share = float((idle / traced.by_rank["span_ns"].astype(float)).max())
        if share < least_share:
            continue
        yield Finding(
            f"{share:.0%} of the trace is dark: {sentence}",
            where=ranks_text(idle.index[idle > 0]),
            **traced.cost(float(idle.max())),
            cost_basis="GPU work that was not recorded, of the rank with most of it: not lost, but "
            "in no other figure",
            confidence="medium",
            doubt=f"{doubt}; shares of idle time are too high",
            evidence="analyze.idle_time, plot.idle_time (notebook 01)",
            next_step=next_step,
        )


@rule(Traced, reference=_NSYS)
def unexplained_idle(traced: Traced, *, least_share: float = 0.05) -> Iterator[Finding]:
    """GPUs are idle for a reason that the trace cannot tell: no launch, or a late start."""
    late = _idle_of(traced, "unknown", detail=_LATE_START)
    idle = _idle_of(traced, "unknown")
    total = float(idle.max())
    if total < least_share * traced.gpu_ns:
        return
    is_late = float(late.max()) > total / 2
    yield Finding(
        f"GPUs are idle for {total / traced.gpu_ns:.0%} of the time for an unknown reason: "
        + ("work starts late although it was launched" if is_late else "the trace has no launches"),
        where=ranks_text(idle.index[idle > 0]),
        **traced.cost(total),
        cost_basis="idle time of unknown cause, of the rank with most of it",
        confidence="medium",
        doubt="part of the work may not have been recorded" if is_late
        else "the host may be late, or wait for data or other ranks",
        evidence="analyze.idle_time, plot.idle_time (notebook 01)",
        next_step="record cuda_sync events (enable_cuda_sync_events), or all streams and processes "
        "of the GPU" if is_late
        else "record runtime calls too (ProfilerActivity.CPU, --trace=cuda, --hip-trace)",
    )  # fmt: skip


@rule(Traced, reference=_NSYS)
def inference_gaps(
    traced: Traced, *, least_share: float = 0.1, least_count: int = 10
) -> Iterator[Finding]:
    """The GPU has no work between the iterations of an inference engine.

    A replayed graph leaves some microseconds to the next; a tenth of the time is the host's.
    """
    table = traced.table(annotated_iterations)
    by_rank = table.groupby("rank").agg(
        count=("iteration", "size"), period_ns=("period_ns", "sum"), gap_ns=("gap_ns", "sum")
    )
    by_rank = by_rank[(by_rank["count"] >= least_count) & (by_rank["period_ns"] > 0)]
    needs(len(by_rank), 1, "ranks with iterations of an inference engine")
    # Ranks of one engine wait for each other, so the one with the shortest gaps is the measure.
    share = (by_rank["gap_ns"] / by_rank["period_ns"]).astype(float)
    if share.min() < least_share:
        return
    rows = table[table["rank"] == share.idxmin()]
    engine = str(rows["engine"].iloc[0])
    yield Finding(
        f"Gaps between iterations of {engine} take {share.min():.0%} of the time",
        where=f"{ranks_text(by_rank.index)}, {len(rows):,} iterations",
        **traced.cost(float(rows["gap_ns"].sum())),
        cost_basis="time without GPU work between iterations, of the rank with least",
        confidence="medium",
        doubt="requests may have been too few; a profiler slows the host",
        evidence="analyze.inference_iterations, plot.inference_iterations (docs/traces.md)",
        next_step="schedule while the GPU runs (async scheduling), replay graphs also in prefill, "
        "or send more requests at once",
    )


@rule(Traced, reference=_TUNING)
def data_loader(traced: Traced, *, least_share: float = 0.015) -> Iterator[Finding]:
    """All ranks wait for the data loader at the start of a step."""
    calls = traced.loads
    if calls.empty:
        return
    # A step that every rank loses; a single rank is a straggler and found as such.
    least = (
        calls.pivot_table(
            index="step", columns="rank", values="dur_ns", aggfunc="sum", observed=True
        )
        .min(axis=1)
        .dropna()
    )
    idle = float(_idle_of(traced, "host late", "sync wait").min())
    total = min(float(least.sum()), idle)
    if total < least_share * traced.gpu_ns:
        return
    yield Finding(
        f"{'Every' if traced.step_count > 1 else 'The'} step waits {total / traced.gpu_ns:.0%} of "
        "its time for the data loader",
        where=ranks_text(traced.by_rank.index),
        **traced.cost(total),
        cost_basis="time in the loader while the GPU is idle, on the rank that waits least",
        evidence="analyze.idle_time, explore.timeline (notebook 01)",
        next_step="more workers, prefetch_factor, pinned memory, or faster storage",
    )


@rule(Traced, reference=_TUNING)
def pageable_copies(traced: Traced, *, least_share: float = 0.005) -> Iterator[Finding]:
    """Copies from or to pageable host memory."""
    rows = traced.kernels[traced.kernels["name"].astype(str).str.contains("Pageable")]
    total = float(rows.groupby("rank")["total_ns"].sum().max()) if len(rows) else 0.0
    if total < least_share * traced.gpu_ns:
        return
    exposed = float(traced.by_rank["exposed_memory_ns"].max())
    yield Finding(
        f"Copies of pageable memory take {total / traced.gpu_ns:.1%} of the time",
        where=f"{ranks_text(rows['rank'])}: {rows.sort_values('total_ns')['name'].iloc[-1]}",
        **traced.cost(min(total, exposed)),
        cost_basis="time of these copies, at most what no other work hides",
        evidence="analyze.copy_bandwidth, analyze.kernels (docs/traces.md)",
        next_step="pin_memory=True in the loader and non_blocking=True in .to()",
    )


@rule(Traced, reference=_NSYS)
def slow_copies(
    traced: Traced, *, least_bytes: float = 5e7, least_gb_per_s: float = _PCIE_GB_PER_S,
    least_share: float = 0.01,
) -> Iterator[Finding]:  # fmt: skip
    """Copies between host and GPU far below the bandwidth of PCIe."""
    table = traced.table(copy_bandwidth)
    rows = table[table["direction"].isin(["HtoD", "DtoH"]) & (table["size_bytes"] >= least_bytes)
                 & (table["mean_gb_per_s"] < least_gb_per_s)]  # fmt: skip
    rows = rows[rows["busy_ns"] > least_share * traced.gpu_ns]
    if rows.empty:
        return
    worst = first_of(rows.sort_values("mean_gb_per_s"))
    exposed = float(traced.by_rank["exposed_memory_ns"].max())
    names = traced.kernels["name"].astype(str)
    pageable = traced.kernels[names.str.contains("Pageable") & names.str.contains("HtoD|DtoH")]
    pageable_ns = pageable.groupby("rank")["total_ns"].sum().max() if len(pageable) else 0
    yield Finding(
        f"Copies {worst['direction']} run at {worst['mean_gb_per_s']:.2g} GB/s",
        where=ranks_text(rows["rank"]),
        **traced.cost(min(float(rows["busy_ns"].max()), exposed)),
        cost_basis="time of these copies, at most what no other work hides",
        confidence="medium",
        doubt="small copies cannot reach the bandwidth of the link",
        evidence="analyze.copy_bandwidth, plot.copy_bandwidth (docs/traces.md)",
        next_step="pinned memory, larger copies; check the PCIe width with nvidia-smi -q",
        # Pageable memory is why they are slow.
        told_by="pageable_copies" if pageable_ns > 0.5 * rows["busy_ns"].max() else "",
    )


@rule(Traced, reference=_NSYS)
def exposed_copies(traced: Traced, *, least_share: float = 0.05) -> Iterator[Finding]:
    """Copies that no compute and no communication hides."""
    exposed = float(traced.by_rank["exposed_memory_ns"].astype("float64").median())
    if exposed < least_share * traced.gpu_ns:
        return
    # ROCm and TPUs also copy with kernels, which state no size and so have no bandwidth.
    sized = traced.table(copy_bandwidth).nlargest(1, "busy_ns")
    where, is_over_pcie, is_slow = ranks_text(traced.by_rank.index), False, False
    if len(sized):
        most = first_of(sized)
        where += f"; mostly {most['direction']} at {most['mean_gb_per_s']:.3g} GB/s"
        is_over_pcie = most["direction"] in ("HtoD", "DtoH")
        is_slow = is_over_pcie and bool(most["mean_gb_per_s"] < _PCIE_GB_PER_S)
    names = traced.kernels["name"].astype(str)
    pageable = traced.kernels[names.str.contains("Pageable")]
    pageable_ns = pageable.groupby("rank")["total_ns"].sum().max() if len(pageable) else 0
    yield Finding(
        f"Copies that nothing hides take {exposed / traced.gpu_ns:.0%} of the time",
        where=where,
        **traced.cost(exposed),
        cost_basis="memory work outside of compute and communication, median rank",
        evidence="analyze.time_breakdown, analyze.copy_bandwidth (docs/traces.md)",
        next_step="keep on the GPU what is copied in every step, or copy it from pinned memory on "
        "another stream while the GPU computes (non_blocking=True)"
        if is_over_pcie
        else "fewer copies: contiguous tensors, views, fused or in-place operators",
        # Pageable memory or a slow link is why they take long.
        told_by="pageable_copies"
        if pageable_ns > exposed / 2
        else "slow_copies"
        if is_slow
        else "",
    )


@rule(Traced, reference=_NSYS)
def tiny_kernels(
    traced: Traced, *, most_us: float = _SHORT_US, least_share: float = 0.015
) -> Iterator[Finding]:
    """Kernels too short to cover their launch, with GPUs idle between them."""
    rows = _short_gaps(traced, most_us)
    total = float(traced.sum_by_rank(rows).median())
    if total < least_share * traced.gpu_ns:
        return
    mean_us = float((rows["before_ns"] + rows["after_ns"]).mean()) / 2e3
    yield Finding(
        f"Gaps between kernels of {mean_us:.2g} µs take {total / traced.gpu_ns:.0%} of the time",
        where=f"{len(rows):,} gaps on {ranks_text(traced.by_rank.index)}",
        **traced.cost(total),
        cost_basis="gaps between two short kernels, median rank",
        evidence="analyze.kernels, analyze.idle_time (notebook 01)",
        next_step="fuse (torch.compile, fused optimizer) or capture CUDA graphs",
    )


@rule(Traced, reference=_TUNING)
def allocator_calls(traced: Traced, *, least_share: float = 0.01) -> Iterator[Finding]:
    """CudaMalloc and cudaFree inside steps: the caching allocator misses."""
    calls = traced.table(host_calls)
    calls = calls[~calls["is_sync"]]
    by_rank = calls.groupby("rank")["dur_ns"].sum()
    if by_rank.empty or float(by_rank.max()) < least_share * traced.gpu_ns:
        return
    idle = float(_idle_of(traced, "host late", "sync wait").max())
    yield Finding(
        f"cudaMalloc and cudaFree take {by_rank.max() / traced.gpu_ns:.0%} of the time on the host",
        where=f"{ranks_text(by_rank.index)}; {calls['call_count'].sum():,} calls",
        **traced.cost(min(float(by_rank.max()), idle)),
        cost_basis="time of the calls, at most the idle time that the host causes",
        confidence="medium",
        doubt="normal in the first steps, while the caching allocator fills",
        evidence="analyze.launches (docs/traces.md)",
        next_step="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; look for memory retries",
    )


@rule(Traced, reference=_TUNING)
def first_step(traced: Traced, *, least_ratio: float = 1.1) -> Iterator[Finding]:
    """The first recorded step is far longer than the others: warm-up or compilation."""
    steps = traced.periods.groupby("step")["period_ns"].max()
    needs(len(steps), 3, "steps with GPU work")
    usual = float(steps.iloc[1:].median())
    excess = float(steps.iloc[0]) - usual
    if usual <= 0 or steps.iloc[0] < least_ratio * usual:
        return
    yield Finding(
        f"The first step takes {steps.iloc[0] / usual:.1f} times as long as the others",
        where=f"step {int(steps.index[0])}",
        cost=excess / 1e6,
        cost_unit="ms once",
        cost_basis="first step minus the median of the others",
        confidence="medium",
        doubt="warm-up of the profiler counts in it, too",
        evidence="analyze.step_times, plot.step_times (docs/traces.md)",
        next_step="drop it from averages; if it repeats, look for recompilation (dynamic shapes)",
    )


@rule(Traced, reference=_FALCON)
def uneven_steps(
    traced: Traced, *, least_ratio: float = 1.2, least_share: float = 0.02
) -> Iterator[Finding]:
    """Single steps that take far longer than the median on all ranks."""
    steps = traced.periods.groupby("step")["period_ns"].min().iloc[1:]
    needs(len(steps), 4, "steps after the first")
    usual = float(steps.median())
    long = steps[steps > least_ratio * usual]
    excess = float((long - usual).sum())
    if (
        usual <= 0
        or long.empty
        or excess < least_share * float(steps.sum())
        or len(long) > len(steps) / 3
    ):
        return
    yield Finding(
        f"{len(long)} of {len(steps)} steps take up to {long.max() / usual:.1f} times the median",
        where=f"steps {', '.join(str(int(step)) for step in long.index[:6])}",
        cost=excess / len(steps) / 1e6,
        cost_unit="ms per step",
        cost_basis="steps beyond the threshold minus the median",
        time_share=min(excess / float(steps.sum()), 1.0),
        confidence="medium",
        doubt="the cause may lie on one rank: see the stragglers",
        evidence="analyze.step_times, plot.step_times (docs/traces.md)",
        next_step="look for garbage collection, checkpoints, evaluation or data loading there",
    )


@rule(Traced, reference=_HTA)
def expert_imbalance(
    traced: Traced, *, least_ratio: float = 1.05, least_share: float = 0.01
) -> Iterator[Finding]:
    """All-to-all messages of very unequal size: experts get unequal loads."""
    table = traced.collectives
    rows = table[(table["operation"] == "all-to-all") & table["size_imbalance_ratio"].notna()]
    once = rows.drop_duplicates("collective")
    needs(len(once), 1, "all-to-alls of known sizes")
    ratio = float(once["size_imbalance_ratio"].median())
    # The largest message sets the time of all; equal ones would take mean / largest of it.
    lost = float((once["transfer_min_ns"].astype(float)
                  * (1 - 1 / once["size_imbalance_ratio"].astype(float))).sum())  # fmt: skip
    lost /= max(once["group"].nunique(), 1)
    if ratio < least_ratio or lost < least_share * traced.gpu_ns:
        return
    yield Finding(
        f"The largest all-to-all message is {ratio:.2f} times the mean: unequal expert loads",
        where=ranks_text(rows["rank"]),
        **traced.cost(lost),
        cost_basis="transfer that equal messages would save, per group",
        confidence="medium",
        doubt="compute of the fuller experts comes on top",
        evidence="analyze.collectives, analyze.load_imbalance (docs/imbalance.md)",
        next_step="load-balancing loss, capacity factor, or another expert placement",
    )


@rule(Traced, reference=_HTA)
def clock_disagreement(traced: Traced, *, least_offset_us: float = 75.0) -> Iterator[Finding]:
    """Clocks of ranks disagree, so who was late cannot be read without alignment."""
    needs(len(traced.by_rank), 2, "ranks with GPU work")
    needs(len(traced.collectives), 1, "collectives")
    table = traced.clocks
    off = table[table["is_sure"] & (table["offset_ns"].abs() > least_offset_us * 1e3)]
    if off.empty:
        return
    worst = first_of(off.loc[[off["offset_ns"].abs().idxmax()]])
    yield Finding(
        f"The clock of rank {int(worst['rank'])} is off by {worst['offset_ns'] / 1e6:.3g} ms",
        where=ranks_text(off["rank"]),
        confidence="high",
        doubt="the other findings correct it; a timeline of the recorded times shows wrong waits",
        evidence="analyze.clocks, plot.clocks (notebook 01)",
        next_step="check NTP or PTP on the hosts; analyze.align_clocks corrects these traces",
    )


@rule(Traced, reference=_HTA)
def missing_ranks(traced: Traced) -> Iterator[Finding]:
    """Ranks of the job whose traces were not loaded."""
    ranks = traced.trace.ranks
    world = ranks["world_size"].dropna()
    needs(len(world), 1, "ranks that state the size of the job")
    if int(world.max()) <= len(ranks):
        return
    lacking = int(world.max()) - len(ranks)
    yield Finding(
        f"{lacking:,} of {int(world.max()):,} ranks were not loaded; the straggler may be one "
        "of them",
        where=ranks_text(ranks["rank"]) + " loaded",
        confidence="high",
        evidence="load.traces(...).ranks (notebook 10)",
        next_step="copy the traces of all ranks into one folder",
    )


@rule(Traced, reference=_HTA)
def unclassified_kernels(traced: Traced, *, least_share: float = 0.1) -> Iterator[Finding]:
    """GPU time in kernels whose kind is a guess."""
    kinds = traced.table(kernel_kinds)
    guessed = kinds[kinds["is_unclassified"]].groupby("rank")["total_ns"].sum()
    total = kinds.groupby("rank")["total_ns"].sum()
    share = float((guessed / total).max()) if len(guessed) else 0.0
    if share < least_share:
        return
    yield Finding(
        f"{share:.0%} of the kernel time is unlabelled",
        where=ranks_text(guessed.index),
        confidence="high",
        doubt="they count as compute",
        evidence="analyze.unclassified_kernels (docs/traces.md)",
        next_step="pass your own rules to load.traces(rules=...)",
    )
