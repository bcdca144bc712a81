"""A campaign made ready: the golden run, the changes, the engine; and its chunks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from workbench.errors import InjectionError
from workbench.inject._judge import BENIGN, DUE, MASKED, SDC, Golden, Judge
from workbench.inject._model import (
    batches,
    golden_outputs,
    in_evaluation,
    refuse_other_device,
    torch,
    whole_number,
)
from workbench.inject.designs.changes import Changes, unchecked_changes
from workbench.inject.designs.population import (
    activations_hit,
    is_output,
    parameters,
    refuse_other_weights,
    verified,
)
from workbench.inject.engines.fast_engine import FastEngine
from workbench.inject.engines.flip_and_run import FlipAndRun, largest
from workbench.inject.protections.detectors import Alarms, AnyDetector, Mitigation
from workbench.tables import OUTCOME_NAMES, OUTCOMES, PARAMETERS, TRIALS

# What is lost at most when a campaign is killed, and how long one may look how fast it is.
_CHUNK_S = 30.0
_PROBE_S = 0.3
_COUNTED = ("masked", "benign", "sdc", "due", "beneficial")


@dataclass(eq=False)
class Work:
    """Everything that stays the same from the first chunk to the last."""

    model: Any
    inputs: Any
    judge: Judge
    settings: CampaignSettings
    faults: pd.DataFrame
    parameters: pd.DataFrame
    golden: Golden
    changes: Changes
    engine: FlipAndRun | FastEngine
    alarms: Alarms
    golden_metric: float | None
    notes: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The campaign's name."""
        return self.settings.name or type(self.model).__name__

    @property
    def chunk_size(self) -> int:
        """Experiments per chunk: as given, or about half a minute of work."""
        if self.settings.chunk_size is not None:
            return self.settings.chunk_size
        most = self.engine.chunk_most
        if self.settings.folder is None and len(self.exp_ids) <= most:
            return most
        return max(1, min(most, int(_CHUNK_S / self._time_s())))

    def _time_s(self) -> float:
        """Measure what an experiment takes, on a few spread over the campaign."""
        spent, count = 0.0, len(self.exp_ids)
        for sample in (1, 10, 100):
            wanted = np.linspace(0, count - 1, min(sample, count)).astype(np.int64)
            sampled = self.changes.only(np.unique(wanted))
            # What takes long can be the engine looking at a parameter for the first time.
            for _ in range(2):
                spent = self._probed(sampled)
                if spent < _PROBE_S:
                    break
            if spent >= _PROBE_S or sample >= count:
                break
        return max(spent / sampled.experiment_count, 1e-9)

    def _probed(self, sampled: Changes) -> float:
        begun = time.perf_counter()
        with self.in_place():
            self.engine.counts(sampled)
            self.alarms.take()
        return time.perf_counter() - begun

    @cached_property
    def exp_ids(self) -> Any:
        """The experiments, in the order they are run."""
        return np.unique(self.faults["exp_id"].to_numpy())

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have protections and detectors on the model, and the model at rest."""
        with _protected_model(self.model, self.settings), self.alarms.attached():
            yield

    def chunk(self, start: int, stop: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Run some experiments: table OUTCOMES, and table TRIALS if it is wanted."""
        span = self.changes.part(start, stop)
        begun = time.perf_counter()
        with self.in_place():
            if needs_every_run(self.judge, self.settings):
                columns, trials = self._watched(span, start)
            else:
                counts, trials = self.engine.counts(span), []
                columns = {f"{name}_count": getattr(counts, name) for name in _COUNTED}
                columns |= {"input_count": len(self.golden), "max_abs_delta": counts.max_abs_delta}
        spent = (time.perf_counter() - begun) / max(stop - start, 1)
        frame = pd.DataFrame({"metric_name": None, "metric_value": None} | columns).assign(
            campaign_id=self.name, exp_id=self.exp_ids[start:stop], time_s=spent, error=None
        )
        if self.golden.is_right is None:
            frame["beneficial_count"] = pd.NA
        names = [name for name in frame if name not in OUTCOMES.columns]
        outcomes = pd.concat(
            [OUTCOMES.cast(frame.reindex(columns=list(OUTCOMES.columns))),
             frame[names].astype("Int64")], axis=1
        )  # fmt: skip
        kept = pd.concat(trials, ignore_index=True) if trials else TRIALS.empty()
        return OUTCOMES.check(outcomes), TRIALS.of(kept)

    def _watched(self, span: Changes, start: int) -> tuple[dict[str, Any], list[pd.DataFrame]]:
        assert isinstance(self.engine, FlipAndRun)
        metric, labels = self.settings.metric, self.settings.labels
        drop = MetricDrop(self.judge, self.golden_metric)
        trials = Trials(self.golden, self.name) if self.settings.keep_trials else None
        rows, kept = [], []
        for run in self.engine.runs(span):
            value = None
            if metric is not None and run.outputs is not None:
                value = _measured(metric, run.outputs, labels)
            row = drop.row(run, value) if self.judge.criterion == "metric_drop" else trial_row(run)
            alarms = {f"detected_{name}_count": n for name, n in self.alarms.take().items()}
            rows.append(row | alarms | {"metric_name": metric_name(metric), "metric_value": value})
            if trials is not None:
                kept.append(trials.rows(run, int(self.exp_ids[start + run.experiment])))
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}
        return columns, kept


def _measured(metric: Any, outputs: Any, labels: Any) -> float | None:
    """Return the quality of outputs; None where a metric takes none that are not finite."""
    try:
        return float(metric(outputs, labels))
    except (ValueError, ArithmeticError):
        # An AUC refuses NaN. Of outputs that are finite, the error is the metric's own.
        if bool(torch().isfinite(outputs).all()):
            raise
        return None


def trial_row(run: Any) -> dict[str, Any]:
    """Count how the inputs of one run ended."""
    codes = run.codes.cpu().numpy()
    ended = np.bincount(codes, minlength=len(_COUNTED) - 1).tolist()
    ended.append(int(run.is_beneficial.sum()))
    counts = {f"{name}_count": n for name, n in zip(_COUNTED, ended, strict=True)}
    return {"input_count": len(codes), **counts, "max_abs_delta": largest(run.delta)}


def metric_name(metric: Any) -> str | None:
    """Return the name of a metric function."""
    return None if metric is None else str(getattr(metric, "__name__", type(metric).__name__))


@contextmanager
def _protected_model(model: Any, settings: CampaignSettings) -> Iterator[None]:
    with ExitStack() as undo, in_evaluation(model):
        for mitigation in settings.mitigations:
            undo.callback(mitigation.attach(model))
        yield


def prepared(
    model: Any, inputs: Any, faults: pd.DataFrame, judge: Judge, settings: CampaignSettings
) -> Work:
    """Check everything, run without faults, and choose the engine."""
    _refuse_types(model, faults, judge)
    population = parameters(model)
    calls = batches(inputs)
    refuse_other_device(model, calls)
    params = faults.get("param", pd.Series()).dropna().unique()
    hits = [str(name) for name in params if is_output(name)]
    if hits:
        activations = activations_hit(model, inputs, hits)
        population = pd.concat([population, activations], ignore_index=True)
    faults = verified(model, faults, population if hits else None)
    if faults.empty:
        msg = "faults: the table has no rows; there is nothing to inject"
        raise InjectionError(msg)
    refuse_other_weights(model, faults)
    alarms = Alarms(model, settings.detectors)
    notes: list[tuple[str, str, int]] = []
    with _protected_model(model, settings), alarms.attached():
        outputs = golden_outputs(model, calls)
        golden = judge.golden(outputs, settings.labels)
        _refuse_labels(judge, settings, len(golden))
        notes += _false_alarms(model, calls, alarms)
    changes = unchecked_changes(model, faults)
    for mitigation in settings.mitigations:
        changes = mitigation.hardened(changes)
    # The fast engine never runs the whole model, so nothing can look at its outputs.
    is_plain = bool(hits) or needs_every_run(judge, settings)
    is_plain |= any(mitigation.needs_the_model_to_run for mitigation in settings.mitigations)
    with in_evaluation(model):
        engine = _engine(model, inputs, golden, settings, is_plain=is_plain, alarms=alarms)
    return Work(
        model, inputs, judge, settings, faults, as_hit(population, faults), golden, changes,
        engine, alarms, _golden_metric(golden, settings), notes,
    )  # fmt: skip


def _refuse_types(model: Any, faults: Any, judge: Any) -> None:
    """Name the argument that is something else; they are easily swapped."""
    for name, value, wanted in (
        ("model", model, torch().nn.Module),
        ("faults", faults, pd.DataFrame),
        ("judge", judge, Judge),
    ):
        if not isinstance(value, wanted):
            msg = f"{name} must be a {wanted.__name__}, not a {type(value).__name__}"
            raise InjectionError(msg)


def _refuse_labels(judge: Judge, settings: CampaignSettings, count: int) -> None:
    labels = settings.labels
    if labels is not None and hasattr(labels, "__len__") and len(labels) != count:
        msg = f"labels: {len(labels)} are given for {count} inputs"
        raise InjectionError(msg)
    if judge.criterion == "metric_drop" and settings.metric is None:
        msg = "metric: criterion 'metric_drop' needs a function of (outputs, labels)"
        raise InjectionError(msg)


def _golden_metric(golden: Golden, settings: CampaignSettings) -> float | None:
    """Return the quality without faults: the metric requested, or the share of right answers."""
    if settings.metric is not None:
        value = settings.metric(golden.outputs, settings.labels)
        try:
            is_number = math.isfinite(float(value))
        except (TypeError, ValueError):
            is_number = False
        if not is_number:
            msg = f"metric: gives {value!r} for the run without faults; one finite number is needed"
            raise InjectionError(msg)
        return float(value)
    return None if golden.is_right is None else float(golden.is_right.double().mean())


def _false_alarms(model: Any, calls: Any, alarms: Alarms) -> list[tuple[str, str, int]]:
    for batch in calls:
        alarms(batch, model(*batch.args, **batch.kwargs))
    return [
        ("noted", f"detector {name!r}: inputs with an alarm in the run without faults", count)
        for name, count in alarms.take().items()
    ]


def as_hit(population: pd.DataFrame, faults: pd.DataFrame) -> pd.DataFrame:
    """Return the parameters with the components under which the faults were drawn."""
    drawn = faults.dropna(subset=["param", "component"]).drop_duplicates("param")
    names = dict(zip(drawn["param"].astype(str), drawn["component"].astype(str), strict=True))
    own = zip(population["param"], population["component"], strict=True)
    return PARAMETERS.cast(
        population.assign(component=[names.get(param, component) for param, component in own])
    )


def needs_every_run(judge: Judge, settings: CampaignSettings) -> bool:
    """Return whether every run must be looked at, not only counted."""
    return bool(
        settings.keep_trials
        or settings.detectors
        or settings.metric is not None
        or judge.criterion == "metric_drop"
    )


def _engine(
    model: Any,
    inputs: Any,
    golden: Golden,
    settings: CampaignSettings,
    *,
    is_plain: bool,
    alarms: Alarms,
) -> FlipAndRun | FastEngine:
    """Choose the engine; ``is_plain`` where only the plain one can do it."""
    wanted = settings.engine
    if wanted == "fast" and is_plain:
        msg = (
            "engine: 'fast' judges faults in parameters without running the model, so it gives no "
            "trials, metrics, detectors, activation faults or clips; use 'flip_and_run' or 'auto'"
        )
        raise InjectionError(msg)
    if wanted != "flip_and_run" and not is_plain:
        try:
            # It refuses layers that it cannot work out; the plain engine takes any model.
            return FastEngine(model, _arguments(inputs), golden)
        except InjectionError:
            if wanted == "fast":
                raise
    watch = alarms if settings.detectors else None
    return FlipAndRun(model, inputs, golden, watch=watch)


def _arguments(inputs: Any) -> tuple[Any, ...]:
    """Return the arguments of the model, for an engine that takes one batch."""
    calls = batches(inputs)
    if len(calls) > 1 or calls[0].kwargs:
        msg = (
            "engine: 'fast' takes one batch of unnamed arguments; join the batches, or use "
            "'flip_and_run'"
        )
        raise InjectionError(msg)
    return calls[0].args


EngineName = Literal["auto", "flip_and_run", "fast"]


@dataclass(frozen=True)
class CampaignSettings:
    """How a campaign is run.

    None of it changes which inputs end as ``sdc`` or ``due``, but for ``mitigation``, and
    ``metric`` where the judge's criterion is ``"metric_drop"``. ``engine`` decides which of
    the others are proven to be ``masked`` (the campaign's ``masked_rule``), and ``labels``
    which count as beneficial.

    Parameters
    ----------
    name
        Of the campaign, the key of its tables; the model's class if dropped.
    dataset
        What the inputs are, in words.
    is_synthetic
        Whether they were generated; None: not known.
    labels
        The right answer per input, so that faults that correct an answer are counted.
    metric
        Function of (outputs, labels) that gives one number, larger is better; measured
        for every experiment. ``"metric_drop"`` judges by it.
    engine
        ``"flip_and_run"`` takes everything; ``"fast"`` re-computes only what a fault
        changes; ``"auto"`` is fast where it can.
    folder
        Where chunks that are done are kept. The same call with the same folder goes on
        where it was stopped. One process at a time.
    chunk_size
        Experiments between two visits to the folder; at most so many are lost. Dropped:
        about half a minute of work, measured on a few experiments, and at most 500, or
        20,000 of the fast engine. Outcomes do not depend on it.
    keep_trials
        Whether every input of every experiment becomes a row of ``trials``.
    progress
        Whether slow campaigns show a progress bar.
    detectors
        Detectors by name, each a function of (model, outputs, inputs) or a
        :class:`Detector`; inputs with an alarm become ``detected_<name>_count``.
    mitigation
        Protection in place, or several, from :func:`weight_clamp`,
        :func:`activation_clip` or :func:`protected`.

    Raises
    ------
    InjectionError
        If the engine is unknown or the chunk size is not a whole number from 1.
    """

    name: str | None = None
    dataset: str | None = None
    is_synthetic: bool | None = None
    labels: Any = None
    metric: Callable[[Any, Any], float] | None = None
    engine: EngineName = "auto"
    folder: str | Path | None = None
    chunk_size: int | None = None
    keep_trials: bool = False
    progress: bool = True
    detectors: Mapping[str, AnyDetector] = field(default_factory=dict)
    mitigation: Mitigation | Sequence[Mitigation] = ()

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            msg = f"engine={self.engine!r} is not one of {get_args(EngineName)}"
            raise InjectionError(msg)
        if self.chunk_size is not None:
            chunk_size = whole_number("chunk_size", self.chunk_size, least=1)
            object.__setattr__(self, "chunk_size", chunk_size)

    @property
    def mitigations(self) -> tuple[Mitigation, ...]:
        """The protections, in the order they act."""
        mitigation = self.mitigation
        return (mitigation,) if isinstance(mitigation, Mitigation) else tuple(mitigation)


class Trials:
    """Turns runs into rows of table TRIALS."""

    def __init__(self, golden: Golden, campaign_id: str) -> None:
        self._campaign_id = campaign_id
        margins = golden.margins(golden.outputs, slice(None))
        self._margin = margins.double().cpu().numpy()

    def rows(self, run: Any, exp_id: int) -> pd.DataFrame:
        """Return one row per input."""
        names = np.array(OUTCOME_NAMES, dtype=object)
        frame = pd.DataFrame(
            {
                "campaign_id": self._campaign_id,
                "exp_id": exp_id,
                "input_id": np.arange(len(run.codes)),
                "outcome": pd.Categorical(names[run.codes.cpu().numpy()], OUTCOME_NAMES),
                "is_beneficial": run.is_beneficial.cpu().numpy(),
                "golden_margin": self._margin,
                "delta": run.delta.double().cpu().numpy(),
            }
        )
        return TRIALS.cast(frame)


@dataclass(frozen=True)
class MetricDrop:
    """Judges a run once, by the quality of all its outputs together."""

    judge: Judge
    golden_metric: float | None

    def row(self, run: Any, value: float | None) -> dict[str, Any]:
        """Count the run as one input."""
        counts = dict.fromkeys([f"{name}_count" for name in OUTCOME_NAMES], 0)
        counts[f"{OUTCOME_NAMES[self._code(run, value)]}_count"] = 1
        most = largest(run.delta)
        return {"input_count": 1, **counts, "beneficial_count": 0, "max_abs_delta": most}

    def _code(self, run: Any, value: float | None) -> int:
        # None: the metric refused outputs that are not finite.
        if value is None or bool((run.codes == DUE).any()):
            return DUE
        if bool((run.codes == MASKED).all()):
            return MASKED
        is_fine = self.golden_metric is not None and (
            value >= self.golden_metric - self.judge.tolerance
        )
        return BENIGN if is_fine else SDC
