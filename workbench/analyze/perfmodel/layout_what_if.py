"""What the steps of a trace would take in another layout, on other GPUs, in another model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from workbench._numbers import share_between
from workbench.analyze.perfmodel._columns import Array, columns
from workbench.analyze.perfmodel._layout_rows import differences, possible
from workbench.analyze.perfmodel._layout_scaling import PARTS, Forecast, Scaled, scaled
from workbench.analyze.perfmodel.gpu_type import GpuType
from workbench.analyze.perfmodel.iteration_model import IterationModel, assumed_model
from workbench.analyze.perfmodel.model_flops import flops
from workbench.errors import PerformanceModelError
from workbench.tables import CONFIGURATIONS, LAYOUT_WHAT_IF, STEP_BREAKDOWN

_FAR = 0.25  # from which on the closed form's own error on the trace is told


def layout_what_if(  # noqa: PLR0913 - the front door
    steps: pd.DataFrame,
    now: pd.DataFrame,
    wanted: pd.DataFrame,
    *,
    model: IterationModel | None = None,
    gpus: Mapping[str, GpuType] | None = None,
    level_share: float = 0.8,
) -> pd.DataFrame:
    """Ask the steps of a trace what they would take in other configurations.

    The trace says how long things take, the closed form how they change: every part of every
    step is scaled by the ratio of the closed form, so that what the closed form has wrong in
    both configurations cancels.

    Parameters
    ----------
    steps
        Table :data:`workbench.tables.STEP_BREAKDOWN`, measured or replayed. The ranks of a step
        are averaged; ranks without steps count only if no rank has any.
    now
        Table :data:`workbench.tables.CONFIGURATIONS` with one row: the configuration of the
        trace.
    wanted
        The same with the configurations asked for.
    model
        Gives the closed form; from :func:`assumed_model` if None. One from
        :func:`calibrated_to` or :func:`iteration_model` is better.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.
    level_share
        Share of further steps that the interval shall hold.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.LAYOUT_WHAT_IF`, one row per configuration asked for, in
        their order. compute + communication + bubble + other + idle = dur, exactly.

    Raises
    ------
    PerformanceModelError
        If there is no step, ``now`` is not one row, or a configuration does not multiply out or
        divide; the message names the row and every reason.

    See Also
    --------
    what_if : Changes of kernels, ranks and the host, replayed.
    IterationModel.predict : The same configurations without a trace.

    Notes
    -----
    With the closed form's parts, now and then:

    * compute and other GPU work: by ``(compute + optimizer)`` then / now;
    * bubble: of the waiting time (idle, exposed communication) ``bubble / (compute +
      optimizer)`` of compute, scaled by the bubbles; without a pipeline in the trace the same
      share of compute then;
    * communication: by the sum of those of tensor, context, expert, pipeline and data that the
      trace has; the others are added from the closed form, exposed. The hidden share stays,
      as far as compute can hide it;
    * idle: its launches, a share as in the closed form, by layers x micro-batches; the rest
      stays. Launches that shorter GPU work no longer hides are added.

    A learned residual of the model scales what the closed form scales. ``dur_ns`` is the median
    of the steps, the parts are those of the step in the middle. The interval has the positions
    k / (n + 1) of n steps in order, so it needs ``(n - 1) / (n + 1) >= level_share``. It tells
    how much steps vary, nothing of how far the ratios may be off.
    """
    STEP_BREAKDOWN.check(steps)
    share_between("level_share", level_share)
    _check(steps, now, wanted)
    if wanted.empty:
        return LAYOUT_WHAT_IF.empty()
    model = model or assumed_model()
    before, after = (model.predict(each, gpus=gpus) for each in (now, wanted))
    each = _one_per_step(steps)
    found = scaled(
        each, *(Forecast.of(table, model.constants.fixed_s) for table in (before, after))
    )
    measured = float(np.median(each["dur_ns"]))
    dur, parts = _middle(found)
    c = columns(wanted, gpus)
    budget = c.n * c.peak * dur / 1e9
    shares = [np.minimum(count / budget, 1) for count in flops(c, causal=False)]
    tokens = (now["global_batch_count"] * now["sequence_tokens"]).iloc[0]
    table = after[[*CONFIGURATIONS.columns, "memory_bytes", "fits"]].assign(
        change=differences(now, wanted),
        measured_ns=round(measured),
        dur_ns=dur,
        **_interval(found.total, level_share),
        step_count=len(each),
        throughput_ratio=c.gb * c.s / tokens * measured / dur,
        **parts,
        mfu_share=shares[0],
        hfu_share=shares[1],
        **{f"{name}_basis": words for name, words in found.bases.items()},
        doubt=_doubts(steps, before, after, found, level_share),
    )
    return LAYOUT_WHAT_IF.check(LAYOUT_WHAT_IF.cast(table).reset_index(drop=True))


def _check(steps: pd.DataFrame, now: pd.DataFrame, wanted: pd.DataFrame) -> None:
    if steps.empty:
        msg = "there is no step to scale; pass what analyze.step_breakdown(events) gives"
        raise PerformanceModelError(msg)
    for table, words in ((now, "now"), (wanted, "wanted")):
        CONFIGURATIONS.check(table)
        possible(table, words)
    if len(now) != 1:
        msg = f"now has {len(now)} rows; a trace has one configuration, give its row"
        raise PerformanceModelError(msg)


def _one_per_step(steps: pd.DataFrame) -> pd.DataFrame:
    """Average the ranks of a step; whole traces count only where no rank has steps."""
    if steps["step"].notna().any():
        steps = steps[steps["step"].notna()]
    number = steps["step"].fillna(-1).to_numpy(dtype=np.int64)
    times = [name for name in STEP_BREAKDOWN.columns if name.endswith("_ns")]
    return steps[times].groupby(number).mean()


def _middle(found: Scaled) -> tuple[Any, dict[str, Any]]:
    """Give the median step as whole ns, in parts that add up to it."""
    total = found.total
    order = np.argsort(total, axis=1, kind="stable")
    count = total.shape[1]
    middle = order[:, (count - 1) // 2 : count // 2 + 1]

    def of(values: Array) -> Array:
        return np.asarray(np.take_along_axis(values, middle, axis=1).mean(axis=1))

    ends = np.rint(np.cumsum([of(found.parts[name]) for name in PARTS], axis=0)).astype(np.int64)
    each = np.diff(ends, axis=0, prepend=0)
    parts = {f"{name}_ns": values for name, values in zip(PARTS, each, strict=True)}
    hidden = np.minimum(np.rint(of(found.overlap)).astype(np.int64), parts["compute_ns"])
    return np.maximum(ends[-1], 1), {**parts, "overlap_ns": hidden}


def _interval(total: Array, level_share: float) -> dict[str, Any]:
    if not _is_enough(total.shape[1], level_share):
        unknown = pd.array([pd.NA] * len(total), dtype="Int64")
        return {"low_ns": unknown, "high_ns": unknown}
    tail = (1 - level_share) / 2
    low, high = np.quantile(total, [tail, 1 - tail], axis=1, method="weibull")
    return {"low_ns": np.rint(low).astype(np.int64), "high_ns": np.rint(high).astype(np.int64)}


def _is_enough(count: int, level_share: float) -> bool:
    return (count - 1) / (count + 1) >= level_share - 1e-12


def _doubts(
    steps: pd.DataFrame,
    before: pd.DataFrame,
    after: pd.DataFrame,
    found: Scaled,
    level_share: float,
) -> list[str]:
    one = before.iloc[0]
    count = len(_one_per_step(steps))
    common = []
    if not _is_enough(count, level_share):
        word = "1 step is" if count == 1 else f"{count} steps are"
        common.append(f"{word} too few for an interval that holds {level_share:.0%} of them")
    median = float(steps["dur_ns"].median())
    if abs(one["dur_ns"] / median - 1) > _FAR:
        common.append(
            f"the model alone is {one['dur_ns'] / median - 1:+.0%} off on the trace itself"
        )
    if one["bubble_ns"] > 0:
        lone = "trace has one rank only: " if steps["rank"].nunique() == 1 else ""
        common.append(f"{lone}the bubble is told from other waiting by the closed form")
    if not any(one[f"{kind}_ns"] for kind in found.added) and (
        (steps["exposed_communication_ns"] + steps["overlap_ns"]).any()
    ):
        common.append("the layout of the trace has no communication, the trace has: it stays")
    doubts = []
    for row, words in enumerate(after["doubt"]):
        new = [name for name, flags in found.added.items() if flags[row]]
        then = after.iloc[row]
        own = [*common]
        if then["gpu_count"] != one["gpu_count"]:
            own.append(f"{then['gpu_count']:,} GPUs, the trace has {one['gpu_count']:,}")
        if then["gpu"] != one["gpu"]:
            own.append(f"GPU {then['gpu']}, the trace is of {one['gpu']}")
        if found.bases["bubble"][row] == "modelled":
            own.append("no pipeline in the trace: its bubble is modelled")
        if new:
            own.append(f"communication not in the trace is modelled, not hidden: {', '.join(new)}")
        doubts.append("; ".join(filter(None, [*own, words])))
    return doubts
