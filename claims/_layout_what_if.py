"""Step times predicted from a trace for another parallelism layout, GPU or model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from claims._tables import LAYOUT_WHAT_IF
from workbench._shared.numbers import Flags, share_between
from workbench.analyze._perfmodel.layouts.closed_form import Array, columns, flops
from workbench.analyze._perfmodel.layouts.iteration_model import IterationModel, assumed_model
from workbench.analyze._perfmodel.layouts.layout import LAYOUT_COLUMNS, Layout
from workbench.analyze._perfmodel.layouts.model_shape import SHAPE_COLUMNS, GpuType, ModelShape
from workbench.errors import PerformanceModelError
from workbench.tables import CONFIGURATIONS, STEP_BREAKDOWN

_FAR = 0.25  # from which on the closed form's own error on the trace is told


def layout_what_if(
    steps: pd.DataFrame,
    now: pd.DataFrame,
    wanted: pd.DataFrame,
    *,
    model: IterationModel | None = None,
    gpus: Mapping[str, GpuType] | None = None,
    confidence_level: float = 0.8,
) -> pd.DataFrame:
    """Predict step times in other configurations from the steps of a trace.

    The trace says how long things take, the closed form how they change: every part of every
    step is scaled by the ratio of the closed form, so that what the closed form has wrong in
    both configurations cancels.

    Parameters
    ----------
    steps
        Table :data:`workbench.tables.STEP_BREAKDOWN`, measured or replayed. The ranks of a step
        are averaged; ranks without steps count only if no rank has any.
    now
        Table :data:`workbench.tables.CONFIGURATIONS` with one row: the configuration of the trace.
    wanted
        The same with the configurations requested.
    model
        Gives the closed form; from :func:`assumed_model` if None. One from
        :func:`calibrated_to` or :func:`iteration_model` is better.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.
    confidence_level
        Share of further steps that the interval shall hold.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims._tables.LAYOUT_WHAT_IF`, one row per configuration requested, in
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

    A learned residual of the model is left aside: it knows totals, no parts. ``dur_ns`` is the
    median of the steps, the parts are those of the step in the middle. The interval has the
    positions k / (n + 1) of n steps in order, so it needs ``(n - 1) / (n + 1) >=
    confidence_level``. It tells how much steps vary, nothing of how far the ratios may be off.
    """
    STEP_BREAKDOWN.check(steps)
    share_between("confidence_level", confidence_level)
    _check(steps, now, wanted)
    if wanted.empty:
        return LAYOUT_WHAT_IF.empty()
    model = model or assumed_model()
    before, after = (model.predict(table, gpus=gpus) for table in (now, wanted))
    mean_steps = _one_per_step(steps)
    count = len(mean_steps)
    forecasts = (Forecast.of(table, model.constants.fixed_s) for table in (before, after))
    prediction = scaled(mean_steps, *forecasts)
    measured = float(np.median(mean_steps["dur_ns"]))
    common = _doubts_of_the_trace(mean_steps, steps["rank"].nunique(), before.iloc[0], prediction)
    if not _is_enough(count, confidence_level):
        words = "1 step is" if count == 1 else f"{count} steps are"
        share = f"{confidence_level:.0%}"
        common.insert(0, f"{words} too few for an interval that holds {share} of them")
    dur, components = _middle(prediction)
    c = columns(wanted, gpus)
    # Model FLOPs count once; what is recomputed counts in the hardware share only.
    budget = c.n * c.peak * dur / 1e9
    shares = [np.minimum(count / budget, 1) for count in flops(c, causal=False)]
    tokens = (now["global_batch_count"] * now["sequence_tokens"]).iloc[0]
    table = after[[*CONFIGURATIONS.columns, "memory_bytes", "fits"]].assign(
        change=differences(now, wanted),
        measured_ns=round(measured),
        dur_ns=dur,
        **_interval(prediction.total, confidence_level),
        step_count=count,
        throughput_ratio=c.gb * c.s / tokens * measured / dur,
        **components,
        mfu_share=shares[0],
        hfu_share=shares[1],
        **{f"{name}_basis": words for name, words in prediction.bases.items()},
        doubt=_doubts(common, before.iloc[0], after, prediction),
    )
    return LAYOUT_WHAT_IF.of(table.reset_index(drop=True))


def _check(steps: pd.DataFrame, now: pd.DataFrame, wanted: pd.DataFrame) -> None:
    if steps.empty:
        msg = "there is no step to scale; pass a row per rank and step"
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
    # A job takes one time per step; its ranks differ in how they spend it.
    times = [name for name in STEP_BREAKDOWN.columns if name.endswith("_ns")]
    return steps[times].groupby(number).mean()


def _middle(prediction: Scaled) -> tuple[Any, dict[str, Any]]:
    """Return the median step as whole ns, in parts that add up to it."""
    total = prediction.total
    order = np.argsort(total, axis=1, kind="stable")
    count = total.shape[1]
    middle = order[:, (count - 1) // 2 : count // 2 + 1]

    def of(values: Array) -> Array:
        return np.asarray(np.take_along_axis(values, middle, axis=1).mean(axis=1))

    # Ends are rounded, not parts: so the parts add up to the step exactly.
    ends = np.rint(np.cumsum([of(prediction.parts[name]) for name in PARTS], axis=0))
    lengths = np.diff(ends, axis=0, prepend=0).astype(np.int64)
    components = {f"{name}_ns": values for name, values in zip(PARTS, lengths, strict=True)}
    hidden = np.rint(of(prediction.overlap)).astype(np.int64)
    components["overlap_ns"] = np.minimum(hidden, components["compute_ns"])
    return np.maximum(ends[-1].astype(np.int64), 1), components


def _interval(total: Array, confidence_level: float) -> dict[str, Any]:
    if not _is_enough(total.shape[1], confidence_level):
        unknown = pd.array([pd.NA] * len(total), dtype="Int64")
        return {"low_ns": unknown, "high_ns": unknown}
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(total, [tail, 1 - tail], axis=1, method="weibull")
    return {"low_ns": np.rint(low).astype(np.int64), "high_ns": np.rint(high).astype(np.int64)}


def _is_enough(count: int, confidence_level: float) -> bool:
    # Of n further steps in order, the outer two bound (n - 1) / (n + 1) of all in expectation.
    return (count - 1) / (count + 1) >= confidence_level - 1e-12


def _doubts(
    common: list[str], traced: pd.Series, after: pd.DataFrame, prediction: Scaled
) -> list[str]:
    """Return for every configuration what the trace cannot show of it."""
    doubts = []
    for row, then in enumerate(after.to_dict("records")):
        new = ", ".join(name for name, flags in prediction.added.items() if flags[row])
        gpus, traced_gpus = then["gpu_count"], traced["gpu_count"]
        is_modelled = prediction.bases["bubble"][row] == "modelled"
        rules = {
            f"{gpus:,} GPUs, the trace has {traced_gpus:,}": gpus != traced_gpus,
            f"GPU {then['gpu']}, the trace is of {traced['gpu']}": then["gpu"] != traced["gpu"],
            "no pipeline in the trace: its bubble is modelled": is_modelled,
            f"communication not in the trace is modelled, not hidden: {new}": bool(new),
            str(then["doubt"]): bool(then["doubt"]),
        }
        doubts.append("; ".join([*common, *(words for words, holds in rules.items() if holds)]))
    return doubts


def _doubts_of_the_trace(
    measured: pd.DataFrame, ranks: int, traced: pd.Series, prediction: Scaled
) -> list[str]:
    off = float(traced["dur_ns"] / measured["dur_ns"].median() - 1)
    talks = bool((measured["exposed_communication_ns"] + measured["overlap_ns"]).any())
    silent = not any(traced[f"{kind}_ns"] for kind in prediction.added)
    lone = "trace has one rank only: " if ranks == 1 else ""
    doubts = []
    if abs(off) > _FAR:
        more = "more" if off > 0 else "less"
        doubts.append(f"the model alone takes {abs(off):.0%} {more} than the trace")
    if traced["bubble_ns"] > 0:
        doubts.append(f"{lone}the closed form separates the bubble from other waiting")
    if talks and silent:
        doubts.append("the layout of the trace has no communication, the trace has some: it stays")
    return doubts


_WORDS = {
    "gpu": "GPU", "gpu_count": "GPUs", "tensor_parallel": "TP", "context_parallel": "CP",
    "pipeline_parallel": "PP", "data_parallel": "DP", "expert_parallel": "EP",
    "chunk_count": "chunks", "micro_batch_count": "micro-batch", "global_batch_count": "batch",
    "sequence_tokens": "sequence", "recompute": "recompute", "sharding": "sharding",
    "has_sequence_parallel": "sequence parallel", "has_flash_attention": "flash attention",
    "layer_count": "layers", "hidden": "hidden", "ffn": "ffn", "head_count": "heads",
    "kv_head_count": "kv heads", "head_width": "head width", "vocabulary_count": "vocabulary",
    "is_gated": "gated", "is_tied": "tied", "expert_count": "experts", "routed_count": "routed",
}  # fmt: skip


def possible(configurations: pd.DataFrame, name: str) -> None:
    """Refuse the first row that no job can have, with every reason."""
    for number, row in enumerate(configurations.to_dict("records")):
        try:
            wrong = _misfits(row)
        except PerformanceModelError as error:
            wrong = [str(error)]
        if wrong:
            msg = f"{name}, row {number}: " + "; ".join(wrong)
            raise PerformanceModelError(msg)


def _misfits(row: Mapping[Hashable, Any]) -> list[str]:
    shape = ModelShape(**{name: _plain(row[column]) for name, column in SHAPE_COLUMNS.items()})
    layout = Layout(**{name: _plain(row[column]) for name, column in LAYOUT_COLUMNS.items()})
    wrong = layout.misfits(shape)
    if layout.gpu_count != row["gpu_count"]:
        product = f"TP{layout.tensor} x CP{layout.context} x PP{layout.pipeline} x DP{layout.data}"
        wrong.append(f"{product} is {layout.gpu_count} GPUs, not {row['gpu_count']}")
    return wrong


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def differences(now: pd.DataFrame, wanted: pd.DataFrame) -> list[str]:
    traced = now.iloc[0]
    texts = []
    for row in wanted.to_dict("records"):
        changed = [name for name in _WORDS if traced[name] != row[name]]
        words = [f"{_WORDS[name]} {_said(traced[name])} → {_said(row[name])}" for name in changed]
        texts.append(", ".join(words) or "as in the trace")
    return texts


def _said(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


COMMUNICATION = ("tensor", "context", "expert", "pipeline", "data")
PARTS = ("compute", "communication", "bubble", "other", "idle")


@dataclass(frozen=True)
class Scaled:
    """Parts of every step in every configuration, and how sure they are."""

    parts: dict[str, Array]  # per part an array (configurations, steps) [ns]
    overlap: Array
    bases: dict[str, list[str]]  # per part its basis in every configuration
    added: dict[str, Flags]
    """Per kind of communication where it is in the configuration and not in the trace."""

    @property
    def total(self) -> Array:
        return np.asarray(np.sum(list(self.parts.values()), axis=0), dtype=np.float64)


@dataclass(frozen=True)
class Forecast:
    """Times by the closed form of one configuration, or of many [ns]."""

    parts: dict[str, Array]
    passes: Array  # layers of a stage x micro-batches: how often the host launches a layer
    fixed: float  # of the part ``other``: what does not depend on the configuration

    @classmethod
    def of(cls, predicted: pd.DataFrame, fixed_s: float) -> Forecast:
        names = ("compute", "bubble", *COMMUNICATION, "optimizer", "other")
        components = {name: predicted[f"{name}_ns"].to_numpy(dtype=np.float64) for name in names}
        rounds = predicted["global_batch_count"] / (
            predicted["data_parallel"] * predicted["micro_batch_count"]
        )
        layers = np.ceil(predicted["layer_count"] / predicted["pipeline_parallel"])
        return cls(
            components, (layers * rounds).to_numpy(dtype=np.float64), float(np.floor(1e9 * fixed_s))
        )

    @property
    def work(self) -> Array:
        """Matrix products, attention, element-wise work and the update: what computes."""
        return self.parts["compute"] + self.parts["optimizer"]

    @property
    def launch(self) -> Array:
        return np.maximum(self.parts["other"] - self.fixed, 0)


def scaled(steps: pd.DataFrame, now: Forecast, then: Forecast) -> Scaled:
    """Scale every step (STEP_BREAKDOWN, one row each) to every configuration requested."""
    seen = {name: steps[name].to_numpy(dtype=np.float64) for name in steps.columns}
    # A ratio of two closed forms: what it has wrong in both layouts cancels.
    faster = then.work / now.work
    compute = np.outer(faster, seen["compute_ns"])
    gpu_other = seen["exposed_memory_ns"] + seen["exposed_other_ns"]
    exposed, idle = seen["exposed_communication_ns"], seen["idle_ns"]

    # Stages that wait do so idle or in kernels that receive: which, no trace tells.
    waiting = exposed + idle
    bubble = np.minimum(waiting, seen["compute_ns"] * now.parts["bubble"] / now.work)
    left = 1 - np.divide(bubble, waiting, out=np.zeros_like(waiting), where=waiting > 0)
    if now.parts["bubble"][0] > 0:
        stages = then.parts["bubble"] / now.parts["bubble"]
        new_bubble, bubble_ratio = np.outer(stages, bubble), stages
    else:
        new_bubble = compute * (then.parts["bubble"] / then.work)[:, None]
        bubble_ratio = np.ones_like(faster)
    new_exposed, overlap, talk_ratio, added = _communication(
        seen["overlap_ns"], exposed * left, compute, now, then
    )
    new_idle, host_ratio, more_launches = _idle(idle * left, now, then)
    modelled = np.sum([then.parts[kind] * flag for kind, flag in added.items()], axis=0)
    return Scaled(
        {
            "compute": compute, "communication": new_exposed, "bubble": new_bubble,
            "other": np.outer(faster, gpu_other), "idle": new_idle,
        },
        overlap,
        {
            "compute": _bases(faster),
            "communication": _bases(talk_ratio, modelled > 0),
            "bubble": _bases(
                bubble_ratio, (now.parts["bubble"][0] == 0) & (then.parts["bubble"] > 0)
            ),
            "other": _bases(faster),
            "idle": _bases(host_ratio, more_launches > 0),
        },
        added,
    )  # fmt: skip


def _communication(
    overlap: Array, exposed: Array, compute: Array, now: Forecast, then: Forecast
) -> tuple[Array, Array, Array, dict[str, Flags]]:
    """Scale communication by its kinds; what is hidden stays a share, within compute."""
    total = float(sum(now.parts[kind][0] for kind in COMMUNICATION))
    has = {kind: now.parts[kind][0] > 0 for kind in COMMUNICATION}
    ratio = np.ones_like(then.work)
    if total > 0:
        kept = np.sum([then.parts[kind] for kind in COMMUNICATION if has[kind]], axis=0)
        ratio = kept / total
    added = {kind: (then.parts[kind] > 0) & ~has[kind] for kind in COMMUNICATION}
    more = np.sum([then.parts[kind] * added[kind] for kind in COMMUNICATION], axis=0)
    # Communication can hide behind no more compute than there is.
    hidden = np.minimum(np.outer(ratio, overlap), compute)
    return np.outer(ratio, overlap + exposed) - hidden + more[:, None], hidden, ratio, added


def _idle(idle: Array, now: Forecast, then: Forecast) -> tuple[Array, Array, Array]:
    """Scale the launches in idle time; those that shorter work no longer hides come to it."""
    passes = then.passes / now.passes
    share = now.launch[0] / now.parts["other"][0] if now.parts["other"][0] > 0 else 0.0
    expected = now.launch[0] * passes
    hidden = np.divide(then.launch, expected, out=np.ones_like(passes), where=expected > 0)
    ratio = 1 + share * (passes * np.minimum(hidden, 1) - 1)
    more = np.maximum(then.launch - expected, 0)
    return np.outer(ratio, idle) + more[:, None], ratio, more


def _bases(ratio: Array, modelled: Flags | None = None) -> list[str]:
    new = np.zeros(len(ratio), dtype=bool) if modelled is None else modelled
    words = np.where(new, "modelled", np.where(ratio == 1, "measured", "scaled"))
    return [str(word) for word in words]
