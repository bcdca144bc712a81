"""Pipeline schedules: which pass every stage runs, and in which order."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pandas as pd

from workbench.analyze._imbalance.packers import is_whole
from workbench.analyze._lib import pipelines as _pipeline_order
from workbench.analyze._lib.pipelines import ACTIONS, FORWARD, V_SHAPED, Ints, Order, ScheduleKind
from workbench.errors import PerformanceModelError
from workbench.tables import PIPELINE_SCHEDULE


def pipeline_schedule(
    kind: ScheduleKind, stages: int, micro_batches: int, chunks: int | None = None
) -> pd.DataFrame:
    """List the passes of every pipeline stage in the order it runs them.

    Parameters
    ----------
    kind
        ``"gpipe"``: all forward, then all backward. ``"1f1b"``: one forward, one backward.
        ``"interleaved"``: 1F1B with several chunks of the model per stage. ``"zero_bubble"``:
        the backward split in two, and the weight-gradient pass put off (ZB1P; interleaved with
        several chunks). ``"zbv"``: the same, with the model laid down the stages and back.
        ``"dualpipe_v"``: so laid, with forward passes that overlap backward ones.
    stages
        Pipeline stages (PP).
    micro_batches
        Micro-batches of a step.
    chunks
        Parts of the model per stage; None for the fewest the schedule knows, which is 2 for
        interleaved, zbv and dualpipe_v, otherwise 1.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PIPELINE_SCHEDULE`, by stage and position.

    Raises
    ------
    ValueError
        If ``kind`` is none of these.
    PerformanceModelError
        If a number is below 1, or the schedule does not exist for these numbers.

    Notes
    -----
    Chunk k x stages + s is on stage s; in V-shaped schedules chunk k is on stage k on the way
    down and 2 x stages - 1 - k on the way back. The orders are those of
    ``torch.distributed.pipelining.schedules`` (2.13). 1F1B also runs with fewer micro-batches
    than stages, as Megatron-LM does and torch does not.

    References
    ----------
    arXiv:2104.04473 (1F1B, interleaved), arXiv:2401.10241 (ZB-H1, ZB-V), arXiv:2412.19437
    (DualPipe) and github.com/deepseek-ai/DualPipe (DualPipeV).

    Examples
    --------
    >>> schedule = pipeline_schedule("1f1b", stages=2, micro_batches=3)
    >>> first = schedule[schedule["stage"] == 0]
    >>> " ".join(first["action"].astype(str) + first["micro_batch"].astype(str))
    'F0 F1 B0 F2 B1 B2'
    """
    if kind not in get_args(ScheduleKind):
        msg = f"kind must be one of {get_args(ScheduleKind)}, not {kind!r}"
        raise ValueError(msg)
    if chunks is None:
        chunks = 2 if kind == "interleaved" or kind in V_SHAPED else 1
    if not all(is_whole(number) for number in (stages, micro_batches, chunks)):
        msg = "stages, micro_batches and chunks must be whole numbers of at least 1, not "
        raise PerformanceModelError(msg + f"{(stages, micro_batches, chunks)}")
    if reason := _pipeline_order.refusal(kind, stages, micro_batches, chunks):
        raise PerformanceModelError(reason)
    order = _pipeline_order.order(kind, stages, micro_batches, chunks)
    return PIPELINE_SCHEDULE.check(_table(kind, order))


def _table(kind: str, order: Order) -> pd.DataFrame:
    count = len(order.stage)
    # Rows lie by stage, so a position is the row less the first row of its stage.
    first = np.searchsorted(order.stage, order.stage)
    partner = np.where(order.partner < 0, 0, order.partner - first)
    return pd.DataFrame(
        {
            "schedule": pd.Categorical.from_codes(np.zeros(count, dtype=np.int8), pd.Index([kind])),
            "stage": order.stage.astype("int32"),
            "position": (np.arange(count) - first).astype("int32"),
            "action": pd.Categorical.from_codes(order.action.astype(np.int8), pd.Index(ACTIONS)),
            "micro_batch": order.micro_batch.astype("int32"),
            "chunk": order.chunk.astype("int32"),
            "overlapped_with": pd.arrays.IntegerArray(partner.astype("int32"), order.partner < 0),
        }
    )


def order_of(schedule: pd.DataFrame) -> tuple[str, Order]:
    """Read the name and the order of one schedule back from its table."""
    table = PIPELINE_SCHEDULE.check(schedule)
    names = table["schedule"].unique().tolist()
    if len(names) != 1:
        msg = f"one schedule at a time; the table holds {names[:6] or 'none'}"
        raise PerformanceModelError(msg)
    if unknown := sorted({*map(str, table["action"].unique())} - set(ACTIONS)):
        msg = f"actions must be {', '.join(ACTIONS)}, not {unknown[:4]}"
        raise PerformanceModelError(msg)
    order = np.lexsort((table["position"].to_numpy(), table["stage"].to_numpy()))
    table = table.iloc[order]
    codes = np.asarray(table["action"].cat.set_categories(list(ACTIONS)).cat.codes, np.int64)
    stage, position, batch, chunk = (
        table[name].to_numpy(dtype=np.int64)
        for name in ("stage", "position", "micro_batch", "chunk")
    )
    partner = _partners(stage, position, codes, table["overlapped_with"])
    return str(names[0]), Order(stage, codes, batch, chunk, partner)


def _partners(stage: Ints, position: Ints, codes: Ints, overlapped_with: pd.Series) -> Ints:
    """Return the row of the pass each one overlaps; they must be neighbours and agree."""
    rows = np.arange(len(stage))
    alone = overlapped_with.isna().to_numpy()
    wanted = overlapped_with.fillna(-1).to_numpy(dtype=np.int64)
    partner = np.full(len(stage), -1)
    # A pair stands side by side, so only neighbours can fit.
    for side in (-1, 1):
        beside = np.clip(rows + side, 0, max(len(stage) - 1, 0))
        fits = (stage[beside] == stage) & (position[beside] == wanted) & (beside != rows)
        partner = np.where(~alone & fits, beside, partner)
    lost = ~alone & ((partner < 0) | (partner[partner] != rows))
    lost |= ~alone & ((codes == FORWARD) != (partner > rows))
    if lost.any():
        at = int(lost.argmax())
        msg = f"the pass at position {position[at]} of stage {stage[at]} overlaps position "
        msg += f"{wanted[at]}; a forward and the backward it overlaps follow each other and name "
        raise PerformanceModelError(msg + "each other")
    return partner
