"""The plain engine: change the model in place, run it on all inputs, change it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from workbench.errors import InjectionError
from workbench.inject._judge import BENIGN, DUE, MASKED, SDC, Golden
from workbench.inject._model import (
    Batch,
    batches,
    in_evaluation,
    refuse_if,
    refuse_other_device,
    torch,
)
from workbench.inject.designs.bits import as_integers, as_masks
from workbench.inject.designs.changes import Changes, Counts
from workbench.inject.designs.population import OUTPUT, is_output
from workbench.inject.engines.reexecution import changed

# What a model raises that a fault has crashed; such a run is a detected error.
CRASHES = (RuntimeError, IndexError, ArithmeticError, ValueError)


@dataclass(frozen=True, eq=False)
class Run:
    """One experiment on all inputs.

    ``outputs`` are None where the model crashed on some batch; ``codes`` say how every
    input ended.
    """

    experiment: int
    outputs: Any
    codes: Any
    is_beneficial: Any
    delta: Any


Watcher: TypeAlias = "Callable[[Batch, Any], None]"


class FlipAndRun:
    """Judges experiments by running the faulty model on all inputs.

    It takes any model and any fault, and is exact: an input counts as masked where its
    output is equal to the golden one. The model is changed in place and put back after
    every experiment, also when it is interrupted.

    Parameters
    ----------
    model
        A ``torch.nn.Module``.
    inputs
        A tensor, a tuple or dict of tensors (the arguments of the model), or a list of
        such batches.
    golden
        The fault-free outputs, from ``Judge.golden``.
    watch
        Called after every batch with the batch and its outputs (None after a crash),
        while the fault is still in place.

    Attributes
    ----------
    masked_rule
        ``bit_equal``: an input is masked where no bit of its output differs.
    chunk_most
        Experiments that a campaign gives it at once, at most.
    """

    masked_rule = "bit_equal"
    chunk_most: ClassVar = 500

    def __init__(
        self, model: Any, inputs: Any, golden: Golden, *, watch: Watcher | None = None
    ) -> None:
        self.model = model
        self.golden = golden
        self._batches = batches(inputs)
        self._watch = watch
        self._parameters = dict(model.named_parameters())
        refuse_other_device(model, self._batches)

    def counts(self, changes: Changes) -> Counts:
        """Inject every experiment by itself and count how the inputs end."""
        codes = np.zeros((changes.experiment_count, DUE + 1), dtype=np.int64)
        beneficial = np.zeros(changes.experiment_count, dtype=np.int64)
        delta = np.full(changes.experiment_count, np.nan)
        for run in self.runs(changes):
            codes[run.experiment] = torch().bincount(run.codes.int(), minlength=DUE + 1).cpu()
            beneficial[run.experiment] = int(run.is_beneficial.sum())
            delta[run.experiment] = largest(run.delta)
        masked, benign, sdc, due = (codes[:, code] for code in (MASKED, BENIGN, SDC, DUE))
        return Counts(masked, benign, sdc, due, beneficial, delta)

    def runs(self, changes: Changes) -> Iterator[Run]:
        """Yield the experiments one after another, each put back before the next."""
        bounds = np.searchsorted(changes.experiment, np.arange(changes.experiment_count + 1))
        with in_evaluation(self.model):
            for number in range(changes.experiment_count):
                entries = slice(int(bounds[number]), int(bounds[number + 1]))
                with self._injected(changes, entries):
                    outputs = [self._outputs(batch) for batch in self._batches]
                yield self._judged(number, outputs)

    def _outputs(self, batch: Batch) -> Any:
        """Run one batch; None where the fault crashes the model."""
        try:
            outputs = self.model(*batch.args, **batch.kwargs)
        except (torch().OutOfMemoryError, InjectionError):
            raise  # both are kinds of CRASHES, but not the fault's doing
        except CRASHES:
            outputs = None
        if self._watch is not None:
            self._watch(batch, outputs)
        return outputs

    def _judged(self, number: int, outputs: list[Any]) -> Run:
        """Compare the outputs of an experiment with the golden ones."""
        golden = self.golden
        if all(output is not None for output in outputs):
            joined = torch().cat(outputs)
            rows = slice(None)
            codes = golden.outcomes(joined, rows)
            better = golden.beneficial(joined, rows, codes)
            return Run(number, joined, codes, better, _delta(joined, golden.outputs))
        size = len(golden)
        codes = golden.decisions.new_full((size,), DUE, dtype=torch().uint8)
        none = torch().zeros_like(codes, dtype=torch().bool)
        return Run(number, None, codes, none, torch().full((size,), float("nan")))

    @contextmanager
    def _injected(self, changes: Changes, entries: slice) -> Iterator[None]:
        """Put one experiment into the model, and take it out again whatever happens."""
        with ExitStack() as undo:
            hit = changes.target[entries]
            for target in np.unique(hit):
                name = changes.targets[target]
                own = np.flatnonzero(hit == target) + entries.start
                if is_output(name):
                    module = self.model.get_submodule(name.removesuffix(OUTPUT))
                    hook = _Corruption(name, changes, own)
                    undo.callback(module.register_forward_hook(hook).remove)
                    undo.callback(self.model.register_forward_pre_hook(hook.rearm).remove)
                    continue
                values = changes.after[torch().from_numpy(own)]
                undo.enter_context(changed(self._parameters[name], changes.elem[own], values))
            yield


def _delta(outputs: Any, golden: Any) -> Any:
    """Return the largest finite change of every input's output; NaN where none is finite."""
    delta = (outputs - golden).abs().reshape(len(outputs), -1).float()
    finite = torch().isfinite(delta)
    most = torch().where(finite, delta, -1.0).amax(1)
    return torch().where(most >= 0, most, float("nan"))


def largest(delta: Any) -> float:
    """Return the largest of numbers that can be NaN."""
    finite = delta[~torch().isnan(delta)]
    return float(finite.max()) if len(finite) else float("nan")


class _Corruption:
    """Changes bits of what a module gives, in its first call of a run."""

    def __init__(self, name: str, changes: Changes, entries: Any) -> None:
        self._name = name
        self._elem = changes.elem[entries]
        self._cleared, self._flips = changes.cleared[entries], changes.flips[entries]
        self._is_armed = True

    def rearm(self, *_: Any) -> None:
        """Hit again, as a new run begins."""
        self._is_armed = True

    def __call__(self, _module: Any, _args: Any, output: Any) -> Any:
        """Return the output with the fault in every input's part."""
        if not self._is_armed:
            return output
        self._is_armed = False
        refuse_if(
            not isinstance(output, torch().Tensor),
            f"activation {self._name!r} is a {type(output).__name__}, not a tensor; "
            "choose a module inside it",
        )
        hit = output.clone(memory_format=torch().contiguous_format)
        bits = as_integers(hit.view(len(hit), -1))
        kept, flipping = ~as_masks(self._cleared, output), as_masks(self._flips, output)
        # One by one: an element can be hit twice, and fancy indexing would keep only the last.
        for elem, keep, flip in zip(self._elem.tolist(), kept, flipping, strict=True):
            bits[:, elem] = (bits[:, elem] & keep) ^ flip
        return hit


class Tally:
    """Counts of inputs per experiment; ``touched`` are all whose output may differ at all.

    Of experiments that are ``unsure`` some decision is a matter of rounding.
    """

    def __init__(self, experiment_count: int) -> None:
        zeros = torch().zeros(4, experiment_count, dtype=torch().int64)
        self.sdc, self.due, self.beneficial, self.touched = zeros
        self.unsure = torch().zeros(experiment_count, dtype=torch().bool)

    def add(self, sites: Any, codes: Any, better: Any, close: Any) -> None:
        """Count the outcomes of pairs; ``sites`` are their experiments."""
        for counts, which in ((self.sdc, codes == SDC), (self.due, codes == DUE)):
            # index_add_ because an experiment occurs once per input; plain indexing adds only once.
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

    ``built`` gives the outputs of a range of pairs, ``close`` says which of them are a matter
    of rounding.
    """
    sites, rows = pairs
    for first in range(0, len(sites), rows_per_chunk):
        span = slice(first, first + rows_per_chunk)
        outputs = built(span)
        codes = golden.outcomes(outputs, rows[span])
        better = golden.beneficial(outputs, rows[span], codes)
        tally.add(sites[span], codes, better, close(outputs, span))


class Ended(NamedTuple):
    """How the inputs of one experiment ended, and the largest change of an output."""

    masked: int
    sdc: int
    due: int
    beneficial: int
    max_abs_delta: float


def ended(golden: Golden, runs: Sequence[Any]) -> list[Ended]:
    """Count experiments whose outputs are the very bits of full runs; None is a crash.

    They are judged together, which for a small model costs less than to judge each.
    """
    size = len(golden)
    told = [Ended(0, 0, size, 0, np.nan)] * len(runs)
    whole = [number for number, outputs in enumerate(runs) if outputs is not None]
    for number in whole:
        if runs[number].shape != golden.outputs.shape:
            golden.outcomes(runs[number], slice(None))  # says what is wrong with it
    if not whole:
        return told
    outputs = torch().stack([runs[number] for number in whole])
    moved = (outputs - golden.outputs).abs().reshape(len(whole), size, -1)
    outputs, delta = outputs.flatten(0, 1), moved.amax(2)
    rows = torch().arange(size).repeat(len(whole))
    codes = golden.outcomes(outputs, rows, delta.flatten())
    better = golden.beneficial(outputs, rows, codes).reshape(len(whole), size).sum(1)
    if not torch().isfinite(delta).all():
        # What stays finite counts, in the rows of what does not as well.
        delta = torch().where(torch().isfinite(outputs).reshape(moved.shape), moved, -1.0).amax(2)
    largest = delta.amax(1)
    codes = codes.reshape(len(whole), size)
    masked, sdc, due = ((codes == code).sum(1).tolist() for code in (MASKED, SDC, DUE))
    ends = zip(masked, sdc, due, better.tolist(), largest.tolist(), strict=True)
    for number, end in zip(whole, ends, strict=True):
        told[number] = Ended(*end[:4], np.nan if end[4] < 0 else end[4])
    return told


class Outcomes:
    """Counts of a whole call, filled in by whichever way each experiment went."""

    def __init__(self, experiment_count: int, input_count: int) -> None:
        self.input_count = input_count
        self.masked = np.full(experiment_count, input_count, dtype=np.int64)
        self.sdc, self.due, self.beneficial = np.zeros((3, experiment_count), dtype=np.int64)
        self.max_abs_delta = np.zeros(experiment_count)

    def take(self, experiments: Any, tally: Tally) -> None:
        """Take over what was tallied for some experiments."""
        self.masked[experiments] = self.input_count - tally.touched.numpy()
        self.sdc[experiments] = tally.sdc.numpy()
        self.due[experiments] = tally.due.numpy()
        self.beneficial[experiments] = tally.beneficial.numpy()
        self.max_abs_delta[experiments] = np.nan

    def put(self, experiment: int, run_ended: Ended) -> None:
        """Take over the exact counts of one experiment."""
        for name, value in run_ended._asdict().items():
            getattr(self, name)[experiment] = value

    def counts(self) -> Counts:
        """Return them in the form every engine gives."""
        benign = self.input_count - self.masked - self.sdc - self.due
        return Counts(self.masked, benign, self.sdc, self.due, self.beneficial, self.max_abs_delta)
