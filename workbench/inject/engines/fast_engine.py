"""The fast engine: the counts of flip and run, without running what a fault cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from workbench.errors import InjectionError
from workbench.inject._judge import Golden
from workbench.inject._model import in_evaluation, torch
from workbench.inject.designs.bits import Ints, as_integers, as_masks
from workbench.inject.designs.changes import Changes, Counts
from workbench.inject.engines.bounds import dot_shortcut
from workbench.inject.engines.flip_and_run import (
    CRASHES,
    Outcomes,
    Tally,
    ended,
)
from workbench.inject.engines.reexecution import Reexecution, changed, program
from workbench.inject.engines.row_folding import RowFolding
from workbench.inject.engines.units import (
    Plan,
    TableSites,
    UnitSites,
    table_sites,
    unit_sites,
)


class FastEngine:
    """Judges experiments on all inputs, each as fast as its place in the model allows.

    Single faults in linear, convolution and embedding layers are computed for many
    experiments at once, and only for inputs whose decision they could change; all other
    faults, and every decision too close for that, are run exactly: from the corrupted layer
    on, on all inputs in one batch. Decisions are those of flipping in place and running the
    model. Parameters are changed in place and given back, also if interrupted. Faults in
    activations are for :class:`FlipAndRun`. Without ``is_pruned`` changes too small to change
    any decision are run as well: the counts are the same, only slower.
    """

    # Of the faults computed fast, only inputs that they cannot reach count as masked; those
    # dropped as too small count as benign.
    masked_rule = "proven"
    chunk_most: ClassVar = 20_000  # experiments that a campaign gives it at once

    def __init__(
        self,
        model: Any,
        inputs: tuple[Any, ...],
        golden: Golden,
        *,
        rows_per_chunk: int = 8192,
        is_pruned: bool = True,
    ) -> None:
        self.model, self.inputs, self.golden = model, tuple(inputs), golden
        self.rerun_count = 0  # experiments run exactly because a decision was too close
        self._rows_per_chunk = rows_per_chunk
        self._places: dict[str, UnitSites | TableSites | None] = {}
        with in_evaluation(self.model):
            traced = program(model, self.inputs, golden.outputs)
            self._runs = Reexecution(model, self.inputs, traced)
            self._work: Plan | None = None
            if traced is not None and self._is_plain():
                folding = RowFolding(traced, self.inputs)
                shortcut = dot_shortcut(traced, folding)
                self._work = Plan(
                    traced, folding, golden, shortcut, rows_per_chunk, is_pruned=is_pruned
                )

    def _is_plain(self) -> bool:
        """Return whether bounds hold: float32 on a CPU, no hooks, decisions by their margin."""
        judge = self.golden.judge
        tensors = [*self.model.parameters(), *self.model.buffers(), self.golden.outputs]
        numbers = [tensor for tensor in tensors if tensor.dtype.is_floating_point]
        # Hooks could change anything on the way, and no bound covers them.
        hooked = any(
            tensor._forward_hooks or tensor._forward_pre_hooks for tensor in self.model.modules()
        )
        return (
            judge.criterion in {"argmax", "threshold"}
            and judge.mask_tolerance == 0
            and not hooked
            and all(tensor.dtype == torch().float32 for tensor in numbers)
            and all(tensor.device.type == "cpu" for tensor in tensors)
        )

    def is_fast(self, param: str) -> bool:
        """Return whether single faults in a parameter are computed many at once."""
        with in_evaluation(self.model):
            return self._place(param) is not None

    def counts(self, changes: Changes) -> Counts:
        """Inject every experiment by itself and count how the inputs end."""
        outcomes = Outcomes(changes.experiment_count, len(self.golden))
        bounds = np.searchsorted(changes.experiment, np.arange(changes.experiment_count + 1))
        entries = np.diff(bounds)
        # Several hits in one experiment act together, so they are run.
        exact = entries > 1
        alone = np.flatnonzero(entries == 1)
        first = bounds[alone]
        with in_evaluation(self.model):
            for number, target in enumerate(changes.targets):
                single = alone[changes.target[first] == number]
                if len(single) and self._place(target) is None:
                    exact[single] = True
                elif len(single):
                    elems = torch().from_numpy(changes.elem[bounds[single]].astype(np.int64))
                    after = changes.after[torch().from_numpy(bounds[single])]
                    tally = self._tallied(target, elems, after)
                    outcomes.take(single, tally)
                    exact[single] = tally.unsure.numpy()
                    self.rerun_count += int(tally.unsure.sum())
            for group in self._groups(np.flatnonzero(exact)):
                runs = [self._run(changes, slice(*bounds[n : n + 2].tolist())) for n in group]
                for experiment, run_ended in zip(group, ended(self.golden, runs), strict=True):
                    outcomes.put(experiment, run_ended)
        return outcomes.counts()

    def _tallied(self, param: str, elems: Any, after: Any) -> Tally:
        tally = Tally(len(elems))
        sites = self._place(param)
        if sites is None:
            tally.unsure[:] = True
            return tally
        sites.run(param.rpartition(".")[2], elems, after.to(torch().float32), tally)
        return tally

    def _place(self, param: str) -> UnitSites | TableSites | None:
        """Return the fast way for a parameter, None if it has none."""
        if param not in self._places:
            self._places[param] = None
            if self._work is not None:
                self._places[param] = self._found(self._work, param)
        return self._places[param]

    def _found(self, work: Plan, param: str) -> UnitSites | TableSites | None:
        tensor = self._runs.tensor(param)
        sources = work.program.sources(tensor)
        layer, _, kind = param.rpartition(".")
        nodes = [node for node in sources if node.op == "call_module"]
        if len(sources) != 1 or not nodes:
            return None
        (node,) = nodes
        module = work.program.modules[node.target]
        if kind not in {"weight", "bias"} or getattr(module, kind, None) is not tensor:
            return None
        # Weight and bias of a layer share inputs, outputs and bounds.
        for sibling in ("weight", "bias"):
            twin = f"{layer}.{sibling}"
            if sibling != kind and isinstance(self._places.get(twin), UnitSites):
                return self._places[twin] if self._runs.way(param) == "graph" else None
        if node not in work.program.needed or not self._runs.tensor(param).is_contiguous():
            return None
        sites = unit_sites(work, node) or table_sites(work, node)
        return sites if self._runs.way(param) == "graph" else None

    def _groups(self, experiments: Any) -> Iterator[list[int]]:
        """Yield experiments that are judged together: as many as a batch has rows."""
        size = max(1, self._rows_per_chunk // max(1, len(self.golden)))
        for first in range(0, len(experiments), size):
            yield experiments[first : first + size].tolist()

    def _run(self, changes: Changes, entries: slice) -> Any:
        targets = changes.target[entries]
        if len(targets) == 1:
            (name,) = names = [changes.targets[targets[0]]]
            self._runs.prepare(names)
            with changed(self._runs.tensor(name), changes.elem[entries], changes.after[entries]):
                return self._outputs(names)
        numbers = np.unique(targets)
        names = [changes.targets[number] for number in numbers]
        self._runs.prepare(names)
        with ExitStack() as stack:
            for number, name in zip(numbers, names, strict=True):
                own = np.flatnonzero(targets == number) + entries.start
                tensor = self._runs.tensor(name)
                stack.enter_context(changed(tensor, changes.elem[own], changes.after[own]))
            return self._outputs(names)

    def _outputs(self, names: list[str]) -> Any:
        """Return the outputs of one run; None after a crash, a detected error of all inputs."""
        try:
            # A copy: the next run may write into the same memory.
            return self._runs.outputs(names).clone()
        except (torch().OutOfMemoryError, InjectionError):
            raise  # both are kinds of CRASHES, but not the fault's doing
        except CRASHES:
            return None

    def exhausted(self, param: str, bits: list[int]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Inject every one of some bits of a parameter; give SDC and DUE [elements x bits]."""
        tensor = self._runs.tensor(param).detach()
        values = tensor.reshape(-1)
        masks = as_masks(np.left_shift(np.int64(1), np.asarray(bits, dtype=np.int64)), values)
        shape = (len(values), len(bits))
        sdc, due = np.zeros((2, *shape), dtype=np.int32)
        with in_evaluation(self.model):
            # Half a million sites at a time, so that memory does not grow with the parameter.
            size = max(1, (1 << 19) // len(bits))
            for first in range(0, len(values), size):
                elems = torch().arange(first, min(len(values), first + size))
                after = (as_integers(values[elems])[:, None] ^ masks).view(values.dtype).flatten()
                elems = elems.repeat_interleave(len(bits))
                span = slice(first, first + size)
                sdc[span], due[span] = (
                    counts.reshape(-1, len(bits)) for counts in self._all(param, elems, after)
                )
        return sdc, due

    def _all(self, param: str, elems: Any, after: Any) -> tuple[Ints, Ints]:
        tally = self._tallied(param, elems, after)
        sdc, due = tally.sdc.numpy(), tally.due.numpy()
        if self._place(param) is not None:
            self.rerun_count += int(tally.unsure.sum())
        tensor = self._runs.tensor(param)
        self._runs.prepare([param])
        for group in self._groups(np.flatnonzero(tally.unsure.numpy())):
            runs = []
            for site in group:
                entry = slice(site, site + 1)
                with changed(tensor, elems[entry], after[entry]):
                    runs.append(self._outputs([param]))
            ends = ended(self.golden, runs)
            sdc[group], due[group] = [end.sdc for end in ends], [end.due for end in ends]
        return sdc, due
