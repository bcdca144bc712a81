"""How a campaign is run, apart from what it injects and how outputs are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from workbench.errors import InjectionError
from workbench.simulate.injections._arguments import whole_number
from workbench.simulate.injections.protections.detectors import AnyDetector
from workbench.simulate.injections.protections.mitigations import Mitigation

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
        Of the campaign, the key of its tables; the model's class if left out.
    dataset
        What the inputs are, in words.
    is_synthetic
        Whether they were generated; None: not known.
    labels
        The right answer per input, so that faults that mend an answer are counted.
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
        Experiments between two visits to the folder; at most so many are lost. Left out:
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
        If the engine is unknown or the chunk size is no whole number from 1.
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
        """Refuse settings that cannot be followed."""
        if self.engine not in get_args(EngineName):
            msg = f"engine={self.engine!r} is not one of {get_args(EngineName)}"
            raise InjectionError(msg)
        if self.chunk_size is not None:
            chunk_size = whole_number("chunk_size", self.chunk_size, least=1)
            object.__setattr__(self, "chunk_size", chunk_size)

    @property
    def mitigations(self) -> tuple[Mitigation, ...]:
        """The protections, in the order they act."""
        given = self.mitigation
        return (given,) if isinstance(given, Mitigation) else tuple(given)
