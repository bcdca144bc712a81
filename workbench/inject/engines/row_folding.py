"""Rows of many experiments in one batch: the rest of a model, run for chosen inputs only."""

from __future__ import annotations

from typing import Any

from workbench.inject._model import torch
from workbench.inject.engines.reexecution import UNTRACEABLE, Program, same

_ALIKE = 1e-4
# Rows that hold wild numbers, and how many times larger they are than the largest golden one.
_WILD = 3
_WILDNESS = 1e3


class RowFolding:
    """Which values of a program hold one row (or k rows) per input, and runs on rows of them.

    Found by running the program on some of the inputs in another order, beside rows that
    hold wild numbers after every operation: a value is row-wise if it is then the golden one
    of these inputs, within rounding. What mixes inputs, such as a mean or a largest value
    over the batch, is not, and nothing that depends on it is folded.
    """

    def __init__(self, program: Program, inputs: tuple[Any, ...]) -> None:
        self.program = program
        self.factor: dict[Any, int] = {}  # rows per input of every row-wise value
        # Largest difference of the output seen there, relative to the largest output.
        self.error_ratio = 0.0
        self._foldable: dict[Any, bool] = {}
        self._draws = torch().Generator().manual_seed(0)
        first = inputs[0]
        self.count = len(first) if isinstance(first, torch().Tensor) and first.ndim else 0
        if not self.count:
            return
        # Half of the rows in another order: what depends on position or number shows.
        rows = torch().randperm(self.count, generator=self._draws)[: max(1, self.count // 2)]
        wild = torch().randint(self.count, (_WILD,), generator=self._draws)

        def look(node: Any, values: dict[Any, Any]) -> None:
            value = values[node]
            if node in program.varying and isinstance(value, torch().Tensor):
                values[node] = self._classify(node, value, rows)

        try:
            chosen = torch().cat([rows, wild])
            program.run(tuple(argument[chosen] for argument in inputs), watch=look)
        except UNTRACEABLE:
            self.factor.clear()
        if any(node not in self.factor for node in program.takes):
            self.factor.clear()

    def _classify(self, node: Any, value: Any, rows: Any) -> Any:
        """Note whether a value is row-wise; give it with wild numbers in the last rows."""
        golden = self.program.golden[node]
        if not golden.ndim or not value.ndim or len(golden) % self.count:
            return value
        per_input = len(golden) // self.count
        if not per_input or len(value) != per_input * (len(rows) + _WILD):
            return value
        expected = self._gathered(golden, per_input, rows)
        folded = value[: len(expected)]
        if folded.shape != expected.shape:
            return value
        alike = same(folded, expected)
        if not alike and value.dtype.is_floating_point:
            scale = float(expected.abs().max()) or 1.0
            off = float((folded - expected).abs().max()) / scale
            alike = off <= _ALIKE
            if node is self.program.output:
                self.error_ratio = off
        if alike:
            self.factor[node] = per_input
        if not value.dtype.is_floating_point or value.is_sparse:
            return value
        value = value.clone()
        wild = value[len(expected) :]
        # Wild rows: if one changes the others, an operation mixes the rows of a batch.
        noise = torch().randn(wild.shape, generator=self._draws).to(wild)
        wild += noise * (_WILDNESS * float(golden.abs().max()) + 1)
        return value

    @staticmethod
    def _gathered(golden: Any, per_input: int, rows: Any) -> Any:
        if per_input == 1:
            return golden[rows]
        groups = golden.reshape(-1, per_input, *golden.shape[1:])
        return groups[rows].flatten(0, 1)

    def foldable(self, start: Any) -> bool:
        """Return whether all that follows an operation can be run on rows."""
        if start not in self._foldable:
            golden = self.program.golden
            self._foldable[start] = self.factor.get(self.program.output) == 1 and all(
                node in self.factor or not isinstance(golden[node], torch().Tensor)
                for node in self.program.following(start)
            )
        return self._foldable[start]

    def golden(self, node: Any, rows: Any) -> Any:
        """Return the golden rows of a row-wise value; a copy."""
        return self._gathered(self.program.golden[node], self.factor[node], rows)

    def run(self, start: Any, value: Any, rows: Any, *, until: Any = None) -> Any:
        """Return the output, or the value ``until``, if an operation gives ``value``.

        ``value`` has a row per entry of ``rows``, the inputs they belong to; an input may come
        often. What can be a start says ``foldable``.
        """
        last = until or self.program.output
        fresh = {start: value}

        def fetch(node: Any) -> Any:
            if node in fresh:
                return fresh[node]
            if node not in self.program.varying:
                return self.program.golden[node]
            if node in self.factor:
                fresh[node] = self.golden(node, rows)
            else:
                fresh[node] = self.program.value(node, fetch)
            return fresh[node]

        wanted = self.program.before(last)
        for node in self.program.following(start):
            if node is not start and node in wanted:
                fresh[node] = self.program.value(node, fetch)
        return fresh[last]
