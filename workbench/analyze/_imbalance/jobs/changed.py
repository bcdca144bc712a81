"""A recorded job, rearranged: another schedule, or other micro-batches of the same steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workbench.analyze._imbalance.jobs.replay import (
    BACKWARD,
    FORWARD,
    Compute,
    Floats,
    Job,
    Operation,
)
from workbench.analyze._lib.pipeline_order import (
    FORWARD as FORWARD_PASS,
)
from workbench.analyze._lib.pipeline_order import (
    INPUT,
    V_SHAPED,
    WEIGHT,
    Order,
    ScheduleKind,
    order,
    refusal,
)
from workbench.errors import PerformanceModelError

_WEIGHTS = "backward-weights"


@dataclass(frozen=True)
class Layout:
    """How a recorded job lies on its stages, and the order it would need to run otherwise."""

    stages: list[int]
    chunks: list[int]
    batches: list[int]
    kind: ScheduleKind

    @property
    def per_stage(self) -> int:
        """Chunks of a stage."""
        return len(self.chunks) // len(self.stages)


def layout(it: Job) -> Layout:
    """Read off how a job lies on its stages.

    Raises
    ------
    PerformanceModelError
        If its chunks do not go round the stages in turn.
    """
    home = {item.produces[1]: stage for stage, items in it.computes.items() for item in items}
    stages = sorted(it.computes)
    chunks = sorted(home)
    batches = sorted({item.produces[2] for items in it.computes.values() for item in items})
    if [home[each] for each in chunks] != (stages * len(chunks))[: len(chunks)] or (
        len(chunks) % len(stages)
    ):
        msg = (
            f"chunks lie on stages {[home[each] for each in chunks][:12]}; only those that go "
            "round the stages in turn can be given another schedule or other micro-batches"
        )
        raise PerformanceModelError(msg)
    kind: ScheduleKind = "1f1b" if len(chunks) == len(stages) else "interleaved"
    return Layout(stages, chunks, batches, kind)


def runs_as(it: Job, lies: Layout, kind: ScheduleKind) -> bool:
    """Say whether the job was recorded in the order of a schedule."""
    if refusal(kind, len(lies.stages), len(lies.batches), lies.per_stage):
        return False
    wanted = _actions(order(kind, len(lies.stages), len(lies.batches), lies.per_stage), lies)
    recorded = {
        stage: [
            (item.produces[0], *(each.index(number) for each, number in
                                 zip((lies.chunks, lies.batches), item.produces[1:], strict=True)))
            for item in items
        ]
        for stage, items in it.computes.items()
    }  # fmt: skip
    return recorded == wanted


def _actions(it: Order, lies: Layout) -> dict[int, list[tuple[str, int, int]]]:
    found: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for at, action, chunk, batch in zip(
        *(each.tolist() for each in (it.stage, it.action, it.chunk, it.micro_batch)), strict=True
    ):
        name = FORWARD if action == FORWARD_PASS else _WEIGHTS if action == WEIGHT else BACKWARD
        found[lies.stages[at]].append((name, chunk, batch))
    return dict(found)


def rearranged(
    it: Job, lies: Layout, kind: ScheduleKind, pick: NDArray[np.int64], weight_share: float
) -> Job:
    """Return the job in the order of a schedule, with micro-batches picked from the recorded.

    ``pick`` says for each new micro-batch which recorded one it is, by step and rank.

    Raises
    ------
    PerformanceModelError
        If the schedule does not exist for this job.
    """
    count = len(pick)
    reason = refusal(kind, len(lies.stages), count, lies.per_stage)
    if kind in V_SHAPED:
        reason = f"{kind} lays the model down the stages and back, which the job did not"
    if reason:
        msg = f"the job has {lies.per_stage} chunks per stage, {count} micro-batches: {reason}"
        raise PerformanceModelError(msg)
    made = order(kind, len(lies.stages), count, lies.per_stage)
    split = weight_share if (made.action == INPUT).any() else 0.0
    taken = _Taken(it, lies, pick, split)
    computes = {
        stage: [taken.compute(stage, *each) for each in actions]
        for stage, actions in _actions(made, lies).items()
    }
    rows = {key: at for at, key in enumerate(it.keys)}
    outside = [*it.before, *it.after]
    own = np.concatenate([np.stack(taken.durations), it.own[[rows[key] for key in outside]]])
    return replace(it, keys=[*taken.keys, *outside], own=own, computes=computes)


class _Taken:
    """Operations taken over from a job: their new keys and durations."""

    def __init__(self, it: Job, lies: Layout, pick: NDArray[np.int64], split: float) -> None:
        self.keys: list[Operation] = []
        self.durations: list[Floats] = []
        self._own, self._pick, self._split, self._lies = it.own, pick, split, lies
        self._row = {key: at for at, key in enumerate(it.keys)}
        self._items = {item.produces: item for items in it.computes.values() for item in items}
        self._numbers: dict[tuple[int, str], int] = defaultdict(int)

    def compute(self, stage: int, name: str, chunk: int, batch: int) -> Compute:
        """Return a computation of the new order, with the transfers and the pause beside it."""
        recorded = BACKWARD if name == _WEIGHTS else name
        items = [
            self._items[recorded, self._lies.chunks[chunk], each] for each in self._lies.batches
        ]
        factor = {_WEIGHTS: self._split, BACKWARD: 1 - self._split}.get(name, 1.0)
        key = self._take(stage, name, batch, [item.key for item in items], factor)
        made = (name, chunk, batch)
        assert key is not None
        if name == _WEIGHTS:
            return Compute(key, None, None, made, None)
        step = 1 if name == FORWARD else -1
        needs: tuple[str, int, int] | None = (name, chunk - step, batch)
        if not 0 <= chunk - step < len(self._lies.chunks):
            needs = None if name == FORWARD else (FORWARD, chunk, batch)
        receive, send, pause = (
            self._take(stage, "", batch, [getattr(item, part) for item in items])
            for part in ("receive", "send", "pause")
        )
        late = any(item.pauses_late for item in items)
        return Compute(key, receive, send, made, needs, pause, late)

    def _take(
        self, stage: int, name: str, batch: int, keys: list[Operation | None], factor: float = 1.0
    ) -> Operation | None:
        """Take an operation of all recorded micro-batches over; None if none has it."""
        known = [key for key in keys if key is not None]
        if not known:
            return None
        name = name or known[0].operation
        nothing = np.zeros(self._own.shape[1:])
        each = np.stack([nothing if key is None else self._own[self._row[key]] for key in keys])
        chosen = np.take_along_axis(each, self._pick[batch][None], axis=0)[0]
        number = self._numbers[stage, name]
        self._numbers[stage, name] += 1
        self.keys.append(Operation(stage, name, number))
        self.durations.append(factor * chosen)
        return self.keys[-1]
