"""What came of experiments: collected from pairs of experiment and input, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from workbench.simulate.injections._judge import DUE, MASKED, SDC, Golden
from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.designs.changes import Counts


class Tally:
    """Counts of experiments; inputs that nothing is said about were provably not touched.

    Attributes
    ----------
    sdc, due, beneficial, touched
        Inputs per experiment; ``touched`` are all whose output may differ at all.
    unsure
        Experiments of which some decision is a matter of rounding.
    """

    def __init__(self, experiment_count: int) -> None:
        zeros = torch().zeros(4, experiment_count, dtype=torch().int64)
        self.sdc, self.due, self.beneficial, self.touched = zeros
        self.unsure = torch().zeros(experiment_count, dtype=torch().bool)

    def add(self, sites: Any, codes: Any, better: Any, close: Any) -> None:
        """Count the outcomes of pairs; ``sites`` are their experiments."""
        for counts, which in ((self.sdc, codes == SDC), (self.due, codes == DUE)):
            counts.index_add_(0, sites, which.to(torch().int64))
        self.beneficial.index_add_(0, sites, better.to(torch().int64))
        self.unsure[sites[close]] = True


def judge_pairs(
    golden: Golden,
    pairs: tuple[Any, Any],
    built: Callable[[slice], Any],
    close: Callable[[Any, slice], Any],
    tally: Tally,
    *,
    rows_per_chunk: int,
) -> None:
    """Run pairs of experiment and input as rows of batches, and count what came of them.

    Parameters
    ----------
    golden
        The measure of the outputs.
    pairs
        Experiment and input of every pair.
    built
        Gives the outputs of a range of pairs.
    close
        Says of the outputs of a range which are a matter of rounding.
    tally
        Where it is counted.
    rows_per_chunk
        Rows of one batch.
    """
    sites, rows = pairs
    for first in range(0, len(sites), rows_per_chunk):
        part = slice(first, first + rows_per_chunk)
        outputs = built(part)
        codes = golden.outcomes(outputs, rows[part])
        better = golden.beneficial(outputs, rows[part], codes)
        tally.add(sites[part], codes, better, close(outputs, part))


class Ended(NamedTuple):
    """How the inputs of one experiment ended, and the largest change of an output."""

    masked: int
    sdc: int
    due: int
    beneficial: int
    max_abs_delta: float


def ended(golden: Golden, outputs: Any) -> Ended:
    """Count one experiment whose outputs are the very bits of a full run."""
    rows = torch().arange(len(golden))
    codes = golden.outcomes(outputs, rows)
    better = golden.beneficial(outputs, rows, codes)
    finite = torch().isfinite(outputs)
    moved = (outputs - golden.outputs).abs()[finite]
    largest = float(moved.max()) if moved.numel() else np.nan
    masked, sdc, due = (int((codes == code).sum()) for code in (MASKED, SDC, DUE))
    return Ended(masked, sdc, due, int(better.sum()), largest)


class Outcomes:
    """Counts of a whole call, filled in by whichever way each experiment went."""

    def __init__(self, experiment_count: int, input_count: int) -> None:
        self.input_count = input_count
        self.masked = np.full(experiment_count, input_count, dtype=np.int64)
        self.sdc, self.due, self.beneficial = np.zeros((3, experiment_count), dtype=np.int64)
        self.max_abs_delta = np.zeros(experiment_count)

    def take(self, places: Any, tally: Tally) -> None:
        """Take over what was tallied for some experiments."""
        self.masked[places] = self.input_count - tally.touched.numpy()
        self.sdc[places] = tally.sdc.numpy()
        self.due[places] = tally.due.numpy()
        self.beneficial[places] = tally.beneficial.numpy()
        self.max_abs_delta[places] = np.nan

    def put(self, place: int, found: Ended) -> None:
        """Put down the exact counts of one experiment."""
        for name, value in found._asdict().items():
            getattr(self, name)[place] = value

    def counts(self) -> Counts:
        """Give them in the form every engine gives."""
        benign = self.input_count - self.masked - self.sdc - self.due
        return Counts(self.masked, benign, self.sdc, self.due, self.beneficial, self.max_abs_delta)
