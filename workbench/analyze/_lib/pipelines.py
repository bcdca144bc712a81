"""The order in which the stages of a pipeline run their passes, schedule by schedule."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workbench.errors import PerformanceModelError

ScheduleKind: TypeAlias = Literal[
    "gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipe_v"
]
Ints: TypeAlias = NDArray[np.int64]

# Forward, whole backward, gradient of the inputs, gradient of the weights.
FORWARD, BACKWARD, INPUT, WEIGHT = range(4)
ACTIONS = ("F", "B", "I", "W")
_OLDEST_WEIGHT = 4  # the gradient of weights that has waited longest
# The second half of the model runs back over the stages, so that the last is next to the first.
V_SHAPED = frozenset({"zbv", "dualpipe_v"})


@dataclass(frozen=True)
class Order:
    """All passes of a step, stage by stage in the order they run; ``partner`` is -1 for none.

    Chunks are numbered through the model. Two passes that overlap follow each other, the forward
    one first, and name each other's row.
    """

    stage: Ints
    action: Ints
    micro_batch: Ints
    chunk: Ints
    partner: Ints


@lru_cache(maxsize=32)
def order(kind: ScheduleKind, stages: int, micro_batches: int, chunks: int) -> Order:
    """Return the order of a schedule that is possible; see ``refusal`` for what is not."""
    by_stage = [_of_stage(kind, stage, stages, micro_batches, chunks) for stage in range(stages)]
    lengths = [len(action) for action, *_ in by_stage]
    action, micro_batch, chunk, partner = map(np.concatenate, zip(*by_stage, strict=True))
    stage = np.repeat(np.arange(stages), lengths)
    first = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    return Order(stage, action, micro_batch, chunk, np.where(partner < 0, -1, partner + first))


def _of_stage(
    kind: ScheduleKind, stage: int, stages: int, micro_batches: int, chunks: int
) -> _Columns:
    if kind in V_SHAPED:
        return (_zbv if kind == "zbv" else _dualpipe_v)(stage, stages, micro_batches).columns()
    if kind == "gpipe":
        action = np.repeat([FORWARD, BACKWARD], micro_batches)
        number = np.tile(np.arange(micro_batches), 2)
        return action, number, np.full(len(action), stage), np.full(len(action), -1)
    return _alternating(kind, stage, stages, micro_batches, chunks)


def refusal(kind: ScheduleKind, stages: int, micro_batches: int, chunks: int) -> str:
    """Describe the first broken rule of a schedule; empty if there is none."""
    if kind in ("gpipe", "1f1b") and chunks != 1:
        return f"{kind} has one chunk per stage, not {chunks}; interleaved has several"
    if kind == "interleaved" and chunks < 2:
        return "interleaved needs at least 2 chunks per stage; with one it is 1f1b"
    if kind in V_SHAPED and chunks != 2:
        return f"{kind} has 2 chunks per stage, one on the way down and one back, not {chunks}"
    if kind == "dualpipe_v" and micro_batches < 2 * stages:
        return (
            f"dualpipe_v needs as many micro-batches as there are chunks, {2 * stages} on {stages} "
            f"stages, not {micro_batches}"
        )
    rounds = max(1, micro_batches // stages)
    if kind in ("interleaved", "zero_bubble") and micro_batches % rounds:
        return (
            f"{kind} deals micro-batches in rounds of at least the {stages} stages: "
            f"{micro_batches} cannot be dealt to {rounds} equal rounds"
        )
    return ""


_Columns: TypeAlias = tuple[Ints, Ints, Ints, Ints]


def _alternating(
    kind: ScheduleKind, stage: int, stages: int, micro_batches: int, chunks: int
) -> _Columns:
    """Alternate one forward and one backward after a warm-up of forward passes.

    Micro-batches are dealt in rounds; a round goes through all chunks of the stage before the next
    begins. With a split backward the weight-gradient pass comes ``stage`` passes later.
    """
    round_size = micro_batches // max(1, micro_batches // stages)
    per_hop = 2 if kind == "interleaved" else 1
    at = np.arange(micro_batches * chunks)
    warm_up = min((chunks - 1) * round_size + per_hop * (stages - 1 - stage), len(at))
    number, local = at, np.zeros_like(at)
    if chunks > 1:
        number = at // (round_size * chunks) * round_size + at % round_size
        local = at // round_size % chunks
    forward, backward = local * stages + stage, (chunks - 1 - local) * stages + stage
    # Keys of the order of the passes: forward, backward and weight gradient in turn.
    is_split = kind == "zero_bubble"
    passes = [
        (FORWARD, forward, 3 * at),
        (INPUT if is_split else BACKWARD, backward, 3 * (at + warm_up) + 1),
        (WEIGHT, backward, 3 * (at + warm_up + stage) + 2),
    ][: 3 if is_split else 2]
    actions, chunk_of, keys = zip(*passes, strict=True)
    rank = np.argsort(np.concatenate(keys), kind="stable")
    action = np.repeat(actions, len(at))[rank]
    chunk = np.concatenate(chunk_of)[rank]
    return action, np.tile(number, len(passes))[rank], chunk, np.full(len(rank), -1)


@dataclass
class _Passes:
    """Passes of one stage with two chunks, written one after the other; each kind counts up."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    count: dict[tuple[int, int], int] = field(default_factory=dict)
    owed: deque[tuple[int, int]] = field(default_factory=deque)

    def repeat(self, times: int, *groups: tuple[int, ...]) -> None:
        for _ in range(times):
            for chunk, *actions in groups:
                for action in actions:
                    self.add(chunk, action)

    def add(self, chunk: int, action: int, partner: int = -1) -> None:
        if action == _OLDEST_WEIGHT:
            chunk, number = self.owed.popleft()
            self.rows.append((WEIGHT, number, chunk, -1))
            return
        kind = INPUT if action == BACKWARD else action
        number = self.count.get((chunk, kind), 0)
        self.count[chunk, kind] = number + 1
        self.rows.append((action, number, chunk, partner))
        if action == INPUT:
            self.owed.append((chunk, number))

    def add_pair(self, forward: int, backward: int) -> None:
        row = len(self.rows)
        self.add(forward, FORWARD, partner=row + 1)
        self.add(backward, BACKWARD, partner=row)

    def columns(self) -> _Columns:
        action, number, chunk, partner = np.array(self.rows, dtype=np.int64).T
        return action, number, chunk, partner


def _zbv(stage: int, stages: int, micro_batches: int) -> _Passes:
    """ZB-V: the backward split in two, weight gradients right behind but in the cool-down."""
    near, far, behind = stage, 2 * stages - 1 - stage, stages - 1 - stage
    # Laid out for a full pipeline; passes of micro-batches that are not there drop out.
    count = max(2 * stages - 1, micro_batches)
    passes = _Passes()
    passes.repeat(2 * behind + 1, (near, FORWARD))
    passes.repeat(stage, (far, FORWARD), (near, FORWARD))
    passes.repeat(behind + 1, (far, FORWARD, INPUT, WEIGHT))
    full = count - stages - behind
    passes.repeat(full, (near, FORWARD, INPUT, WEIGHT), (far, FORWARD, INPUT, WEIGHT))
    passes.repeat(behind, (near, INPUT, WEIGHT), (far, FORWARD, INPUT, WEIGHT))
    passes.repeat(stage, (near, INPUT), (far, INPUT))
    passes.repeat(behind + 1, (near, INPUT, WEIGHT))
    passes.repeat(stage, (far, WEIGHT))
    passes.repeat(stage, (near, WEIGHT))
    passes.rows = [row for row in passes.rows if row[1] < micro_batches]
    return passes


def _dualpipe_v(stage: int, stages: int, micro_batches: int) -> _Passes:
    """DualPipeV: in the main part a forward overlaps a backward of the other direction."""
    near, far, behind = stage, 2 * stages - 1 - stage, stages - 1 - stage
    passes = _Passes()
    passes.repeat(2 * behind, (near, FORWARD))
    passes.repeat(stage + 1, (near, FORWARD), (far, FORWARD))
    passes.repeat(behind, (far, INPUT, _OLDEST_WEIGHT, FORWARD))
    for at in range(micro_batches - 2 * stages + stage + 1):
        if at == behind == 0:
            # The turning point has nothing to fill yet, so overlapping would only delay.
            passes.repeat(1, (near, FORWARD), (far, BACKWARD))
        else:
            passes.add_pair(near, far)
        passes.add_pair(far, near)
    for _ in range(behind):
        passes.add(far, BACKWARD)
        passes.add_pair(far, near)
    # From the middle of the last backward passes on, weight gradients wait until the end.
    full_count = 2 * ((stage + 1) // 2) + (1 - stage % 2)
    for at in range(2 * (stage + 1)):
        passes.add(near if at % 2 else far, BACKWARD if at < full_count else INPUT)
    passes.repeat(behind, (near, _OLDEST_WEIGHT, INPUT))
    passes.repeat(stage + 1, (near, _OLDEST_WEIGHT))
    return passes


Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """Dependencies of each pass, and the passes in waves that can be computed at once.

    ``before`` is the pass before on the stage, ``needs`` the one that makes the input, and
    ``partner_needs`` that of the overlapped pass; a row that there is none is the number of rows.
    """

    order: Order
    before: Ints
    needs: Ints
    partner_needs: Ints
    waves: list[Ints]

    def times(self, dur: Floats, delay: Floats) -> tuple[Floats, Floats]:
        """Return when each pass starts and ends; further axes are independent steps.

        ``delay`` is how long the input of each pass travels. Passes that overlap start together;
        both have the duration of the pair.
        """
        delay = delay.reshape(len(delay), *[1] * (dur.ndim - 1))
        end = np.zeros((len(dur) + 1, *dur.shape[1:]))
        start = np.zeros_like(dur)
        partner = np.where(self.order.partner < 0, np.arange(len(dur)), self.order.partner)
        paired = bool((self.order.partner >= 0).any())
        for rows in self.waves:
            ready = np.maximum(end[self.before[rows]], end[self.needs[rows]] + delay[rows])
            if paired:
                of_partner = end[self.partner_needs[rows]] + delay[partner[rows]]
                ready = np.maximum(ready, of_partner)
            start[rows] = ready
            end[rows] = ready + dur[rows]
        return start, end[:-1]


def plan(order: Order) -> Plan:
    """Find what each pass waits for."""
    count = len(order.stage)
    needs = _needs(order)
    partner_needs = np.where(order.partner < 0, count, needs[order.partner])
    first_of_stage = np.diff(order.stage, prepend=-1) != 0
    before = np.where(first_of_stage, count, np.arange(count) - 1)
    second = (order.partner >= 0) & (order.partner < np.arange(count))
    before = np.where(second, before[order.partner], before)
    return Plan(order, before, needs, partner_needs, _waves(order, needs, partner_needs))


def _needs(order: Order) -> Ints:
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
    # Of passes that occur twice the table of rows holds only the last one.
    twice = row[order.action, order.chunk, order.micro_batch] != np.arange(count)
    if wrong.any() or twice.any():
        chunk, batch = order.chunk[twice][:1], order.micro_batch[twice][:1]
        chunk, batch = np.argwhere(wrong)[0] if wrong.any() else (chunk[0], batch[0])
        chosen = (order.chunk == chunk) & (order.micro_batch == batch)
        passes = " ".join(ACTIONS[action] for action in order.action[chosen]) or "nothing"
        msg = (
            f"micro-batch {batch} in chunk {chunk} has {passes}; each needs F once, and B or else "
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


# Waves, because a pass at a time would be a loop in Python over every pass of a step.
def _waves(order: Order, needs: Ints, partner_needs: Ints) -> list[Ints]:
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
    at = next((row for row in heads if needs[row] < len(order.stage)), heads[0])
    stands, waits = (
        f"{ACTIONS[order.action[row]]} of micro-batch {order.micro_batch[row]} in chunk "
        f"{order.chunk[row]}"
        for row in (at, needs[at])
    )
    return (
        f"the schedule cannot run: stage {order.stage[at]} stands before {stands}, which waits "
        f"for {waits} on stage {order.stage[needs[at]]}, which waits in turn"
    )
