"""When the passes of a pipeline begin and end, for any order and any durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._lib.pipeline_order import ACTIONS, BACKWARD, FORWARD, WEIGHT, Ints, Order
from workbench.errors import PerformanceModelError

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What each pass waits for, and the passes in waves that can be worked out at once.

    ``before`` is the pass before on the stage, ``needs`` the one that makes the input, and
    ``partner_needs`` that of the overlapped pass; a row that there is none is the number of
    rows.
    """

    order: Order
    before: Ints
    needs: Ints
    partner_needs: Ints
    waves: list[Ints]

    def times(self, dur: Floats, delay: Floats) -> tuple[Floats, Floats]:
        """Return when each pass starts and ends; further axes are independent steps.

        ``delay`` is how long the input of each pass travels. Passes that overlap start
        together; both have the duration of the pair.
        """
        delay = delay.reshape(len(delay), *[1] * (dur.ndim - 1))
        end = np.zeros((len(dur) + 1, *dur.shape[1:]))
        start = np.zeros_like(dur)
        partner = np.where(self.order.partner < 0, np.arange(len(dur)), self.order.partner)
        paired = bool((self.order.partner >= 0).any())
        for rows in self.waves:
            ready = np.maximum(end[self.before[rows]], end[self.needs[rows]] + delay[rows])
            if paired:
                other = end[self.partner_needs[rows]] + delay[partner[rows]]
                ready = np.maximum(ready, other)
            start[rows] = ready
            end[rows] = ready + dur[rows]
        return start, end[:-1]


def plan(order: Order) -> Plan:
    """Find what each pass waits for.

    Raises
    ------
    PerformanceModelError
        If a pass is missing or doubled, a chunk is on two stages, or passes wait for each
        other in a circle.
    """
    count = len(order.stage)
    needs = _needs(order)
    partner_needs = np.where(order.partner < 0, count, needs[order.partner])
    first_of_stage = np.diff(order.stage, prepend=-1) != 0
    before = np.where(first_of_stage, count, np.arange(count) - 1)
    second = (order.partner >= 0) & (order.partner < np.arange(count))
    before = np.where(second, before[order.partner], before)
    return Plan(order, before, needs, partner_needs, _waves(order, needs, partner_needs))


def _needs(order: Order) -> Ints:
    """Return the row that makes the input of each pass."""
    count = len(order.stage)
    chunks, batches = int(order.chunk.max()) + 1, int(order.micro_batch.max()) + 1
    row = np.full((len(ACTIONS), chunks, batches), count)
    row[order.action, order.chunk, order.micro_batch] = np.arange(count)
    _refuse_odd(order, row)
    # The gradient that goes on to the chunk before, by the whole backward or its first part.
    forward, gradient = row[FORWARD], np.minimum(row[BACKWARD], row[2])
    needs = np.full_like(row, count)
    needs[FORWARD, 1:] = forward[:-1]
    needs[BACKWARD:WEIGHT, :-1] = gradient[1:]
    needs[BACKWARD:WEIGHT, -1] = forward[-1]
    needs[WEIGHT] = gradient
    return np.asarray(needs[order.action, order.chunk, order.micro_batch])


def _refuse_odd(order: Order, row: Ints) -> None:
    """Raise unless each chunk has each micro-batch forward and backward once, on one stage."""
    count = len(order.stage)
    forward, backward, inputs, weights = row < count
    wrong = ~(forward & (backward ^ inputs) & (inputs == weights))
    if wrong.any() or (row < count).sum() != count:
        if wrong.any():
            chunk, batch = np.argwhere(wrong)[0]
        else:
            here = row[order.action, order.chunk, order.micro_batch] != np.arange(count)
            chunk, batch = order.chunk[here][0], order.micro_batch[here][0]
        here = (order.chunk == chunk) & (order.micro_batch == batch)
        found = " ".join(ACTIONS[each] for each in order.action[here]) or "nothing"
        msg = (
            f"micro-batch {batch} in chunk {chunk} has {found}; each needs F once, and B or else "
            "I and W once"
        )
        raise PerformanceModelError(msg)
    home = np.full(row.shape[1], -1)
    home[order.chunk] = order.stage
    if (moved := home[order.chunk] != order.stage).any():
        chunk = order.chunk[moved][0]
        on = sorted(set(order.stage[order.chunk == chunk].tolist()))
        msg = f"chunk {chunk} is on stages {on}; a chunk has its weights on one stage"
        raise PerformanceModelError(msg)


def _waves(order: Order, needs: Ints, partner_needs: Ints) -> list[Ints]:
    """Sort passes into waves: the next of every stage whose inputs are there."""
    count = len(order.stage)
    stages = np.unique(order.stage)
    head = np.searchsorted(order.stage, stages)
    stop = np.searchsorted(order.stage, stages, side="right")
    width = np.where(order.partner >= 0, 2, 1)
    done = np.zeros(count + 1, dtype=bool)
    done[count] = True
    waves, left = [], count
    while left:
        open_ = head < stop
        rows = head[open_]
        ready = done[needs[rows]] & done[partner_needs[rows]]
        rows = rows[ready]
        if not len(rows):
            raise PerformanceModelError(_circle(order, needs, head[open_]))
        head[np.flatnonzero(open_)[ready]] += width[rows]
        pairs = order.partner[rows]
        rows = np.concatenate([rows, pairs[pairs >= 0]])
        done[rows] = True
        waves.append(rows)
        left -= len(rows)
    return waves


def _circle(order: Order, needs: Ints, heads: Ints) -> str:
    """Say which pass cannot run, and for what it waits."""

    def said(row: int) -> str:
        return (
            f"{ACTIONS[order.action[row]]} of micro-batch {order.micro_batch[row]} in chunk "
            f"{order.chunk[row]}"
        )

    at = next((row for row in heads if needs[row] < len(order.stage)), heads[0])
    return (
        f"the schedule cannot run: stage {order.stage[at]} stands before {said(at)}, which waits "
        f"for {said(needs[at])} on stage {order.stage[needs[at]]}, which waits in turn"
    )
