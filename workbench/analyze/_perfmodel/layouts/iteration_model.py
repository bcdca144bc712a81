"""A model of iteration times: the closed form, and how far off it was on public jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench import datasets
from workbench.analyze._perfmodel.layouts.closed_form import (
    PARTS,
    Array,
    Columns,
    Constants,
    columns,
    flops,
    parts,
    total_bytes,
)
from workbench.analyze._perfmodel.layouts.layout import (
    COUNTS,
    LAYOUT_COLUMNS,
    Layout,
    configurations,
)
from workbench.analyze._perfmodel.layouts.model_shape import GpuType, model_shape
from workbench.errors import PerformanceModelError
from workbench.tables import CONFIGURATIONS, ITERATIONS, PREDICTED_ITERATIONS

_SOFT = 0.05  # beyond 5 % a row counts less than by its square
_PULL = 0.03  # how much a constant's distance from the assumed one weighs against a row
_REACH = 7.0  # no constant moves further than by e to this
# How far, as a factor, each may lie from what it is assumed to be before the data must insist.
_SPREAD = np.array([0.3, 2, 2, 1, 1, 1, 2, 1, 1, 2, 0.5, 1])
# The largest logarithm of each: nothing gives more than its data sheet says.
_TOP = np.array([0.0 if field.name.endswith("_share") else np.inf for field in fields(Constants)])


@dataclass(frozen=True)
class IterationModel:
    """Result of :func:`assumed_model` and :func:`calibrated_to`.

    Attributes
    ----------
    constants
        The constants of the closed form.
    doubt
        What speaks against every prediction of this model; empty if nothing does.
    coverage_share
        Share of new rows that the intervals are made to hold.
    release
        Release of the software that is predicted; empty if none was named.
    """

    constants: Constants
    doubt: str = ""
    coverage_share: float = 0.9
    release: str = ""
    _trees: Any = field(default=None, repr=False)
    _hull: Hull | None = field(default=None, repr=False)
    _half_width: float = math.nan  # of the interval, as a logarithm
    _half_width_outside: float = math.nan

    def predict(
        self, configurations: pd.DataFrame, *, gpus: Mapping[str, GpuType] | None = None
    ) -> pd.DataFrame:
        """Predict iteration times, their parts, utilization and memory.

        Parameters
        ----------
        configurations
            Table :data:`workbench.tables.CONFIGURATIONS`.
        gpus
            Kinds of GPUs by name that the package does not know, or knows otherwise.

        Returns
        -------
        pandas.DataFrame
            Table :data:`workbench.tables.PREDICTED_ITERATIONS`, one row per configuration.
            The parts add up to ``analytic_ns``. Rows outside what was measured say so in
            ``doubt`` and have wider intervals.
        """
        c = columns(configurations, gpus)
        if configurations.empty:
            return PREDICTED_ITERATIONS.empty()
        seconds = parts(c, self.constants)
        components = {name: np.rint(1e9 * seconds[name]).astype(np.int64) for name in seconds}
        analytic = np.sum(list(components.values()), axis=0)
        outside = self._outside(configurations)
        learned = np.exp(self._trees.predict(features(c))) if self._trees is not None else 1.0
        if self.release:
            factors = _factors(self.constants, self.release)
            classes_of = zip(c.is_routed.tolist(), c.is_narrow.tolist(), strict=True)
            learned = learned * np.array([factors.get(kind, 1.0) for kind in classes_of])
        predicted = analytic * learned
        model, hardware = flops(c, causal=False)
        budget = c.n * c.peak * predicted / 1e9
        memory = total_bytes(c)
        # A few times, not once per row: there are eight classes.
        was_used = configurations["gpu"].isin(public_iterations()["gpu"]).tolist()
        kinds = list(zip(c.is_routed.tolist(), c.is_narrow.tolist(), was_used, strict=True))
        classes = {kind: self._error_class(*kind) for kind in set(kinds)}
        table = configurations[list(CONFIGURATIONS.columns)].assign(
            dur_ns=np.rint(predicted).astype(np.int64),
            **self._interval(predicted, outside),
            analytic_ns=analytic,
            mfu_share=np.minimum(model / budget, 1),
            hfu_share=np.minimum(hardware / budget, 1),
            memory_bytes=np.rint(memory).astype(np.int64),
            fits=memory <= c.capacity,
            doubt=["; ".join(filter(None, [self.doubt, *words])) for words in outside],
            error_class=[classes[kind] for kind in kinds],
            **{f"{name}_ns": values for name, values in components.items()},
            **self._bases(configurations),
        )
        return PREDICTED_ITERATIONS.of(table.reset_index(drop=True))

    def _printed_error(self, is_routed: bool, is_narrow: bool) -> float:
        if math.isfinite(self._half_width):
            return math.expm1(self._half_width)
        _, errors = _unseen(Constants(), (is_routed, is_narrow), self.release)
        return float(errors.quantile(0.9)) if len(errors) else 0.0

    def _error_class(self, is_routed: bool, is_narrow: bool, was_used: bool) -> str:
        if math.isfinite(self._half_width):
            width = math.expm1(self._half_width)
            return f"fitted: {self.coverage_share:.0%} of the rows held out were within {width:.0%}"
        public = error_class(Constants(), (is_routed, is_narrow), self.release)
        public += "" if was_used else "; none of them ran on this kind of GPU"
        return public if self._hull is None else f"{self.doubt}; before that: {public}"

    def _outside(self, configurations: pd.DataFrame) -> list[list[str]]:
        if self._hull is None:
            return [[] for _ in range(len(configurations))]
        return self._hull.outside(configurations)

    def _interval(self, predicted: Array, outside: list[list[str]]) -> dict[str, Any]:
        if not math.isfinite(self._half_width):
            unknown = pd.Series(pd.NA, index=range(len(predicted)), dtype="Int64")
            return {"low_ns": unknown.to_numpy(), "high_ns": unknown.to_numpy()}
        far = np.array([bool(words) for words in outside])
        width = np.where(far, self._half_width_outside, self._half_width)
        ends = {"low_ns": predicted * np.exp(-width), "high_ns": predicted * np.exp(width)}
        return {name: np.rint(values).astype(np.int64) for name, values in ends.items()}

    def _bases(self, configurations: pd.DataFrame) -> dict[str, Any]:
        hull = self._hull
        modelled = ["modelled"] * len(configurations)
        return {
            f"{name}_basis": modelled if hull is None else hull.bases(name, configurations)
            for name in PARTS
        }


def assumed_model(*, release: str | None = None) -> IterationModel:
    """Return the closed form with constants that are assumed, not fitted.

    Parameters
    ----------
    release
        Release of the NeMo container whose software will run, e.g. ``"26.08"``: times are
        multiplied by a factor for it, fitted on half of its public jobs; ``error_class`` tells how
        far off the other half was. Without one, times are those of software up to 26.04.

    Returns
    -------
    IterationModel
        Predicts without any measurement, without intervals, and says so in ``doubt``; a
        point to calibrate from where nothing alike was measured.

    Raises
    ------
    PerformanceModelError
        If no public job tells of ``release``.

    Notes
    -----
    Per layer and micro-batch of T = b s / c tokens, on t ranks:

    * work ``(3 + [full]) (2 T P + 4 T s q) / t`` FLOPs over
      ``peak x matrix_share / (1 + half_width t/h) / (1 + half_tokens/T)``; flash attention
      halves the scores' work, which is causal, and computes them again: half a pass more;
    * element-wise traffic ``(5 + 2 [full]) ((18 h + 4 f) T + 5 b a s^2) / t`` bytes over
      ``memory_share`` of the memory's bandwidth: forward writes and reads what it stores,
      backward reads it, writes and reads its gradient; flash attention stores no scores;
    * all-reduces, ``4 + 2 [full]`` of ``2 (t-1)/t x 2 T h`` bytes over ``node_share`` of the
      links in a node; a ring over several leaves each by the adapters of all its ranks there,
      ``network_share`` of them, if these are slower;
    * of layers that look back at a window only, the scores in it; latent attention has the products
      that expand its keys and values; where only some layers have experts, the stage that has most
      of them decides;
    * with experts, the feed-forward products at ``expert_share`` of that share, for the
      narrower of hidden and expert width and for the rows that one expert gets; copies of tokens
      sorted and back, ``16 k h T / t`` bytes; four exchanges of ``2 k T h / t`` bytes per token and
      expert, nothing of it hidden: over the links of a node, or, beyond, once to each other node
      that has one of its experts, whichever is slower; launches of ``launch_s + routing_s``;
    * with context parallelism, keys and values are gathered in every pass and their
      gradients scattered, nothing of it hidden; a ring that hides it is not modelled;
    * the root of the squares of their sum and ``launch_s``, as launches overlap GPU work.

    A stage has L/p layers; rounds m = B/(d b). Iteration: ``m`` stages and heads, a bubble of
    ``(p - 1)/v`` stages, ``2 (v m + p - 2)`` exchanges of ``2 T h / t`` bytes between stages,
    gradients of all ranks that hold the same parameters (context-parallel ones, too) over
    ``data_share``, 20 bytes per parameter over ``optimizer_share`` of memory, and ``fixed_s``.
    Sharding and selective recomputation follow the same constants. Attention and the output layer
    run at the 16-bit peak of the GPU type. ``error_class`` tells how far off such predictions were
    on the public jobs of ``published/iteration_megatron_bridge.csv``, of mixtures of experts
    without the models that were in sight when their constants were chosen.

    References
    ----------
    arXiv:2104.04473, sections 2.2 and 4.1; arXiv:2205.05198, section 4; arXiv:2307.08691,
    section 4.1 (flash attention).
    """
    releases = sorted(set(_release_of(public_iterations())))
    if release is not None and release not in releases:
        msg = f"release={release!r}: no public job ran it; there are {releases}"
        raise PerformanceModelError(msg)
    return IterationModel(Constants(), "constants assumed, not fitted", release=release or "")


def calibrated_to(
    model: IterationModel, measured: pd.DataFrame, *, gpus: Mapping[str, GpuType] | None = None
) -> IterationModel:
    """Move a model to other hardware or software by what was measured there.

    Every constant stays as near to the model's as the given rows allow; the trees are
    dropped, as they belong to the rows they were grown on.

    Parameters
    ----------
    model
        Model to start from; :func:`assumed_model` where the software differs.
    measured
        Table :data:`workbench.tables.ITERATIONS`; one row is enough. Columns named as the
        parts of a prediction (``compute_ns``, ...) are matched, too, if there are any.
    gpus
        Kinds of GPUs by name that the package does not know, or knows otherwise.

    Returns
    -------
    IterationModel
        Without intervals: few points tell no spread.

    Raises
    ------
    PerformanceModelError
        If there is no row, a row contradicts itself, or the rows are explained neither to within
        5 % nor to within the error that predictions of their class print (nine of ten).

    Notes
    -----
    Minimises the squares of the logarithms of predicted over measured, and of how far each
    constant moves against how well it is known (a factor of e^0.3 for the share of the peak,
    up to e^2 for launches), which weighs 3 % per such step.
    """
    ITERATIONS.check(measured)
    if measured.empty:
        msg = "there is no row to calibrate to; pass at least one measured iteration"
        raise PerformanceModelError(msg)
    refuse_contradictions(measured)
    constants = constants_of(measured, gpus, start=model.constants)
    seconds = measured["dur_ns"].to_numpy(dtype=np.float64) / 1e9
    left = np.abs(np.log(seconds_of(columns(measured, gpus), constants) / seconds))
    c = columns(measured, gpus)
    printed = [model._printed_error(*kind) for kind in zip(c.is_routed, c.is_narrow, strict=True)]
    # Beyond this the soft loss has let rows go as outliers.
    is_soft = bool(left.mean() > _SOFT)
    if is_soft and (np.expm1(left) > printed).any():
        msg = f"the closed form cannot explain {measured['source'].iloc[int(left.argmax())]}: it "
        msg += f"is {np.expm1(left.max()):.0%} off after calibration; check GPU type, batch, layout"
        raise PerformanceModelError(msg)
    doubt = f"calibrated on {len(measured)} row{'s' if len(measured) > 1 else ''} only"
    doubt += f", which it still misses by up to {np.expm1(left.max()):.0%}" if is_soft else ""
    return IterationModel(
        constants,
        doubt=doubt,
        coverage_share=model.coverage_share,
        _hull=model._hull.with_kinds(measured) if model._hull else Hull.around(measured),
    )


def refuse_contradictions(measured: pd.DataFrame) -> None:
    wrong = measured["doubt"].str.contains("is not the number|does not divide by DP", regex=True)
    if wrong.any():
        first = measured[wrong].iloc[0]
        msg = f"{int(wrong.sum())} rows contradict themselves, the first is {first['source']}: "
        msg += f"{first['doubt']}; leave them out with measured[measured['doubt'] == '']"
        raise PerformanceModelError(msg)


def seconds_of(c: Columns, constants: Constants) -> Array:
    return np.asarray(np.sum(list(parts(c, constants).values()), axis=0), dtype=np.float64)


def constants_of(
    measured: pd.DataFrame, gpus: Mapping[str, GpuType] | None, *, start: Constants
) -> Constants:
    """Fit the logarithms, each drawn towards where it starts."""
    from scipy.optimize import least_squares

    c = columns(measured, gpus)
    logarithms = np.log(measured["dur_ns"].to_numpy(dtype=np.float64) / 1e9)
    origin = start.logarithms()
    measured_parts = {
        name: np.log(measured[f"{name}_ns"].to_numpy(dtype=np.float64) / 1e9)
        for name in PARTS
        if f"{name}_ns" in measured
    }

    def errors(vector: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        predicted = parts(c, Constants.from_logarithms(vector))
        missed = [np.log(np.sum(list(predicted.values()), axis=0)) - logarithms]
        # Measured parts pull on the constants of their own part, which a total cannot tell apart.
        missed += [np.log(predicted[name]) - truth for name, truth in measured_parts.items()]
        return np.concatenate([*missed, _PULL * (vector - origin) / _SPREAD])

    # No share of a peak above 1, unless the start already is.
    bounds = (origin - _REACH, np.clip(_TOP, origin, origin + _REACH))
    fit = least_squares(errors, origin, loss="soft_l1", f_scale=_SOFT, bounds=bounds)
    return Constants.from_logarithms(fit.x)


_RANGES = {
    "layer_count": "layers", "hidden": "hidden", "gpu_count": "GPUs", "tensor_parallel": "TP",
    "context_parallel": "CP", "pipeline_parallel": "PP", "data_parallel": "DP",
    "expert_parallel": "EP", "chunk_count": "chunks", "micro_batch_count": "micro-batch",
    "global_batch_count": "global batch", "sequence_tokens": "sequence",
}  # fmt: skip
_KINDS = {"gpu": "GPU", "recompute": "recompute", "sharding": "sharding"}
_KINDS |= {"has_flash_attention": "flash attention"}
# A part's constant is fitted only if what causes the part was there.
_NEEDS = {
    "bubble": "pipeline_parallel", "tensor": "tensor_parallel", "context": "context_parallel",
    "expert": "expert_parallel", "pipeline": "pipeline_parallel", "data": "data_parallel",
}  # fmt: skip


@dataclass(frozen=True)
class Hull:
    """Ranges and kinds of the rows a model was fitted to."""

    ranges: dict[str, tuple[int, int]]
    kinds: dict[str, frozenset[object]]

    @classmethod
    def around(cls, measured: pd.DataFrame) -> Hull:
        return cls(
            {name: (int(measured[name].min()), int(measured[name].max())) for name in _RANGES},
            {name: frozenset(measured[name].tolist()) for name in _KINDS},
        )

    def with_kinds(self, measured: pd.DataFrame) -> Hull:
        """Add the kinds of another table; its numbers are one point and widen nothing."""
        kinds = {name: values | set(measured[name].tolist()) for name, values in self.kinds.items()}
        return replace(self, kinds=kinds)

    def outside(self, configurations: pd.DataFrame) -> list[list[str]]:
        reasons: list[list[str]] = [[] for _ in range(len(configurations))]
        for name, word in _RANGES.items():
            low, high = self.ranges[name]
            span = f"{low}" if low == high else f"{low} to {high}"
            for row, value in enumerate(configurations[name].tolist()):
                if not low <= value <= high:
                    reasons[row].append(f"{word} {value} never measured (only {span})")
        for name, word in _KINDS.items():
            for row, value in enumerate(configurations[name].tolist()):
                if value not in self.kinds[name]:
                    reasons[row].append(f"{word} {value} never measured")
        return reasons

    def bases(self, name: str, configurations: pd.DataFrame) -> list[str]:
        """Return for every row whether a part rests on fitted constants."""
        column = _NEEDS.get(name)
        seen = column is None or self.ranges[column][1] > 1
        is_seen = configurations["gpu"].isin(self.kinds["gpu"])
        if name == "data":
            is_seen &= configurations["sharding"].isin(self.kinds["sharding"])
        return ["scaled" if seen and is_known else "modelled" for is_known in is_seen]


def features(c: Columns) -> npt.NDArray[np.float64]:
    inputs: list[Array] = [
        c.t, c.c, c.p, c.d, c.v, c.b, c.h, c.layers, c.s, c.n, c.gb, c.rounds,
        1 + (c.p - 1) / (c.v * c.rounds), c.h / c.t, c.tokens, c.layers / c.p,
    ]  # fmt: skip
    return np.log(np.column_stack(inputs))


_FILE = "iteration_megatron_bridge.csv"
# Their recipes: fused attention, sequence parallelism; states are sharded over the replicas.
_RECIPE: dict[str, Any] = {"sequence_parallel": True, "flash_attention": True}


@cache
def public_iterations() -> pd.DataFrame:
    """Return the jobs whose throughput NVIDIA prints, as table ITERATIONS.

    Bundled as ``published/iteration_megatron_bridge.csv``: dense models and mixtures of
    experts on five kinds of GPUs, several releases of the software.
    """
    printed = pd.read_csv(datasets.path("published") / _FILE)
    jobs = []
    for row in printed.to_dict("records"):
        sizes: dict[str, Any] = {name: int(row[LAYOUT_COLUMNS[name]]) for name in COUNTS}
        layout = Layout(**sizes, sharding=row["sharding"], **_RECIPE)
        jobs.append(configurations(model_shape(row["model"]), layout, gpu=row["gpu"]))
    table = pd.concat(jobs, ignore_index=True)
    # What is printed is tokens per second and GPU; an iteration is one global batch.
    tokens = table["global_batch_count"] * table["sequence_tokens"]
    rate = printed["tokens_per_s_per_gpu"] * table["gpu_count"]
    table = table.assign(
        dur_ns=(1e9 * tokens / rate).round().astype("int64"), source=printed["source"], doubt=""
    )
    return ITERATIONS.of(table)


# Models whose rows were in sight when the constants of experts were chosen.
_IN_SIGHT = ("Qwen 3 30B-A3B", "GPT OSS 120B")
_Class = tuple[bool, bool]  # with routed experts, in 4 bits


def _release_of(jobs: pd.DataFrame) -> pd.Series:
    return jobs["source"].str.extract(r"NeMo ([\d.]+) container", expand=False)


@cache
def _public_ratios(constants: Constants) -> dict[_Class, pd.DataFrame]:
    """Return measured by predicted time of the public jobs, and their release, by class."""
    rows = public_iterations()
    c = columns(rows)
    seconds = np.sum(list(parts(c, constants).values()), axis=0)
    told = pd.DataFrame({"model": rows["model"], "release": _release_of(rows),
                         "ratio": rows["dur_ns"].to_numpy() / 1e9 / seconds})  # fmt: skip
    kinds = set(zip(c.is_routed.tolist(), c.is_narrow.tolist(), strict=True))
    return {kind: told[(c.is_routed == kind[0]) & (c.is_narrow == kind[1])] for kind in kinds}


def _halves(jobs: pd.DataFrame, release: str) -> tuple[pd.Series, pd.Series]:
    """Divide the jobs of a release: every second row had no part in its factor."""
    ratios = jobs.loc[jobs["release"] == release, "ratio"]
    return ratios.iloc[::2], ratios.iloc[1::2]


def _factors(constants: Constants, release: str) -> dict[_Class, float]:
    halves = {kind: _halves(jobs, release) for kind, jobs in _public_ratios(constants).items()}
    # One row of the other half could say anything.
    return {kind: float(half.median()) for kind, (half, rest) in halves.items() if len(rest) > 1}


def _unseen(constants: Constants, kind: _Class, release: str) -> tuple[str, pd.Series]:
    """Return which public jobs had no part in a prediction, and how far each was off."""
    jobs = _public_ratios(constants).get(kind)
    if jobs is None:
        return "no public job tells how far off", pd.Series(dtype="float64")
    factor = _factors(constants, release).get(kind)
    if factor is not None:
        fitted, rest = _halves(jobs, release)
        words = f"NeMo {release}, factor {factor:.2f} fitted on {len(fitted)} of its public jobs: "
        return f"{words}{len(rest)} others", (factor / rest - 1).abs()
    ratios = jobs.loc[~(jobs["model"].isin(_IN_SIGHT) & kind[0]), "ratio"]
    words = f"no public job of NeMo {release}, " if release else ""
    return f"{words}constants not fitted: {len(ratios)} public jobs", (1 / ratios - 1).abs()


@cache
def error_class(constants: Constants, kind: _Class, release: str = "") -> str:
    """Describe how far off a closed form was on public rows of a class that had no part in it."""
    is_routed, is_narrow = kind
    told = "mixtures of experts" if is_routed else "dense models"
    # Only a part of the products of such jobs is that narrow, which part is not printed.
    told += " in 4 bits" if is_narrow else ""
    words, errors = _unseen(constants, kind, release)
    told += f"{', ' if len(errors) else ': '}{words}"
    if not len(errors):
        return told
    middle, most = errors.quantile([0.5, 0.9])
    told += f" were off by {middle:.0%} in the median, nine of ten by at most {most:.0%}"
    newest = _public_ratios(constants)[kind]["release"].max()
    moved = 1.0 if release else _factors(constants, newest).get(kind, 1.0)
    if moved < 1 - _MOVED_SHARE:
        told += f"; NeMo {newest} took {moved:.2f} of the time: assumed_model(release={newest!r})"
    return told


_MOVED_SHARE = 0.1
