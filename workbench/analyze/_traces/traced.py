"""The evidence of the rules on profiler traces: tables that several of them read."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pandas as pd

from workbench.analyze._lib.finding_rules import Cost
from workbench.analyze._traces.breakdown import step_times, time_breakdown
from workbench.analyze._traces.clocks import align_clocks, clocks
from workbench.analyze._traces.collectives import collective_waits, collectives
from workbench.analyze._traces.idle import idle_time
from workbench.analyze._traces.kernels import kernels
from workbench.analyze._traces.late_arrivals import (
    compared_arrivals,
    host_operator,
    positions_of,
    presented,
)
from workbench.analyze._traces.rank_evidence import (
    COVERED,
    JobEvidence,
    coverage_moments,
    gpu_gaps,
    loader_calls,
    rank_facts,
    step_starts,
)
from workbench.tables import LATE_ARRIVALS, Bundle

# A host that launches too slowly leaves gaps of microseconds; in longer ones it does other things.
# Gaps from 1 to 5 ms may still be a slow step on the host, which every step has: pauses are rare.
_PAUSE_NS = 5_000_000
_RARE_PAUSE_NS = 1_000_000
# Columns of late arrivals that need the events of the rank.
_OF_EVENTS = (
    "longest_kernel", "longest_kernel_ns", "longest_idle_ns", "host_operator", "host_operator_ns",
)  # fmt: skip


class Traced(JobEvidence):
    """The tables that several rules on a trace read, each computed once."""

    domain = "traces"
    needs = ("traces",)

    @classmethod
    def of(cls, bundle: Bundle) -> Traced | None:
        """Take the trace of a bundle if it holds GPU work."""
        trace = bundle.trace
        return cls(trace) if trace is not None and trace.events["kind"].notna().any() else None

    @cached_property
    def by_rank(self) -> pd.DataFrame:
        """Time breakdown of each rank that has GPU work."""
        table = self.table(time_breakdown)
        return table[table["device_count"] > 0].set_index("rank")

    @cached_property
    def clocks(self) -> pd.DataFrame:
        """Clocks of the ranks as they were recorded."""
        return clocks(collectives(self.communication, process_groups=self.trace.process_groups))

    @cached_property
    def _sure_clocks(self) -> pd.DataFrame:
        """Clocks of the ranks whose offset is sure.

        On clocks of their own, a slow rank and its victims cannot be told apart: a clock that is
        milliseconds behind makes its rank arrive first.
        """
        return self.clocks[self.clocks["is_sure"]]

    def _on_one_clock(self, table: pd.DataFrame, column: str = "start_ns") -> pd.DataFrame:
        """Shift the times of a table of ranks onto the common clock."""
        times = table[["rank"]].assign(start_ns=table[column].fillna(0))
        times = times.astype({"rank": "int32", "start_ns": "int64"})
        aligned = align_clocks(times, self._sure_clocks, correct_drift=True)
        moved = (aligned["start_ns"] - times["start_ns"]).to_numpy()
        return table.assign(**{column: table[column] + moved})

    @cached_property
    def _aligned(self) -> pd.DataFrame:
        """Communication of all ranks on one clock."""
        aligned = self._on_one_clock(self.communication)
        # With drift an end moves otherwise than its start, and ends are looked up among moments.
        end = self.communication["start_ns"] + self.communication["dur_ns"]
        ends = self._on_one_clock(self.communication.assign(start_ns=end))["start_ns"]
        return aligned.assign(dur_ns=ends - aligned["start_ns"])

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """Collectives matched across ranks."""
        return collectives(self._aligned, process_groups=self.trace.process_groups)

    @cached_property
    def _moments(self) -> pd.DataFrame:
        return self._on_one_clock(self.table(coverage_moments), "time_ns")

    @cached_property
    def late(self) -> pd.DataFrame:
        """Late arrivals, with the cause of each and the window in which it lies."""
        waits = collective_waits(self._aligned, process_groups=self.trace.process_groups)
        starts = self._on_one_clock(self.table(step_starts), "time_ns")
        rows = compared_arrivals(waits, self._moments, starts)
        late = rows[rows["is_late"]].drop_duplicates("collective").sort_values("collective")
        columns = [name for name in LATE_ARRIVALS.columns if name not in _OF_EVENTS]
        return presented(late)[[*columns, "begin_ns", "end_ns"]]

    def host_operator(self, rank: int, begin_ns: int, end_ns: int) -> str | None:
        """Return what the host did while the GPU of a rank had no work for longest in a window."""
        events = self._on_one_clock(self.events_of(rank))
        return host_operator(events, begin_ns, end_ns)

    @property
    def first_ns(self) -> int:
        """Start of the first GPU work of all ranks."""
        return int(self._on_one_clock(self.table(rank_facts), "first_ns")["first_ns"].min())

    @cached_property
    def idle(self) -> pd.DataFrame:
        """Idle time by rank and cause."""
        return self.table(idle_time)

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Kernels by rank and name."""
        return self.table(kernels)

    @cached_property
    def periods(self) -> pd.DataFrame:
        """Period of every rank and step, between the ends of the GPU work of two steps.

        Ends, because a rank that is late starts its work late, while all end together. A step whose
        work ends before that of an earlier one adds nothing.
        """
        table = self.table(step_times)
        table = table[table["gpu_ns"].notna()].sort_values(["rank", "step"])
        # Nullable, as a shift of integers would give floats, and epoch times lose 100 ns.
        end = (table["gpu_start_ns"] + table["gpu_ns"]).groupby(table["rank"]).cummax()
        begin = table["start_ns"].fillna(table["gpu_start_ns"])
        follows = table["step"].groupby(table["rank"]).diff() == 1
        # Before the first step there is no end: its period begins with the host's.
        begin = end.groupby(table["rank"]).shift().where(follows, begin)
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
        begin, rank = table["start_ns"].to_numpy("int64"), table["rank"].to_numpy("int64")
        compute = self._moments[COVERED[0]].to_numpy("int64")
        end = begin + table["dur_ns"].to_numpy("int64")
        done = [compute[positions_of(self._moments, rank, time)] for time in (begin, end)]
        table["exposed_ns"] -= done[1] - done[0]
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
        return self._on_one_clock(self.table(gpu_gaps))

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

    @property
    def loads(self) -> pd.DataFrame:
        """Time in calls of the data loader by rank and step."""
        return self.table(loader_calls)

    @property
    def drained(self) -> pd.DataFrame:
        """Shorter gaps that began while the host waited for the GPU, so nothing was queued.

        Those in which it mostly loads data are left to that.
        """
        return self.gaps[self.gaps["is_drained"] & ~self._is_pause]

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
        """Return the time that all ranks lose, in ms per step or of the whole trace."""
        share = min(max(total_ns / self.gpu_ns, 0.0), 1.0)
        if self.step_count:
            per_step = total_ns / self.step_count / 1e6
            return {"cost": per_step, "cost_unit": "ms per step", "time_share": share}
        return {"cost": total_ns / 1e6, "cost_unit": "ms of the trace", "time_share": share}


def _by_step(waits: pd.DataFrame) -> pd.DataFrame:
    """Add up exposed waiting by step (row) and rank (column)."""
    table = waits.pivot_table(index="step", columns="rank", values="lost_ns", aggfunc="sum")
    return table.fillna(0.0)
