"""The evidence of the rules on profiler traces: tables that several of them read."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench.analyze._lib.finding_rules import Cost
from workbench.analyze._lib.intervals import measure_within
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.clocks import align_clocks, clocks
from workbench.analyze._traces.collectives import collective_waits, collectives
from workbench.analyze._traces.idle import idle_time
from workbench.analyze._traces.kernels import kernels
from workbench.analyze._traces.late_arrivals import late_arrivals
from workbench.analyze._traces.launches import launches
from workbench.tables import Bundle, Trace

# A host that launches too slowly leaves gaps of microseconds; in longer ones it does other things.
# Gaps from 1 to 5 ms may still be a slow step on the host, which every step has: pauses are rare.
_PAUSE_NS = 5_000_000
_RARE_PAUSE_NS = 1_000_000
_NEVER_NS = np.iinfo(np.int64).max
_LOADER_CALLS = r"dataloader.*__next__|enumerate\(dataloader\)"
SYNC_CALLS = r"Synchronize|hipMemcpyWithStream|^cudaMemcpy$"


class Traced:
    """The tables that several rules on a trace read, each computed once."""

    domain = "traces"
    needs = ("traces",)

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @classmethod
    def of(cls, bundle: Bundle) -> Traced | None:
        """Take the trace of a bundle if it holds GPU work."""
        trace = bundle.trace
        return cls(trace) if trace is not None and trace.events["kind"].notna().any() else None

    @cached_property
    def by_rank(self) -> pd.DataFrame:
        """Time breakdown of each rank that has GPU work."""
        table = time_breakdown(self.events)
        return table[table["device_count"] > 0].set_index("rank")

    @cached_property
    def clocks(self) -> pd.DataFrame:
        """Clocks of the ranks as they were recorded."""
        table = collectives(self.trace.events, process_groups=self.trace.process_groups)
        return clocks(table)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Events of all ranks on one clock, as far as it is sure how far each is off.

        On clocks of their own, a slow rank and its victims cannot be told apart: a clock that is
        milliseconds behind makes its rank arrive first.
        """
        sure = self.clocks[self.clocks["is_sure"]]
        if not (sure["offset_ns"] != 0).any():
            return self.trace.events
        return align_clocks(self.trace.events, sure)

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Collectives matched across ranks."""
        return collectives(self.events, process_groups=self.trace.process_groups)

    @cached_property
    def late(self) -> pd.DataFrame:
        """Late arrivals, with the cause of each."""
        waits = collective_waits(self.events, process_groups=self.trace.process_groups)
        return late_arrivals(self.events, waits)

    @cached_property
    def idle(self) -> pd.DataFrame:
        """Idle time by rank and cause."""
        return idle_time(self.events)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Launch calls of the host."""
        return launches(self.events)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Kernels by rank and name."""
        return kernels(self.events)

    @cached_property
    def periods(self) -> pd.DataFrame:
        """Period of every rank and step, between the ends of the GPU work of two steps.

        Ends, because a rank that is late starts its work late, while all end together.
        """
        table = step_times(self.events)
        table = table[table["gpu_ns"].notna()].sort_values(["rank", "step"])
        end = (table["gpu_start_ns"] + table["gpu_ns"]).astype("int64")
        begin = table["start_ns"].fillna(table["gpu_start_ns"])
        follows = table["step"].groupby(table["rank"]).diff() == 1
        # Before the first step there is no end: its period begins with the host's.
        begin = end.groupby(table["rank"]).shift().where(follows, begin).astype("int64")
        return table.assign(period_ns=(end - begin).astype("float64"))

    @cached_property
    def waits(self) -> pd.DataFrame:
        """Exposed waiting for the last rank: one row per collective and waiting rank.

        Waiting that compute hides costs nothing: only the rest is lost. Compute that is used up by
        waiting no longer hides the transfer, so a rank loses by what more of the whole collective
        is exposed on it than on the last rank, which did not wait. Pairs that exchange
        activations wait for each other in every pipeline; they tell nothing of stragglers.
        """
        table = self.collectives
        is_pair = (table["operation"].isin(["send-receive", "send", "recv"])) & (
            table["group_size"].fillna(table["rank_count"]) <= 2
        )
        table = table[table["collective"].notna() & table["is_sure"].fillna(value=False) & ~is_pair]
        table = table.assign(
            exposed_ns=table["dur_ns"].astype("float64"), step=table["step"].fillna(-1)
        )
        compute = self.events[self.events["kind"] == "compute"]
        for rank, rows in table.groupby("rank"):
            work = compute[compute["rank"] == rank]
            begin = rows["start_ns"].to_numpy("int64")
            hidden = measure_within(
                work["start_ns"].to_numpy("int64"),
                (work["start_ns"] + work["dur_ns"]).to_numpy("int64"),
                begin,
                begin + rows["dur_ns"].to_numpy("int64"),
            )
            table.loc[rows.index, "exposed_ns"] -= hidden
        last = table[table["rank"] == table["blamed_rank"]]
        usual = table["collective"].map(last.set_index("collective")["exposed_ns"])
        lost = (table["exposed_ns"] - usual.fillna(0.0)).clip(lower=0)
        table["lost_ns"] = np.minimum(lost, table["wait_ns"].astype("float64"))
        return table

    @cached_property
    def lost_to(self) -> pd.DataFrame:
        """Time per step (row) that the job would gain if a rank (column) were never late.

        That is the least that any rank of its groups loses by waiting for it, or by waiting at
        all beyond what it waits itself: some wait for a rank that it has held up in another group.
        Beyond that, another rank would be the last.
        """
        table = self.waits
        waited = _by_step(table)
        by_rank = {}
        for rank in waited.columns:
            # Their groups need not hold all ranks of the job.
            joined = table.loc[table["rank"] == rank, "collective"]
            shared = table.loc[table["collective"].isin(joined), "rank"].unique()
            peers = [peer for peer in shared if peer != rank]
            if peers:
                rows = table[table["blamed_rank"] == rank]
                direct = _by_step(rows).reindex_like(waited).fillna(0.0)[peers]
                beyond = waited[peers].min(axis=1) - waited[rank]
                by_rank[rank] = np.maximum(direct.min(axis=1), beyond)
        return pd.DataFrame(by_rank, index=waited.index)

    @cached_property
    def gaps(self) -> pd.DataFrame:
        """Times without any GPU work of a rank, and the lengths of the work before and after."""
        frames = []
        work = self.events[self.events["kind"].notna()]
        for rank, of_rank in work.groupby("rank"):
            of_rank = of_rank.sort_values("start_ns")  # noqa: PLW2901
            start, length = of_rank["start_ns"].to_numpy("int64"), of_rank["dur_ns"].to_numpy()
            end = np.maximum.accumulate(start + length)[:-1]
            gap = np.flatnonzero(start[1:] > end)
            columns = (end[gap], (start[1:] - end)[gap], length[:-1][gap], length[1:][gap])
            names = ("start_ns", "dur_ns", "before_ns", "after_ns")
            frames.append(
                pd.DataFrame(dict(zip(names, columns, strict=True))).assign(rank=int(str(rank)))
            )
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def _is_pause(self) -> pd.Series:
        """Whether a gap is longer than the time of launches, or than nearly all of its rank."""
        lengths = self.gaps["dur_ns"]
        is_pause = lengths >= _PAUSE_NS
        for _, of_rank in lengths.groupby(self.gaps["rank"]):
            long = of_rank[of_rank >= _RARE_PAUSE_NS]
            ordered = np.sort(of_rank.to_numpy())
            alike = len(ordered) - np.searchsorted(ordered, long.to_numpy() / 2)
            # What comes in every other step belongs to the step.
            rare = long.index[2 * alike <= self.step_count]
            is_pause = is_pause | is_pause.index.isin(rare)
        return is_pause

    @property
    def pauses(self) -> pd.DataFrame:
        """Gaps that are longer than the time of launches."""
        return self.gaps[self._is_pause]

    def loading_ns(self, gaps: pd.DataFrame) -> pd.Series:
        """Give for how long of gaps the host of their rank loads data."""
        loading = pd.Series(0.0, index=gaps.index)
        for rank, rows in gaps.groupby("rank"):
            loads = self.loads[self.loads["rank"] == rank]
            begin = rows["start_ns"].to_numpy("int64")
            end = begin + rows["dur_ns"].to_numpy("int64")
            starts = loads["start_ns"].to_numpy("int64")
            loading[rows.index] = measure_within(starts, _ends(loads), begin, end)
        return loading

    @cached_property
    def loads(self) -> pd.DataFrame:
        """Calls of the data loader."""
        names = self.events["name"].astype(str)
        return self.events[names.str.contains(_LOADER_CALLS, case=False)]

    @cached_property
    def drained(self) -> pd.DataFrame:
        """Shorter gaps that began while the host waited for the GPU, so nothing was queued.

        Those in which it mostly loads data are left to that.
        """
        named = self.events["name"].astype(str)
        is_call = named.str.contains(SYNC_CALLS, regex=True) & self.events["kind"].isna()
        short = self.gaps[~self._is_pause]
        kept = [short.iloc[:0]]
        for rank, rows in short.groupby("rank"):
            calls = self.events[is_call & (self.events["rank"] == rank)]
            begin, end = rows["start_ns"], rows["start_ns"] + rows["dur_ns"]
            order = np.argsort(ends := _ends(calls))
            # The call that ended first after the GPU had run dry.
            at = np.searchsorted(ends[order], begin.to_numpy("int64"))
            call = np.append(order, -1)[at]
            held = begin >= np.append(calls["start_ns"].to_numpy("int64"), _NEVER_NS)[call]
            held &= np.append(ends, _NEVER_NS)[call] < end
            kept.append(rows[held])
        drained = pd.concat(kept)
        return drained[self.loading_ns(drained) < drained["dur_ns"] / 2]

    def sum_by_rank(self, gaps: pd.DataFrame) -> pd.Series:
        """Add up the lengths of gaps for every rank with GPU work, as a mean over its devices."""
        sums = gaps.groupby("rank")["dur_ns"].sum()
        sums = sums.reindex(self.by_rank.index, fill_value=0).astype("float64")
        return sums / self.by_rank["device_count"]

    @property
    def gpu_ns(self) -> float:
        """Length of the trace: mean over ranks of first to last GPU work."""
        return float(self.by_rank["span_ns"].mean())

    @property
    def step_count(self) -> int:
        """Steps that every rank recorded; 0 without step marks."""
        return int(self.periods["step"].nunique())

    def cost(self, total_ns: float) -> Cost:
        """Give the time that all ranks lose as ms per step, or of the whole trace."""
        share = min(max(total_ns / self.gpu_ns, 0.0), 1.0)
        if self.step_count:
            per_step = total_ns / self.step_count / 1e6
            return {"cost": per_step, "cost_unit": "ms per step", "time_share": share}
        return {"cost": total_ns / 1e6, "cost_unit": "ms of the trace", "time_share": share}


def _by_step(waits: pd.DataFrame) -> pd.DataFrame:
    """Add up exposed waiting by step (row) and rank (column)."""
    table = waits.pivot_table(index="step", columns="rank", values="lost_ns", aggfunc="sum")
    return table.fillna(0.0)


def _ends(events: pd.DataFrame) -> NDArray[np.int64]:
    return (events["start_ns"] + events["dur_ns"]).to_numpy("int64")
