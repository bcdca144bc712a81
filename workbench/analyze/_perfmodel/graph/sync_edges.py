"""Edges from GPU work to the calls that wait for it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.draft import Draft
from workbench.analyze._perfmodel.graph.rank_rows import (
    COPY,
    DEVICE_SYNC,
    EVENT_SYNC,
    STREAM_SYNC,
    RankRows,
)

_NEVER = np.iinfo(np.int64).min


class Queue(NamedTuple):
    """Work of one stream, in order."""

    work: Ints
    launched: Ints
    end: Ints

    def last_before(self, moment: Ints) -> Ints:
        """Return the last work launched before each moment; -1 if there is none."""
        place = np.searchsorted(self.launched, moment, side="right") - 1
        return np.where(place >= 0, self.work[place], MISSING)

    def last_ended(self, moment: Ints, by: Ints) -> Ints:
        """Return the last work launched before `moment` that had ended `by` then; -1 if none."""
        place = np.minimum(
            np.searchsorted(self.launched, moment, side="right"),
            np.searchsorted(self.end, by, side="right"),
        )
        return np.where(place > 0, self.work[place - 1], MISSING)


def queues(rows: RankRows) -> list[Queue]:
    """Gather the work of every stream.

    Work without a launch in the trace was launched no earlier than what is before it on its
    stream; without such, before the trace began.
    """
    gpu = rows.gpu
    found = []
    for stream in range(len(rows.streams)):
        work = np.flatnonzero(gpu.stream == stream)
        launched = np.append(rows.cpu.start, _NEVER)[gpu.call[work]]
        launched = np.maximum.accumulate(launched)
        found.append(Queue(work, launched, np.maximum.accumulate(gpu.end[work])))
    return found


def sync_edges(draft: Draft) -> None:
    """Let calls that wait for the GPU end when the work they wait for has.

    A wait for the device is for every stream. Waits for a stream or an event are read from
    ``cuda_sync`` records; without one the last launched work of all streams that ends last
    before the call does is taken for the cause.
    """
    step = draft.step("synchronise")
    if not step.is_used:
        return
    cpu, gpu, points, every = draft.cpu, draft.gpu, draft.points, queues(draft.rows)
    waits = points.ends != points.starts
    device = np.flatnonzero(waits & (cpu.what == DEVICE_SYNC))
    for queue in every:
        _wait(draft, queue.last_before(cpu.start[device]), device)
    copies = np.flatnonzero(np.isin(gpu.call, np.flatnonzero(waits & (cpu.what == COPY))))
    _wait(draft, copies, gpu.call[copies])
    narrow = np.flatnonzero(waits & np.isin(cpu.what, (STREAM_SYNC, EVENT_SYNC)))
    told = np.array([_told_stream(draft.rows, call) for call in narrow.tolist()], dtype=np.int64)
    for number, queue in enumerate(every):
        mine = narrow[told == number]
        _wait(draft, queue.last_before(cpu.start[mine]), mine)
    untold = narrow[told == MISSING]
    _wait(draft, _latest_ending(draft, every, untold), untold, inferred=True)


def _wait(draft: Draft, work: Ints, call: Ints, *, inferred: bool = False) -> None:
    has = work != MISSING
    work, call = work[has], call[has]
    fits = draft.gpu.end[work] <= draft.cpu.end[call] + draft.rules.clash_ns
    draft.steps[-1].left_out += int((~fits).sum())
    end = draft.first + draft.points.ends[call[fits]]
    draft.add(draft.starts[work[fits]] + 1, end, 0, "synchronise", inferred=inferred)


def _told_stream(rows: RankRows, call: int) -> int:
    """Give the number of the stream that the trace says a call waits for; -1 if it does not."""
    record = rows.sync_records.get(int(rows.cpu.correlation[call]))
    if record is None:
        return MISSING
    is_event = rows.cpu.what[call] == EVENT_SYNC
    return rows.number_of(
        record.wait_stream if is_event and record.wait_stream >= 0 else record.stream
    )


def _latest_ending(draft: Draft, every: list[Queue], call: Ints) -> Ints:
    begin, end = draft.cpu.start[call], draft.cpu.end[call]
    best, best_end = np.full(len(call), MISSING), np.full(len(call), _NEVER)
    for queue in every:
        work = queue.last_before(begin)
        ended = np.where(work != MISSING, draft.gpu.end[work], _NEVER)
        better = (ended <= end + draft.rules.jitter_ns) & (ended > best_end)
        best, best_end = np.where(better, work, best), np.where(better, ended, best_end)
    return np.where(best_end > begin, best, MISSING)
