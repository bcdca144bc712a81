"""The moments on the CPU that a graph needs: segments, launches, waits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._lib.intervals import running_end
from workbench.analyze._lib.rows import MISSING, Ints
from workbench.analyze._perfmodel.graph.rank_rows import CpuRows
from workbench.tables import POINT_KINDS

START, END, CALL, WAIT_START, WAIT_END = (
    POINT_KINDS.index(kind) for kind in ("CPU start", "CPU end", "call", "wait start", "wait end")
)


class CpuPoints(NamedTuple):
    """Points of all threads, by thread and time."""

    time: Ints
    kind: NDArray[np.int8]
    cpu: Ints
    """The CPU row a point belongs to."""
    thread: Ints
    starts: Ints
    """Per CPU row the point where its call begins; -1 if it has none."""
    ends: Ints
    """Per CPU row the point where its wait ends, or its call begins; -1 if it has none."""


def cpu_points(cpu: CpuRows, is_anchor: NDArray[np.bool_], waits: NDArray[np.bool_]) -> CpuPoints:
    """Lay out the points of every thread.

    Only outermost rows give points of their own: what is nested takes no time besides. Calls
    that GPU work or events depend on (`is_anchor`) are one point, calls that wait for the GPU
    (`waits`) are two.
    """
    every = np.arange(len(cpu.row))
    before = np.full(len(every), np.iinfo(np.int64).min)
    if len(every) > 1:
        same = cpu.thread[1:] == cpu.thread[:-1]
        before[1:] = np.where(same, running_end(cpu.end, cpu.thread)[:-1], before[1:])
    outermost = cpu.start >= before
    # Clocks round: a row can end after the one it is in, whose segment it extends.
    reaches = outermost | (cpu.end > before)
    parts = [
        (every[outermost], START, cpu.start),
        (every[reaches], END, cpu.end),
        (every[is_anchor & ~waits], CALL, cpu.start),
        (every[waits], WAIT_START, cpu.start),
        (every[waits], WAIT_END, cpu.end),
    ]
    row = np.concatenate([part[0] for part in parts])
    kind = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    time = np.concatenate([of[part] for part, _, of in parts])
    order = _order(cpu, row, kind, time)
    row, kind, time = row[order], kind[order], time[order]
    starts, ends = np.full((2, len(every)), MISSING)
    for wanted, place in ((CALL, starts), (WAIT_START, starts), (CALL, ends), (WAIT_END, ends)):
        chosen = np.flatnonzero(kind == wanted)
        place[row[chosen]] = chosen
    return CpuPoints(time, kind.astype(np.int8), row, cpu.thread[row], starts, ends)


def _order(cpu: CpuRows, row: Ints, kind: Ints, time: Ints) -> Ints:
    """Sort points: at one moment inner ends, outer ends, then outer starts, inner starts."""
    is_end = (kind == END) | (kind == WAIT_END)
    lasting = cpu.end[row] > cpu.start[row]
    # What takes no time ends after it starts, so it counts among the starts.
    late = ~(is_end & lasting)
    within = np.where(late, 2 * row + is_end, -row)
    # An END closes its segment: after the waits of the same row, which are inside.
    last = np.where(is_end, kind == END, kind != START)
    return np.lexsort((last, within, late, time, cpu.thread[row]))
