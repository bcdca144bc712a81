"""How the parts of measured steps change with the layout: ratios of the closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.analyze._perfmodel.layouts.columns import Array

COMMUNICATION = ("tensor", "context", "expert", "pipeline", "data")
PARTS = ("compute", "communication", "bubble", "other", "idle")
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Scaled:
    """Parts of every step in every configuration, and how sure they are."""

    parts: dict[str, Array]
    """Per part an array (configurations, steps) [ns]."""
    overlap: Array
    bases: dict[str, list[str]]
    """Per part its basis in every configuration."""
    added: dict[str, Flags]
    """Per kind of communication where it is in the configuration and not in the trace."""

    @property
    def total(self) -> Array:
        """Time of the steps [ns]."""
        return np.asarray(np.sum(list(self.parts.values()), axis=0), dtype=np.float64)


@dataclass(frozen=True)
class Forecast:
    """What the closed form says of one configuration, or of many [ns]."""

    parts: dict[str, Array]
    passes: Array
    """Layers of a stage x micro-batches: how often the host launches a layer."""
    fixed: float
    """Of the part ``other``: what does not depend on the configuration."""

    @classmethod
    def of(cls, predicted: pd.DataFrame, fixed_s: float) -> Forecast:
        """Read it from a table of predicted iterations."""
        names = ("compute", "bubble", *COMMUNICATION, "optimizer", "other")
        each = {name: predicted[f"{name}_ns"].to_numpy(dtype=np.float64) for name in names}
        rounds = predicted["global_batch_count"] / (
            predicted["data_parallel"] * predicted["micro_batch_count"]
        )
        layers = np.ceil(predicted["layer_count"] / predicted["pipeline_parallel"])
        return cls(
            each,
            (layers * rounds).to_numpy(dtype=np.float64),
            float(np.floor(1e9 * fixed_s)),
        )

    @property
    def work(self) -> Array:
        """Matrix products, attention, element-wise work and the update: what computes."""
        return self.parts["compute"] + self.parts["optimizer"]

    @property
    def launch(self) -> Array:
        """Launches that the GPU waits for."""
        return np.maximum(self.parts["other"] - self.fixed, 0)


def scaled(steps: pd.DataFrame, now: Forecast, then: Forecast) -> Scaled:
    """Scale every step to every configuration.

    Parameters
    ----------
    steps
        Columns of :data:`workbench.tables.STEP_BREAKDOWN`, one row per step.
    now, then
        The closed form of the traced configuration, and of those asked for.
    """
    seen = {name: steps[name].to_numpy(dtype=np.float64) for name in steps.columns}
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
    return [str(each) for each in words]
