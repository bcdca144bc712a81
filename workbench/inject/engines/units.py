"""Faults in linear and convolution layers: one column or channel changes, by a known amount."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.inject._judge import Golden
from workbench.inject._model import torch
from workbench.inject.engines.bounds import (
    EPSILON,
    Bounds,
    DotShortcut,
    bounds,
    layer_magnitude,
    slope,
    vector_bounds,
)
from workbench.inject.engines.flip_and_run import Tally, judge_pairs
from workbench.inject.engines.reexecution import Program
from workbench.inject.engines.row_folding import RowFolding

_ENTRIES = 1_000_000
_SMALLEST = 1e-30
_POOLS = {"MaxPool2d", "AvgPool2d"}


@dataclass(frozen=True, eq=False)
class Plan:
    """Inputs of every fast way: the model as a program, its rows, the measure, sizes."""

    program: Program
    folding: RowFolding
    golden: Golden
    shortcut: DotShortcut | None
    rows_per_chunk: int
    is_pruned: bool


class UnitSites:
    """Single faults in the weight or bias of one Linear or Conv2d.

    Notes
    -----
    A weight [o, i] changes only unit o of the layer: ``y' = y[:, o] + delta x[:, i]``, a bias
    by ``delta``. Activations and pools that follow are run on that unit alone. Where the
    next layer is linear, its output changes by ``(a' - a) W[:, o]``; where it is a dot
    product, by the slopes of that. Only pairs of site and input that could bridge the margin
    go on, as rows of one batch.
    """

    def __init__(self, plan: Plan, node: Any) -> None:
        program = plan.program
        self.plan, self.node = plan, node
        self.module = program.modules[node.target]
        self._chain = _chain(plan, node)
        self.end = self._chain[-1] if self._chain else node
        self._x = program.golden[node.args[0]]
        self._is_linear = type(self.module) is torch().nn.Linear
        self._y = _by_unit(program.golden[node])
        self._a = _by_unit(program.golden[self.end])
        passes = plan.shortcut is not None and plan.shortcut.passes(self.end)
        self._shortcut = plan.shortcut if passes else None
        limits = bounds(
            program,
            plan.golden,
            self.end,
            (node, layer_magnitude(self.module, self._x)),
            self._shortcut,
        )
        if limits is None:
            msg = "no bounds are known for what follows"
            raise LookupError(msg)
        self.bounds: Bounds = limits
        self._steepness = 1.0
        for node in self._chain:
            # Each activation enlarges a change by its slope at most; pools enlarge none.
            self._steepness *= slope(program, node) or 1.0
        self._next = self._next_linear()
        self._see()

    def _see(self) -> None:
        """Lay out the inputs of the layer so that each weight finds what it multiplies."""
        if self._is_linear:
            self._seen = self._x.T.contiguous()
            self._reached = self._seen.abs()
        else:
            self._seen = _windows(self.module, self._x, self._y.shape[2:])
            largest = [channel.abs().amax((-1, -2)) for channel in self._seen]
            self._reached = torch().stack(largest).flatten(0, 2)

    def _next_linear(self) -> Any:
        """Return the linear layer that alone reads the units, if there is one."""
        users = self.plan.program.users(self.end)
        if not self._is_linear or len(users) != 1 or self.end is self.plan.program.output:
            return None
        (user,) = users
        is_linear = user.op == "call_module" and len(user.args) == 1 and not user.kwargs
        if not is_linear or user.args[0] is not self.end:
            return None
        module = self.plan.program.modules[user.target]
        return user if type(module) is torch().nn.Linear else None

    def _limits(self, *, is_bias: bool) -> Any:
        """Return per element the change below which no decision changes for sure."""
        reach = (self.bounds.reach * self._steepness).clamp_min(_SMALLEST)
        units, room = len(self._y), self.bounds.room
        if is_bias:
            return (room / reach).amin(1).expand(units)
        reached = self._reached.clamp_min(_SMALLEST)
        if reach.shape[1] == 1:
            return ((room / reached).amin(1)[None] / reach).flatten()
        return torch().cat([(room / unit_reach / reached).amin(1) for unit_reach in reach])

    def run(self, kind: str, elems: Any, after: Any, tally: Tally) -> None:
        """Inject single changes into ``"weight"`` or ``"bias"`` and count what comes of them."""
        is_bias = kind == "bias"
        values = (self.module.bias if is_bias else self.module.weight).detach().reshape(-1)
        delta = after - values[elems]
        tally.touched += self._reached_inputs(elems, after, delta, is_bias=is_bias)
        sites = torch().arange(len(elems))
        if self.plan.is_pruned:
            limits = self._limits(is_bias=is_bias)
            sites = torch().nonzero(~(delta.abs() < limits[elems])).flatten()
        fan = 1 if is_bias else self.module.weight[0].numel()
        # Sites at once, so that the moved units of a chunk fit the memory.
        size = max(1, _ENTRIES // max(1, self._y[0].numel()))
        for chunk in sites.split(size):
            unit = elems[chunk] // fan
            inside = None if is_bias else elems[chunk] % fan
            self._judge(chunk, unit, self._moved(unit, inside, delta[chunk]), tally)

    def _reached_inputs(self, elems: Any, after: Any, delta: Any, *, is_bias: bool) -> Any:
        """Count the inputs that a change can reach at all: 0 x a finite weight stays 0."""
        count = torch().full((len(elems),), len(self.plan.golden))
        if not is_bias:
            seen = (self._reached != 0).sum(1)
            seen = seen[elems % len(seen)]
            count = torch().where(torch().isfinite(after), seen, count)
        # A flip that leaves the value as it was, as of a sign of 0, reaches nothing.
        return torch().where(delta == 0, 0, count)

    def _moved(self, unit: Any, inside: Any, delta: Any) -> Any:
        """Return the changed units [sites x inputs (x height x width)] after the activations."""
        shape = (-1,) + (1,) * (self._y.ndim - 1)
        delta = delta.view(shape)
        if inside is None:
            moved = self._y[unit] + delta
        elif self._is_linear:
            moved = torch().addcmul(self._y[unit], self._seen[inside], delta)
        else:
            _, high, wide = self.module.weight.shape[1:]
            taps = inside // (high * wide), inside // wide % high, inside % wide
            moved = self._y[unit] + self._seen[taps] * delta
        return self._through_chain(moved)

    def _through_chain(self, moved: Any) -> Any:
        if not self._chain:
            return moved
        program, shape = self.plan.program, moved.shape
        if not self._is_linear:
            moved = moved.flatten(0, 1).unsqueeze(1)
        for node in self._chain:
            value = moved
            moved = program.value(node, lambda _: value)  # noqa: B023
        return moved if self._is_linear else moved.squeeze(1).unflatten(0, shape[:2])

    def _judge(self, chunk: Any, unit: Any, moved: Any, tally: Tally) -> None:
        golden, limits = self._a[unit], self.bounds
        change = (moved - golden).abs()
        if not self._is_linear:
            change = change.flatten(2).amax(2)
        reach = limits.reach[unit]
        if self.plan.is_pruned:
            # Negated, so that NaN is kept.
            site, row = torch().where(~(change * reach < limits.room))
        else:
            site, row = torch().where(torch().ones_like(change, dtype=torch().bool))
        if not len(site):
            return
        change, which = change[site, row], unit[site]
        value = moved[site, row]
        from_golden = golden[site, row]
        huge = limits.is_huge(change, which, row)
        if self._shortcut is None and self._is_linear:
            # What is not finite already stays so; convolutions may leave padding out, which
            # would be Inf x 0 here.
            huge &= torch().isfinite(change)

        def built(span: slice) -> Any:
            return self._outputs(value[span], from_golden[span], which[span], row[span])

        judge_pairs(
            self.plan.golden,
            (chunk[site], row),
            built,
            limits.closeness(self.plan.golden, (which, row), change, huge),
            tally,
            rows_per_chunk=self.plan.rows_per_chunk,
        )

    def _outputs(self, value: Any, golden: Any, unit: Any, rows: Any) -> Any:
        """Run the rest of the model on rows in which one unit changed."""
        folding = self.plan.folding
        if self._shortcut is not None and self.end is self._shortcut.nodes[0]:
            entered = self._shortcut.component(0, value - golden, unit, rows)
            return folding.run(self._shortcut.entry, entered, rows)
        if self._next is not None:
            start, weight = self._next, self.plan.program.modules[self._next.target].weight
            output = folding.golden(start, rows) + (value - golden)[:, None] * weight.T[unit]
        else:
            start = self.end
            output = folding.golden(start, rows)
            output[torch().arange(len(rows)), unit] = value
        if self._shortcut is None:
            return folding.run(start, output, rows)
        vector = folding.run(start, output, rows, until=self._shortcut.nodes[0])
        entered = self._shortcut.through(0, vector, rows)
        return folding.run(self._shortcut.entry, entered, rows)


def unit_sites(plan: Plan, node: Any) -> UnitSites | None:
    """Return the fast way for a layer, or None where it does not hold."""
    program, module = plan.program, plan.program.modules[node.target]
    x = node.args[0] if len(node.args) == 1 and not node.kwargs else None
    if x is None or plan.folding.factor.get(x) != 1 or plan.folding.factor.get(node) != 1:
        return None
    shape = program.golden[x].ndim
    if type(module) is torch().nn.Linear:
        fits = shape == 2
    elif type(module) is torch().nn.Conv2d:
        # Groups and other paddings would need windows of their own.
        fits = shape == 4 and module.groups == 1 and module.padding_mode == "zeros"
        fits = fits and not isinstance(module.padding, str)
    else:
        fits = False
    if not fits or not plan.folding.foldable(node):
        return None
    try:
        return UnitSites(plan, node)
    except LookupError:
        return None


def _by_unit(value: Any) -> Any:
    """Return a value with its columns or channels first."""
    return value.transpose(0, 1).contiguous()


def _chain(plan: Plan, node: Any) -> list[Any]:
    """Return the activations and pools that follow a layer and act on each unit by itself."""
    program, chain = plan.program, []
    while node is not program.output:
        users = program.users(node)
        if len(users) != 1 or len(users[0].all_input_nodes) != 1:
            break
        (user,) = users
        is_pool = user.op == "call_module" and (
            type(program.modules[user.target]).__name__ in _POOLS
            and program.golden[node].ndim == 4
            and len(user.args) == 1
        )
        if not is_pool and slope(program, user) is None:
            break
        chain.append(user)
        node = user
    return chain


def _windows(module: Any, x: Any, size: Any) -> Any:
    """Return [channels x height x width of the kernel x inputs x output] views of the input."""
    up, left = module.padding
    x = torch().nn.functional.pad(x, (left, left, up, up)).contiguous()
    inputs, channels, down, along = x.stride()
    (high, wide), (far, broad) = module.kernel_size, module.dilation
    step_down, step_along = module.stride
    # Strided views: the windows of a kernel overlap, and copies would take its area in memory.
    return x.as_strided(
        (x.shape[1], high, wide, x.shape[0], *size),
        (channels, far * down, broad * along, inputs, step_down * down, step_along * along),
    )


_SITES = 500_000
# Where no bound is known, a decision is close below this many times the rounding seen.
_CAREFUL = 32
_LARGEST_UNBOUNDED = 1e15


class LookedUp:
    """Which inputs look up which row, sorted by row.

    ``weight`` is what a row counts there: how often it is looked up, or its share of a mean.
    """

    def __init__(self, ids: Any, weight: Any) -> None:
        count = len(ids)
        index = torch().arange(count).view(-1, *[1] * (ids.ndim - 1))
        inputs = index.expand_as(ids).flatten()
        # A row may be in one bag several times: unique pairs, their weights added up.
        keys = ids.flatten() * count + inputs
        pairs, which = torch().unique(keys, return_inverse=True)
        self.rows, self.inputs = pairs // count, pairs % count
        self.weight = torch().zeros(len(pairs)).index_add_(0, which, weight.flatten())
        kept = self.weight != 0
        self.rows, self.inputs = self.rows[kept], self.inputs[kept]
        self.weight = self.weight[kept]

    def pairs(self, rows: Any) -> tuple[Any, Any]:
        """Return for sites in ``rows`` all pairs of site and looked-up place."""
        first = torch().searchsorted(self.rows, rows)
        count = torch().searchsorted(self.rows, rows, right=True) - first
        sites = torch().repeat_interleave(torch().arange(len(rows)), count)
        skipped = torch().repeat_interleave(first - count.cumsum(0) + count, count)
        return sites, torch().arange(len(sites)) + skipped


class TableSites:
    """Single faults in the weight of an Embedding or EmbeddingBag."""

    def __init__(self, plan: Plan, node: Any) -> None:
        program = plan.program
        self.plan, self.node = plan, node
        self.module = program.modules[node.target]
        self._is_bag = type(self.module) is torch().nn.EmbeddingBag
        self._ids = program.golden[node.args[0]]
        is_mean = self._is_bag and self.module.mode == "mean"
        # A mean is summed up first, and overflows there.
        self._summed = self._ids.shape[1] if is_mean else 1
        self._looked_up = LookedUp(self._ids, self._weights())
        shortcut = plan.shortcut
        self._vector = 0
        if shortcut is not None and self._is_bag and node in shortcut.nodes[1:]:
            vector = shortcut.nodes.index(node)
            self._vector = vector if shortcut.is_sound(vector) else 0
        self.bounds = self._bounds()
        self._golden_size = float(plan.golden.outputs.abs().max())
        self._ratio = max(256 * EPSILON, _CAREFUL * plan.folding.error_ratio)

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
        golden = self.plan.program.golden[self.node].abs()
        shortcut = self.plan.shortcut
        if self._vector and shortcut is not None:
            return vector_bounds(self.plan.program, self.plan.golden, shortcut, self._vector)
        if golden.ndim != 2:
            return None
        return bounds(self.plan.program, self.plan.golden, self.node, (self.node, golden), None)

    def run(self, kind: str, elems: Any, after: Any, tally: Tally) -> None:  # noqa: ARG002
        """Inject single changes and count what comes of them."""
        table = self.module.weight.detach()
        dim = table.shape[1]
        delta = after - table.reshape(-1)[elems]
        for first in range(0, len(elems), _SITES):
            chunk = slice(first, first + _SITES)
            site, where = self._looked_up.pairs(elems[chunk] // dim)
            site += first
            rows = self._looked_up.inputs[where]
            tally.touched.index_add_(0, site, torch().ones_like(site))
            change = delta[site] * self._looked_up.weight[where]
            self._judge(site, rows, (elems[site] % dim, change, after[site]), tally, elems[site])

    def _judge(self, site: Any, rows: Any, hit: tuple[Any, ...], tally: Tally, elem: Any) -> None:
        column, change, value = hit
        limits = self.bounds
        if limits is not None and self.plan.is_pruned:
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
            close = limits.closeness(self.plan.golden, (column, rows), size, huge)

        judge_pairs(
            self.plan.golden,
            (site, rows),
            built,
            close,
            tally,
            rows_per_chunk=self.plan.rows_per_chunk,
        )

    def _close_unbounded(self, value: Any, rows: Any) -> Any:
        """Return the test for closeness where no bound is known: relative to the outputs."""
        huge = ~(value.abs() < _LARGEST_UNBOUNDED)

        def close(outputs: Any, span: slice) -> Any:
            margins = self.plan.golden.margins(outputs, rows[span])
            largest = outputs.reshape(len(outputs), -1).abs().amax(1) + self._golden_size
            return ~(margins > self._ratio * largest) | huge[span]

        return close

    def _outputs(self, rows: Any, column: Any, change: Any, value: Any, elem: Any) -> Any:
        plan = self.plan
        if self._vector and plan.shortcut is not None:
            entered = plan.shortcut.component(self._vector, change, column, rows)
            return plan.folding.run(plan.shortcut.entry, entered, rows)
        output = plan.folding.golden(self.node, rows)
        if self._is_bag:
            output[torch().arange(len(rows)), column] += change
        else:
            # An element of the table is in every position of the input that looks its row up.
            hit = self._ids[rows] == (elem // self.module.weight.shape[1]).view(
                -1, *[1] * (self._ids.ndim - 1)
            )
            at = torch().nonzero(hit)
            output[(*at.unbind(1), column[at[:, 0]])] = value[at[:, 0]]
        return plan.folding.run(self.node, output, rows)


def table_sites(plan: Plan, node: Any) -> TableSites | None:
    """Return the fast way for a table, or None where it does not hold."""
    program, module = plan.program, plan.program.modules[node.target]
    if type(module) not in (torch().nn.Embedding, torch().nn.EmbeddingBag):
        return None
    ids = node.args[0] if len(node.args) == 1 and not node.kwargs else None
    if ids is None or plan.folding.factor.get(ids) != 1 or module.max_norm is not None:
        return None
    if plan.folding.factor.get(node) != 1 or not plan.folding.foldable(node):
        return None
    if type(module) is torch().nn.EmbeddingBag and (
        program.golden[ids].ndim != 2
        or module.mode == "max"
        or getattr(module, "include_last_offset", False)
    ):
        return None
    return TableSites(plan, node)
