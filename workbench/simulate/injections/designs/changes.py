"""What experiments change: the form in which every engine gets its work, and gives its counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Changes:
    """Elements that experiments change, one entry per element, sorted by experiment.

    Several flips of one element are one entry: the bits are combined before.

    Attributes
    ----------
    experiment_count
        Experiments; those without an entry change nothing.
    experiment
        int64, 0 .. ``experiment_count`` - 1, not decreasing.
    targets
        Names of what is hit: dotted parameter names, or ``"<module>:output"`` for the
        activation that a module gives.
    target
        int32, index into ``targets``.
    elem
        int64, flat in C order; of one input's part for an activation.
    before, after
        Tensors of the golden and the faulty value in the type the model computes in (for
        stored types such as int8: as the model sees them, after scaling). Infinities and
        NaN are kept. NaN for an activation: its values depend on the input.
    cleared, flips
        int64, for activations: the bits that are cleared first, and those flipped then, of
        whatever value the input gives. One element can have several such entries; they act
        in their order. 0 for parameters.
    """

    experiment_count: int
    experiment: Ints
    targets: tuple[str, ...]
    target: Ints
    elem: Ints
    before: Any
    after: Any
    cleared: Ints
    flips: Ints

    def rows(self, entries: Any) -> Changes:
        """Give some entries of the same experiments: a slice, or their places."""
        return replace(
            self,
            experiment=self.experiment[entries],
            target=self.target[entries],
            elem=self.elem[entries],
            before=self.before[entries],
            after=self.after[entries],
            cleared=self.cleared[entries],
            flips=self.flips[entries],
        )

    def part(self, start: int, stop: int) -> Changes:
        """Give the experiments ``start`` to ``stop`` - 1, renumbered from 0."""
        first, last = np.searchsorted(self.experiment, [start, stop])
        found = self.rows(slice(int(first), int(last)))
        return replace(found, experiment_count=stop - start, experiment=found.experiment - start)

    def only(self, experiments: Ints) -> Changes:
        """Give some experiments (in rising order), renumbered from 0."""
        found = self.rows(np.flatnonzero(np.isin(self.experiment, experiments)))
        numbers = np.searchsorted(experiments, found.experiment)
        return replace(found, experiment_count=len(experiments), experiment=numbers)


@dataclass(frozen=True, eq=False)
class Counts:
    """Outcomes per experiment, each an array as long as there are experiments.

    ``masked + benign + sdc + due`` is the number of inputs; ``beneficial`` is part of
    ``sdc``. ``max_abs_delta`` is NaN where an engine does not know it.
    """

    masked: Ints
    benign: Ints
    sdc: Ints
    due: Ints
    beneficial: Ints
    max_abs_delta: npt.NDArray[np.float64]
