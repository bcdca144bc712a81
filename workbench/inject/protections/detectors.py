"""Detectors: what looks at a faulty run and raises an alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from workbench.errors import InjectionError
from workbench.inject._model import Batch, batches, in_evaluation, torch
from workbench.inject.designs.bits import Ints
from workbench.inject.designs.changes import Changes
from workbench.inject.designs.population import is_output, shown


@runtime_checkable
class Detector(Protocol):
    """A detector that looks inside the model while it runs.

    A campaign calls :meth:`attach` before a run, :meth:`verdicts` after every batch, while
    the fault is still in the model, and then whatever ``attach`` gave, to take the
    detector off again. What a detector needs of the healthy model (checksums, ranges) it
    measures when it is made, not in ``attach``: by then the campaign can have begun.
    """

    def attach(self, model: Any) -> Callable[[], None]:
        """Put hooks on the model; give the function that takes them off."""
        ...

    def verdicts(self) -> Any:
        """Return one truth value per input of the last batch: a bool tensor."""
        ...


AnyDetector: TypeAlias = "Detector | Callable[[Any, Any, Any], Any]"


class Alarms:
    """The verdicts of all detectors on one run; the ``watch`` of an engine."""

    def __init__(self, model: Any, detectors: Mapping[str, AnyDetector]) -> None:
        self._model = model
        self._detectors = dict(detectors)
        self._counts = dict.fromkeys(self._detectors, 0)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Have the detectors on the model."""
        with ExitStack() as undo:
            for detector in self._detectors.values():
                if isinstance(detector, Detector):
                    undo.callback(detector.attach(self._model))
            yield

    def __call__(self, batch: Batch, outputs: Any) -> None:
        """Ask every detector about a batch; a crash is its own alarm and asks nobody."""
        # A run that crashed has nothing to look at.
        if outputs is None:
            return
        for name, detector in self._detectors.items():
            if isinstance(detector, Detector):
                alarm = detector.verdicts()
            else:
                alarm = detector(self._model, outputs, batch.given)
            alarm = torch().as_tensor(alarm)
            if alarm.dtype != torch().bool or alarm.numel() != len(outputs):
                msg = (
                    f"detectors: {name!r} gives {tuple(alarm.shape)} of {alarm.dtype} for "
                    f"{len(outputs)} inputs; one bool per input is needed"
                )
                raise InjectionError(msg)
            self._counts[name] += int(alarm.sum())

    def take(self) -> dict[str, int]:
        """Return the alarms since the last time, per detector."""
        counts = self._counts
        self._counts = dict.fromkeys(self._detectors, 0)
        return counts


class RangeDetector:
    """Raises an alarm where a module gives values it never gave on healthy inputs."""

    def __init__(self, limits: Mapping[str, tuple[float, float]]) -> None:
        self.limits = dict(limits)
        self._alarm: Any = None

    def attach(self, model: Any) -> Callable[[], None]:
        """Put a hook on every profiled module."""
        undo = ExitStack()
        undo.callback(model.register_forward_pre_hook(self._begin).remove)
        for name, limits in self.limits.items():
            hook = partial(self._look, limits)
            undo.callback(model.get_submodule(name).register_forward_hook(hook).remove)
        return undo.close

    def verdicts(self) -> Any:
        """Return the inputs of the last batch that left some range."""
        return self._alarm

    def _begin(self, *_: Any) -> None:
        self._alarm = None

    def _look(self, limits: tuple[float, float], _module: Any, _args: Any, output: Any) -> None:
        rows = output.reshape(len(output), -1)
        # Negated, so that NaN, which compares false, is outside.
        outside = ~((rows >= limits[0]) & (rows <= limits[1])).all(1)
        if self._alarm is None or len(self._alarm) != len(outside):
            self._alarm = outside
        else:
            self._alarm = self._alarm | outside


def range_detector(model: Any, inputs: Any, *, slack_share: float = 0.0) -> RangeDetector:
    """Make a detector of values outside the range seen on healthy inputs.

    Parameters
    ----------
    model
        The healthy model.
    inputs
        Inputs to profile, others than those of the campaign: a range measured on the same
        inputs can raise no false alarm, so it says nothing of false alarms.
    slack_share
        By how much of its width each range is widened on either side.

    Returns
    -------
    RangeDetector
        For ``CampaignSettings.detectors``; ``limits`` holds the range per module.

    Raises
    ------
    InjectionError
        If no module gives one row per input.
    """
    ranges = output_ranges(model, inputs)
    if not ranges:
        msg = "model: no module gives a tensor with one row per input; there is nothing to watch"
        raise InjectionError(msg)
    wide = {name: slack_share * (high - low) for name, (low, high) in ranges.items()}
    return RangeDetector(
        {name: (low - wide[name], high + wide[name]) for name, (low, high) in ranges.items()}
    )


def output_ranges(model: Any, inputs: Any) -> dict[str, tuple[float, float]]:
    """Measure the least and the largest output of every module without parts of its own."""
    ranges: dict[str, tuple[float, float]] = {}
    rows: dict[str, int] = {}

    def look(name: str, _module: Any, _args: Any, output: Any) -> None:
        is_plain = isinstance(output, torch().Tensor) and output.is_floating_point()
        if is_plain and output.ndim and output.numel():
            low, high = float(output.min()), float(output.max())
            before = ranges.get(name, (low, high))
            ranges[name] = (min(low, before[0]), max(high, before[1]))
            rows[name] = len(output)

    uneven: set[str] = set()
    with ExitStack() as undo, in_evaluation(model):
        for name, module in model.named_modules():
            # Only leaves; a container mostly passes on what its last module gives.
            if not any(True for _ in module.children()):
                undo.callback(module.register_forward_hook(partial(look, name)).remove)
        for batch in batches(inputs):
            rows.clear()
            outputs = model(*batch.args, **batch.kwargs)
            # Rows that are not inputs (tokens, patches) cannot tell which input left the range.
            uneven |= {name for name, count in rows.items() if count != len(outputs)}
    return {name: limits for name, limits in ranges.items() if name not in uneven}


_RELU_LIKE = ("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "GELU", "SiLU", "Hardswish")


class Mitigation:
    """A protection; the kinds below say what it does to faults and to the model."""

    name = "none"
    needs_the_model_to_run = False

    def described(self) -> str:
        """Tell what it is and by which numbers, so that two can be told apart."""
        return self.name

    def hardened(self, changes: Changes) -> Changes:
        """Return the remaining changes."""
        return changes

    def attach(self, model: Any) -> Callable[[], None]:  # noqa: ARG002 - for those that need it
        """Put it on the model; give the function that takes it off."""
        return lambda: None


class _Limiting(Mitigation):
    """A protection by the largest number that each part of the healthy model holds or gives."""

    def __init__(self, largest: Mapping[str, float]) -> None:
        self._largest = dict(largest)

    def described(self) -> str:
        return f"{self.name} {sorted(self._largest.items())}"


class _WeightClamp(_Limiting):
    name = "weight_clamp"

    def hardened(self, changes: Changes) -> Changes:
        limits = np.array([self._largest.get(name, np.inf) for name in changes.targets])
        limit = torch().from_numpy(limits)[torch().from_numpy(changes.target).long()]
        passes = np.array([is_output(name) for name in changes.targets], dtype=bool)
        kept = torch().from_numpy(passes)[torch().from_numpy(changes.target).long()]
        # NaN compares false, so it is read as 0 like what is too large.
        fine = (changes.after.double().abs() <= limit) | kept
        return replace(changes, after=torch().where(fine, changes.after, 0))


def weight_clamp(model: Any) -> Mitigation:
    """Set every parameter that is beyond the largest of its healthy tensor to 0.

    Parameters
    ----------
    model
        The healthy model.

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``. A parameter whose magnitude is above the
        largest of its tensor, or that is NaN, is read as 0; faults in activations pass.
    """
    largest = {
        name: float(parameter.detach().abs().max()) if parameter.numel() else 0.0
        for name, parameter in model.named_parameters()
    }
    return _WeightClamp(largest)


class _ActivationClip(_Limiting):
    name = "activation_clip"
    needs_the_model_to_run = True

    def attach(self, model: Any) -> Callable[[], None]:
        undo = ExitStack()
        for name, most in self._largest.items():
            hook = model.get_submodule(name).register_forward_hook(partial(_clipped, most))
            undo.callback(hook.remove)
        return undo.close


def _clipped(most: float, _module: Any, _args: Any, output: Any) -> Any:
    # clamp alone would let NaN pass.
    return torch().where(torch().isfinite(output), output.clamp(max=most), 0)


def activation_clip(model: Any, inputs: Any, *, modules: Sequence[str] = _RELU_LIKE) -> Mitigation:
    """Clip activations at the largest seen on healthy inputs; those not finite become 0.

    Parameters
    ----------
    model
        The healthy model.
    inputs
        Inputs to profile, others than those of the campaign.
    modules
        Classes of the modules whose outputs are clipped.

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``. It is in place in the fault-free run as well,
        and what it costs there shows in the golden metric.

    Raises
    ------
    InjectionError
        If the model has no such module; activations that are plain functions in
        ``forward`` cannot be clipped from outside.
    """
    kinds = {name: type(module).__name__ for name, module in model.named_modules()}
    ranges = output_ranges(model, inputs)
    largest = {name: high for name, (_, high) in ranges.items() if kinds[name] in modules}
    if not largest:
        msg = (
            f"model: activation_clip finds no module of class {', '.join(modules)}; activations "
            "that are functions in forward have to become modules first"
        )
        raise InjectionError(msg)
    return _ActivationClip(largest)


class _Protected(Mitigation):
    name = "protected"

    def __init__(self, elements: Mapping[str, Ints | None]) -> None:
        self._elements = dict(elements)

    def described(self) -> str:
        listed = [
            f"{name}: {'all' if elem is None else np.sort(elem).tolist()}"
            for name, elem in sorted(self._elements.items())
        ]
        return f"protected {'; '.join(listed)}"

    def hardened(self, changes: Changes) -> Changes:
        safe = np.zeros(len(changes.elem), dtype=bool)
        for number, name in enumerate(changes.targets):
            if name in self._elements:
                elem = self._elements[name]
                own = changes.target == number
                safe |= own if elem is None else own & np.isin(changes.elem, elem)
        return changes.rows(np.flatnonzero(~safe))


def protected(
    model: Any, elements: Sequence[str] | Mapping[str, Sequence[int] | None]
) -> Mitigation:
    """Keep some parameters safe, e.g. in memory with error correction.

    Parameters
    ----------
    model
        The model; its names are checked.
    elements
        Names of parameters; or names with the flat elements that are safe (None: all).

    Returns
    -------
    Mitigation
        For ``CampaignSettings.mitigation``; faults in these elements have no effect.

    Raises
    ------
    InjectionError
        If the model has no parameter of that name.
    """
    listed = elements if isinstance(elements, Mapping) else dict.fromkeys(elements)
    names = [name for name, _ in model.named_parameters()]
    if unknown := [name for name in listed if name not in names]:
        msg = f"elements: {unknown} are not parameters of the model; it has {shown(names)}"
        raise InjectionError(msg)
    return _Protected(
        {
            name: None if elem is None else np.asarray(elem, dtype=np.int64)
            for name, elem in listed.items()
        }
    )
