"""Faults in embedding tables: only inputs that look the row up can change."""

from __future__ import annotations

from typing import Any

from workbench.simulate.injections._torch import torch
from workbench.simulate.injections.engines.bounds import EPSILON, Bounds, bounds, vector_bounds
from workbench.simulate.injections.engines.tally import Tally, judge_pairs
from workbench.simulate.injections.engines.units import Workplace

_SITES = 500_000
# Where no bound is known, a decision is close below this many times the rounding seen.
_CAREFUL = 32
_LARGEST_UNBOUNDED = 1e15


class LookedUp:
    """Which inputs look up which row, and how often.

    Attributes
    ----------
    rows, inputs
        Looked-up row and input of every such pair, sorted by row.
    weight
        What the row counts there: how often it is looked up, or its share of a mean.
    """

    def __init__(self, ids: Any, weight: Any) -> None:
        count = len(ids)
        each = torch().arange(count).view(-1, *[1] * (ids.ndim - 1))
        inputs = each.expand_as(ids).flatten()
        keys = ids.flatten() * count + inputs
        pairs, which = torch().unique(keys, return_inverse=True)
        self.rows, self.inputs = pairs // count, pairs % count
        self.weight = torch().zeros(len(pairs)).index_add_(0, which, weight.flatten())
        kept = self.weight != 0
        self.rows, self.inputs = self.rows[kept], self.inputs[kept]
        self.weight = self.weight[kept]

    def pairs(self, rows: Any) -> tuple[Any, Any]:
        """Give for sites in ``rows`` all pairs of site and looked-up place."""
        first = torch().searchsorted(self.rows, rows)
        count = torch().searchsorted(self.rows, rows, right=True) - first
        sites = torch().repeat_interleave(torch().arange(len(rows)), count)
        skipped = torch().repeat_interleave(first - count.cumsum(0) + count, count)
        return sites, torch().arange(len(sites)) + skipped


class TableSites:
    """Single faults in the weight of an Embedding or EmbeddingBag."""

    def __init__(self, place: Workplace, node: Any) -> None:
        program = place.program
        self.place, self.node = place, node
        self.module = program.modules[node.target]
        self._is_bag = type(self.module) is torch().nn.EmbeddingBag
        self._ids = program.golden[node.args[0]]
        is_mean = self._is_bag and self.module.mode == "mean"
        # A mean is summed up first, and overflows there.
        self._summed = self._ids.shape[1] if is_mean else 1
        self._looked_up = LookedUp(self._ids, self._weights())
        shortcut = place.shortcut
        self._vector = 0
        if shortcut is not None and self._is_bag and node in shortcut.nodes[1:]:
            vector = shortcut.nodes.index(node)
            self._vector = vector if shortcut.is_sound(vector) else 0
        self.bounds = self._bounds()
        self._golden_size = float(place.golden.outputs.abs().max())
        self._ratio = max(256 * EPSILON, _CAREFUL * place.folding.error_ratio)

    def _weights(self) -> Any:
        ids, padding = self._ids, self.module.padding_idx
        weight = torch().ones(ids.shape)
        if not self._is_bag:
            return weight
        if padding is not None:
            weight = (ids != padding).to(weight.dtype)
        if self.module.mode == "mean":
            weight = weight / weight.sum(1, keepdim=True).clamp_min(1)
        return weight

    def _bounds(self) -> Bounds | None:
        golden = self.place.program.golden[self.node].abs()
        shortcut = self.place.shortcut
        if self._vector and shortcut is not None:
            return vector_bounds(self.place.program, self.place.golden, shortcut, self._vector)
        if golden.ndim != 2:
            return None
        return bounds(self.place.program, self.place.golden, self.node, (self.node, golden), None)

    def run(self, kind: str, elems: Any, after: Any, tally: Tally) -> None:  # noqa: ARG002
        """Inject single changes and count what comes of them."""
        table = self.module.weight.detach()
        dim = table.shape[1]
        delta = after - table.reshape(-1)[elems]
        for first in range(0, len(elems), _SITES):
            part = slice(first, first + _SITES)
            site, where = self._looked_up.pairs(elems[part] // dim)
            site += first
            rows = self._looked_up.inputs[where]
            tally.touched.index_add_(0, site, torch().ones_like(site))
            change = delta[site] * self._looked_up.weight[where]
            self._judge(site, rows, (elems[site] % dim, change, after[site]), tally, elems[site])

    def _judge(self, site: Any, rows: Any, hit: tuple[Any, ...], tally: Tally, elem: Any) -> None:
        column, change, value = hit
        limits = self.bounds
        if limits is not None and self.place.is_pruned:
            carried = limits.at(limits.reach, column, rows)
            kept = torch().nonzero(~(change.abs() * carried < limits.room[rows])).flatten()
            site, rows, column = site[kept], rows[kept], column[kept]
            change, value, elem = change[kept], value[kept], elem[kept]

        def built(span: slice) -> Any:
            return self._outputs(rows[span], column[span], change[span], value[span], elem[span])

        size = change.abs()
        if limits is None:
            close = self._close_unbounded(value, rows)
        else:
            huge = limits.is_huge(size * self._summed, column, rows)
            close = limits.closeness(self.place.golden, (column, rows), size, huge)

        judge_pairs(
            self.place.golden,
            (site, rows),
            built,
            close,
            tally,
            rows_per_chunk=self.place.rows_per_chunk,
        )

    def _close_unbounded(self, value: Any, rows: Any) -> Any:
        """Give the test for closeness where no bound is known: relative to the outputs."""
        huge = ~(value.abs() < _LARGEST_UNBOUNDED)

        def close(outputs: Any, span: slice) -> Any:
            margins = self.place.golden.margins(outputs, rows[span])
            largest = outputs.reshape(len(outputs), -1).abs().amax(1) + self._golden_size
            return ~(margins > self._ratio * largest) | huge[span]

        return close

    def _outputs(self, rows: Any, column: Any, change: Any, value: Any, elem: Any) -> Any:
        place = self.place
        if self._vector and place.shortcut is not None:
            entered = place.shortcut.component(self._vector, change, column, rows)
            return place.folding.run(place.shortcut.entry, entered, rows)
        whole = place.folding.golden(self.node, rows)
        if self._is_bag:
            whole[torch().arange(len(rows)), column] += change
        else:
            hit = self._ids[rows] == (elem // self.module.weight.shape[1]).view(
                -1, *[1] * (self._ids.ndim - 1)
            )
            at = torch().nonzero(hit)
            whole[(*at.unbind(1), column[at[:, 0]])] = value[at[:, 0]]
        return place.folding.run(self.node, whole, rows)


def table_sites(place: Workplace, node: Any) -> TableSites | None:
    """Give the fast way for a table, or None where it does not hold."""
    program, module = place.program, place.program.modules[node.target]
    if type(module) not in (torch().nn.Embedding, torch().nn.EmbeddingBag):
        return None
    ids = node.args[0] if len(node.args) == 1 and not node.kwargs else None
    if ids is None or place.folding.factor.get(ids) != 1 or module.max_norm is not None:
        return None
    if place.folding.factor.get(node) != 1 or not place.folding.foldable(node):
        return None
    if type(module) is torch().nn.EmbeddingBag and (
        program.golden[ids].ndim != 2
        or module.mode == "max"
        or getattr(module, "include_last_offset", False)
    ):
        return None
    return TableSites(place, node)
