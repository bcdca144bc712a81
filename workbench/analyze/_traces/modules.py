"""GPU time by what the user wrote: modules, annotated ranges and phases of training."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._shared.kernel_kinds import KINDS
from workbench._shared.profiler_steps import step_number
from workbench.analyze._lib import rows as arrays
from workbench.analyze._lib.rows import MISSING, Ints, Nest, Work
from workbench.analyze._lib.scopes import per_rank
from workbench.tables import MODEL_TREE, PHASES

By: TypeAlias = Literal["rank", "step", "micro_batch"]

PHASE_NAMES = ("forward", "backward", "recompute", "optimizer", "communication", "other")
_FORWARD, _BACKWARD, _RECOMPUTE, _OPTIMIZER, _COMMUNICATION, _OTHER = range(6)
# Module, function and range are levels of the tree; the others only tell phase and module.
_MODULE, _FUNCTION, _RANGE, _AUTOGRAD, _OPERATOR, _CHECKPOINT = range(6)
NODE_KINDS = ("module", "function", "range", "backward", "outside", "root")
_NO_MODULE, _OUTSIDE, _ROOT = 3, 4, 5

_MODULE_NAME = "nn.Module: "
_ENGINE = "autograd::engine::evaluate_function"
_IS_BACKWARD = re.compile(rf"^{_ENGINE}|Backward\d*$")
_IS_CHECKPOINT = re.compile(r"Checkpoint\w*Backward|torch/utils/checkpoint\.py")
# What c10d writes around its calls is not a range of the user.
_OF_COLLECTIVE = re.compile(r"^(?:nccl|gloo|mpi|ucc|hccl|rccl|xccl):")
# Frames of the framework and the interpreter, which would bury those of the user.
_OF_FRAMEWORK = re.compile(
    r"^(?:torch/|<built-in|<string>|<frozen|threading\.py|multiprocessing/|runpy|contextlib)"
)
# PyTorch's optimizers, DDP and FSDP, torch.distributed.pipelining ("Forward 3"), Megatron-LM
# ("forward-compute"), DeepSpeed ("_exec_forward_pass") and what users write. A range that holds
# both directions, such as Megatron-LM's "forward-backward", tells no phase.
_WORD = r"(?:[\W_]|$)"
_OPTIMIZERS = rf"(?:^|[\W_])(?:optimi[sz]ers?|optim|opt_step){_WORD}"
_PHASES: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"forward.*backward|fwd.*bwd", re.IGNORECASE), MISSING),
    (
        re.compile(_OPTIMIZERS, re.IGNORECASE),
        _OPTIMIZER,
    ),
    (re.compile(rf"(?:^|[\W_])(?:forward|fwd){_WORD}", re.IGNORECASE), _FORWARD),
    (re.compile(rf"(?:^|[\W_])(?:backward|bwd){_WORD}", re.IGNORECASE), _BACKWARD),
    (re.compile(r"recompute|rematerial", re.IGNORECASE), _RECOMPUTE),
)
_MICRO_BATCH = re.compile(
    r"^(?:(?:forward|backward|fwd|bwd)[ _#:]|.*micro[-_ ]?batch[ _#:=-]*)(\d{1,9})$", re.IGNORECASE
)
# What differs from run to run: numbers of instances, lines, addresses, names of compiled functions.
_UNSTABLE = re.compile(
    r"(?<=CompiledFxGraph )\w+|\b0x[0-9a-fA-F]+|(?<=\.py)\(\d+\)|[ _#:=/-]*\d+(?=$|[ :/#])"
)
_IS_COMPILED = re.compile(r"^triton_|Compiled|\b0x")
_COLUMNS = (
    "name", "category", "process", "thread", "launch", "external_id", "correlation",
    "autograd_seq", "step",
)  # fmt: skip


def phase_of(name: str) -> int:
    """Tell the phase that a range is named after, as a position in PHASE_NAMES; -1 if none.

    Examples
    --------
    >>> [phase_of(name) for name in ("Optimizer.step#SGD.step", "forward-backward", "Forward 3")]
    [3, -1, 0]
    """
    return next((phase for pattern, phase in _PHASES if pattern.search(name)), MISSING)


def stable_name(name: str) -> str:
    """Return a name without what differs from run to run.

    Examples
    --------
    >>> [stable_name(name) for name in ("Linear_3", "model.py(12): loss", "layer 7", "block")]
    ['Linear', 'model.py: loss', 'layer', 'block']
    """
    return _UNSTABLE.sub("", name).strip() or name


def short_operator(name: str) -> str:
    """Return the name of an operator without the engine and the numbers of compiled functions."""
    short = name.removeprefix(f"{_ENGINE}: ")
    return stable_name(short) if _IS_COMPILED.search(short) else short


@dataclass
class Tree:
    """Nodes of the user's code; a node comes after its parent, children in order of their start."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    host_ns: list[int] = field(default_factory=list)
    _children: dict[tuple[int, str], int] = field(default_factory=dict)

    def child(self, parent: int, name: str, kind: int, rank: int) -> int:
        """Return the child of that name, a new one if there is none."""
        node = self._children.setdefault((parent, name), len(self.name))
        if node == len(self.name):
            self.parent.append(parent)
            self.name.append(name)
            self.kind.append(kind)
            self.rank.append(rank)
            self.calls.append(0)
            self.host_ns.append(0)
        return node

    def cut(self, node: int, name: str) -> int:
        """Return the ancestor of that name, or the node itself, else -1."""
        while node != MISSING and self.name[node] != name:
            node = self.parent[node]
        return node

    def totals(self, own: Ints) -> Ints:
        """Add up what nodes have themselves over everything below them."""
        total = own.copy()
        for node in range(len(self.parent) - 1, -1, -1):
            if self.parent[node] != MISSING:
                total[self.parent[node]] += total[node]
        return total


class Attribution(NamedTuple):
    """GPU work joined to the user's code: an entry per piece of work."""

    work: Work
    tree: Tree
    node: Ints  # node of the tree
    phase: Ints  # Position in PHASE_NAMES
    micro_batch: Ints  # -1 where no range tells it
    operator: Ints  # row of the outermost operator inside the innermost frame; -1 if none


class _Entries(NamedTuple):
    """Ranges around launches on the host, by rank, start and (longest first) duration."""

    row: Ints
    kind: Ints
    parent: Ints  # the entry around each entry; -1 if none
    of_point: Ints  # the innermost entry around each requested point; -1 if none
    thread: Ints


@per_rank
def model_tree(
    events: pd.DataFrame, *, functions: bool = False, merged: bool = False
) -> pd.DataFrame:
    """Return the GPU time of every module and annotated range, by itself and with all inside.

    GPU work runs later than the code that launched it and on no thread of the host, so it is found
    through its launch, not by time. The backward pass runs outside all modules: its operators are
    joined to those of the forward pass.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`. Modules are recorded with ``with_stack`` or
        ``with_modules``, ranges with ``record_function`` or NVTX.
    functions
        Whether Python functions are levels too, but for those of PyTorch and the interpreter.
    merged
        Whether modules and ranges that differ by a number alone, such as the layers of a
        transformer, are one node of their parent.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.MODEL_TREE`, by rank, parents before their children.

    Raises
    ------
    WorkbenchError
        If there is no GPU work, or if ``launch`` points to rows that launch nothing.

    Notes
    -----
    The GPU time of a node is the sum of the durations of the work launched inside it. An operator
    of the backward pass carries the sequence number of the autograd node that it runs; it counts in
    the module in which the latest operator of that number ran before. Where no such operator was
    recorded, or operators of several threads have the number, the work counts under *[backward]*;
    without a recorded launch, or with none of the user's frames around it, under *[outside]*.
    Annotations around steps and collectives are not nodes.

    References
    ----------
    pytorch/pytorch: torch/csrc/profiler/kineto_shim.cpp and
    torch/csrc/autograd/profiler_kineto.cpp, which draw the arrows from forward to backward so.
    """
    joined = attributed(events, functions=functions, merged=merged)
    tree, size = joined.tree, len(joined.tree.name)
    duration = joined.work.end - joined.work.start
    own = _summed(joined.node, duration, size)
    parent, rank = np.array(tree.parent), np.array(tree.rank)
    root = np.maximum.accumulate(np.where(parent == MISSING, np.arange(size), 0))
    depth, path = [0] * size, list(tree.name)
    for node, above in enumerate(tree.parent):
        if above != MISSING:
            depth[node], path[node] = depth[above] + 1, f"{path[above]} > {tree.name[node]}"
    columns = {
        name: tree.totals(_summed(joined.node, np.where(joined.phase == phase, duration, 0), size))
        for phase, name in enumerate(("forward_ns", "backward_ns", "recompute_ns"))
    }
    total = tree.totals(own)
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "node": np.arange(size) - root,
            "parent": arrays.nullable(np.where(parent == MISSING, MISSING, parent - root), "Int64"),
            "depth": np.array(depth, dtype="int32"),
            "kind": arrays.labelled(np.array(tree.kind), NODE_KINDS),
            "name": tree.name,
            "path": path,
            "call_count": tree.calls,
            "cpu_ns": tree.host_ns,
            "kernel_count": tree.totals(_summed(joined.node, np.ones_like(duration), size)),
            "gpu_self_ns": own,
            "gpu_ns": total,
            **columns,
            "other_ns": total - sum(columns.values()),
        }
    )
    is_stand_in = table["kind"].isin(["outside", "backward"]) & (table["kernel_count"] == 0)
    return MODEL_TREE.check(MODEL_TREE.cast(table[~is_stand_in].reset_index(drop=True)))


@per_rank
def phases(events: pd.DataFrame, *, by: By = "rank") -> pd.DataFrame:
    """Split the GPU work into forward, backward, recomputation, optimizer and communication.

    Parameters
    ----------
    events
        Table :data:`workbench.tables.EVENTS`.
    by
        ``"rank"``; ``"step"``: by rank and ProfilerStep; ``"micro_batch"``: by rank, step and the
        number of the micro-batch that ranges such as ``Forward 3`` state.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PHASES`, phases in the order of training.

    Raises
    ------
    WorkbenchError
        If there is no GPU work.
    ValueError
        If ``by`` is none of the three.

    Notes
    -----
    Communication is what kernels do, whoever launched them. Of the rest, the innermost of these
    around the launch decides: a backward operator of autograd; a range whose name says forward,
    backward, optimizer or recompute; a module, or an operator with a sequence number, outside of
    these (forward). A module that runs inside the backward pass is activation checkpointing:
    recompute. Without recorded modules or stacks, only reentrant checkpoints can be told from the
    backward pass; the others count as backward.
    """
    if by not in get_args(By):
        msg = f"by must be one of {get_args(By)}, not {by!r}"
        raise ValueError(msg)
    joined = attributed(events)
    work = joined.work
    none = np.full(len(work.row), MISSING)
    step = none if by == "rank" else arrays.taken(events["step"], work.row)
    micro_batch = joined.micro_batch if by == "micro_batch" else none
    groups = arrays.grouped(work.rank, step, micro_batch, joined.phase)
    total = groups.total(work.end - work.start)
    rank, step, micro_batch, phase = groups.keys
    whole = arrays.grouped(rank, step, micro_batch)
    table = pd.DataFrame(
        {
            "rank": rank.astype("int32"),
            "step": arrays.nullable(step, "Int32"),
            "micro_batch": arrays.nullable(micro_batch, "Int64"),
            "phase": arrays.labelled(phase, PHASE_NAMES),
            "kernel_count": groups.sizes(),
            "gpu_ns": total,
            "gpu_share": arrays.shares(total, whole.total(total)[whole.number]),
        }
    )
    return PHASES.check(table)


def _summed(node: Ints, amount: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, node, amount)
    return total


def attributed(
    events: pd.DataFrame, *, functions: bool = False, merged: bool = False, by_rank: bool = True
) -> Attribution:
    """Join every piece of GPU work to the innermost frame of the user's code that launched it."""
    work = arrays.required(arrays.gpu_work(events, *_COLUMNS), events, "model tree")
    operators = arrays.nest(events, work)
    launch = arrays.launches_of(events, work.row)
    is_lost = (launch == MISSING) & (operators.starter != MISSING)
    launch[is_lost] = operators.row[operators.starter[is_lost]]
    point, of_work = np.unique(launch, return_inverse=True)
    is_real = point != MISSING
    entries = _entries(events, point[is_real], functions=functions)
    around = np.full(len(point), MISSING)
    around[is_real] = entries.of_point
    ranks = np.unique(work.rank).tolist()
    walk = _Walk(events, entries, ranks, by_rank=by_rank, merged=merged)
    entry = around[of_work]
    node, phase, micro_batch = (
        np.append(np.array(column, dtype=np.int64), MISSING)[entry]
        for column in (walk.node, walk.phase, walk.micro_batch)
    )
    outside = np.array([walk.outside[rank] for rank in ranks])[np.searchsorted(ranks, work.rank)]
    node = np.where(node == MISSING, outside, node)
    phase = np.where(work.kind == KINDS.index("communication"), _COMMUNICATION, phase)
    phase = np.where(phase == MISSING, _OTHER, phase)
    frame = np.append(np.array(walk.frame, dtype=np.int64), MISSING)[entry]
    operator = _operators(events, operators, np.append(entries.row, MISSING)[frame])
    return Attribution(work, walk.tree, node, phase, micro_batch, operator)


def _operators(events: pd.DataFrame, nest: Nest, frame: Ints) -> Ints:
    """Climb from the operator of each piece of work to the outermost one inside its frame."""
    start = events["start_ns"].to_numpy()
    begin = np.where(frame == MISSING, np.iinfo(np.int64).min, start[frame])
    operator = nest.starter.copy()
    climbing = np.flatnonzero(operator != MISSING)
    while len(climbing):
        above = nest.parent[operator[climbing]]
        is_inside = (above != MISSING) & (start[nest.row[above]] >= begin[climbing])
        climbing, above = climbing[is_inside], above[is_inside]
        operator[climbing] = above
    return np.append(nest.row, MISSING)[operator]


def _entry_kinds(events: pd.DataFrame, *, functions: bool) -> Ints:
    """Return for each row which kind of entry it is; -1 for none."""
    names = [str(name) for name in events["name"].cat.categories]

    def is_named(*wanted: bool) -> NDArray[np.bool_]:
        of_code = np.array([*wanted, False])
        return np.asarray(of_code[arrays.codes(events["name"])])

    def is_category(category: str) -> NDArray[np.bool_]:
        code = arrays.code_of(events["category"], category)
        return np.asarray(arrays.codes(events["category"]) == code)

    function, operator = is_category("python_function"), is_category("cpu_op")
    kind = np.full(len(events), MISSING)
    if functions:
        is_users = is_named(*(_OF_FRAMEWORK.match(name) is None for name in names))
        kind[function & is_users] = _FUNCTION
    kind[function & is_named(*(name.startswith(_MODULE_NAME) for name in names))] = _MODULE
    kind[function & is_named(*(bool(_IS_CHECKPOINT.match(name)) for name in names))] = _CHECKPOINT
    is_range = is_named(
        *(step_number(name) is None and not _OF_COLLECTIVE.match(name) for name in names)
    )
    kind[is_category("user_annotation") & is_range] = _RANGE
    kind[operator & events["autograd_seq"].notna().to_numpy()] = _OPERATOR
    kind[operator & is_named(*(bool(_IS_BACKWARD.search(name)) for name in names))] = _AUTOGRAD
    return kind


def host_ranges(events: pd.DataFrame) -> NDArray[np.bool_]:
    """Say which rows are modules or ranges that the user named."""
    return np.isin(_entry_kinds(events, functions=False), (_MODULE, _RANGE))


def _entries(events: pd.DataFrame, point: Ints, *, functions: bool) -> _Entries:
    kind = _entry_kinds(events, functions=functions)
    row = np.flatnonzero(kind != MISSING)
    all_rows = np.concatenate([row, point])
    is_point = np.arange(len(all_rows)) >= len(row)
    start = events["start_ns"].to_numpy()[all_rows]
    # A call counts where it begins.
    end = start + np.where(is_point, 0, events["dur_ns"].to_numpy()[all_rows])
    thread = arrays.threads(events, all_rows)
    order = np.lexsort((is_point, start - end, start, thread))
    enclosing = arrays.enclosing(start[order], end[order], thread[order])
    # Calls at the same moment do not enclose each other, as both are over when they begin.
    around = np.full(len(all_rows), MISSING)
    inside = enclosing != MISSING
    around[order[inside]] = order[enclosing[inside]]
    # In time over all threads of a rank, so that the forward pass comes before its backward pass.
    rank = events["rank"].to_numpy()[row]
    by_time = np.lexsort((np.argsort(order)[: len(row)], start[: len(row)], rank))
    position = np.append(np.argsort(by_time), MISSING)
    return _Entries(
        row[by_time], kind[row[by_time]], position[around[by_time]],
        position[around[len(row) :]], thread[by_time],
    )  # fmt: skip


class _Walk:
    """Goes through the entries once in order of time; gives each its node and phase.

    A backward pass runs on a thread of its own, outside all modules. Its operators carry the
    sequence number of the autograd node that they run; the operator that made the node, the latest
    of that number before it, stands in the module. Within a reentrant checkpoint, whose thread
    counts again, numbers are those of the same outermost backward operator.
    """

    def __init__(
        self,
        events: pd.DataFrame,
        entries: _Entries,
        ranks: list[int],
        *,
        by_rank: bool,
        merged: bool,
    ) -> None:
        self.tree = Tree()
        self.outside: dict[int, int] = {}
        self._unjoined: dict[int, int] = {}
        self._entries = entries
        self._names = [str(name) for name in events["name"].cat.categories]
        self._phases = [phase_of(name) for name in self._names]
        self._shown = [
            (stable_name if merged else str)(name.removeprefix(_MODULE_NAME))
            for name in self._names
        ]
        self._name = arrays.codes(events["name"])[entries.row].tolist()
        self._seq = arrays.taken(events["autograd_seq"], entries.row).tolist()
        rank = events["rank"].to_numpy()[entries.row].tolist()
        host_ns = events["dur_ns"].to_numpy()[entries.row].tolist()
        size = len(entries.row)
        self.node, self.phase, self.micro_batch = ([MISSING] * size for _ in range(3))
        # The innermost frame of the user's around each entry, itself included.
        self.frame = [MISSING] * size
        # The outermost backward operator around each entry.
        self._outer = [MISSING] * size
        self._thread, self._kind = entries.thread.tolist(), entries.kind.tolist()
        parent = entries.parent.tolist()
        last = MISSING
        for entry in range(size):
            if rank[entry] != last:
                last = rank[entry]
                self._plant(last, by_rank=by_rank)
                self._made: dict[tuple[int, int], tuple[int, int, int]] = {}
                self._homes: dict[int, int] = {}
            self._visit(entry, parent[entry], last)
            if self._kind[entry] <= _RANGE:
                node = self.node[entry]
                self.tree.calls[node] += 1
                self.tree.host_ns[node] += host_ns[entry]
        for other in ranks:
            if other not in self.outside:
                self._plant(other, by_rank=by_rank)

    def _plant(self, rank: int, *, by_rank: bool) -> None:
        shown = rank if by_rank else MISSING
        root = self.tree.child(MISSING, f"rank {rank}" if by_rank else "all ranks", _ROOT, shown)
        self.outside[rank] = self.tree.child(root, "[outside]", _OUTSIDE, shown)
        self._unjoined[rank] = self.tree.child(root, "[backward]", _NO_MODULE, shown)

    def _visit(self, entry: int, parent: int, rank: int) -> None:
        if parent != MISSING:
            for column in (self.node, self.phase, self.micro_batch, self.frame, self._outer):
                column[entry] = column[parent]
        kind = self._kind[entry]
        if kind == _AUTOGRAD:
            self._backward(entry, rank)
        elif kind in (_OPERATOR, _CHECKPOINT):
            self._operator(entry, parent)
        else:
            self._frame(entry, kind, rank)

    def _backward(self, entry: int, rank: int) -> None:
        outer = self._outer[entry]
        made = self._made.get((outer, self._seq[entry])) if self._seq[entry] >= 0 else None
        # Numbers count by thread: of two threads nobody knows which one is meant.
        if made is not None and made[1] != MISSING:
            self.node[entry], _, self.micro_batch[entry] = made
        if self.node[entry] == MISSING:
            self.node[entry] = self._unjoined[rank]
        self.phase[entry] = _BACKWARD
        if outer == MISSING:
            self._outer[entry] = entry

    def _operator(self, entry: int, parent: int) -> None:
        phase, outer = self.phase[entry], self._outer[entry]
        if phase == MISSING and self._kind[entry] == _OPERATOR:
            self.phase[entry] = _FORWARD
        if phase == _BACKWARD and outer != MISSING:
            around = self._names[self._name[parent]]
            if self._kind[entry] == _CHECKPOINT or _IS_CHECKPOINT.search(around):
                self.phase[entry] = _RECOMPUTE
        if self._seq[entry] >= 0:
            key, thread = (outer, self._seq[entry]), self._thread[entry]
            before = self._made.get(key)
            is_one = before is None or before[1] == thread
            self._made[key] = (
                self.node[entry], thread if is_one else MISSING, self.micro_batch[entry]
            )  # fmt: skip

    def _frame(self, entry: int, kind: int, rank: int) -> None:
        name, phase, outer = self._name[entry], self.phase[entry], self._outer[entry]
        self.frame[entry] = entry
        stated = {_MODULE: _FORWARD, _RANGE: self._phases[name]}.get(kind, MISSING)
        if stated == _FORWARD and phase == _BACKWARD:
            self.phase[entry] = _RECOMPUTE
        elif stated != MISSING and outer == MISSING and phase != _RECOMPUTE:
            # Ranges state a phase, modules only suggest one: an optimizer may hold modules.
            self.phase[entry] = stated if kind == _RANGE or phase == MISSING else phase
        if kind == _RANGE and (number := _MICRO_BATCH.match(self._names[name])):
            self.micro_batch[entry] = int(number[1])
        if outer != MISSING and (home := self._home(entry, name)) != MISSING:
            self.node[entry] = home
            return
        root, around = self.tree.parent[self.outside[rank]], self.node[entry]
        node = self.tree.child(
            root if around == MISSING else around, self._shown[name], kind, self.tree.rank[root]
        )
        self.node[entry] = node
        if outer == MISSING and kind == _MODULE:
            # Instances have names of their own; one with several parents has no single place.
            self._homes[name] = node if self._homes.get(name, node) == node else MISSING

    def _home(self, entry: int, name: int) -> int:
        """Return where a module that is run again stood in the forward pass; -1 if unknown."""
        home = self._homes.get(name, MISSING)
        return home if home != MISSING else self.tree.cut(self.node[entry], self._shown[name])
