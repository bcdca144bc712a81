"""Traces that may be shared: same behaviour, without names, hosts, sizes and true times."""

from __future__ import annotations

import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench._shared.collective_names import UNKNOWN, operation_of
from workbench._shared.kernel_kinds import classify
from workbench._shared.profiler_steps import step_number
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, given_paths, shown_all
from workbench.load._files.findings import quality_frame
from workbench.load._traces.chakra.schema import NOW
from workbench.load._traces.chakra.writing import write_chakra
from workbench.load._traces.chrome_writing import write_trace_file
from workbench.load._traces.kineto.rank import ON_STREAM, RUNTIME, UNCATEGORISED
from workbench.load._traces.reader import traces
from workbench.tables import (
    DEPENDENCIES,
    EVENTS,
    NODES,
    PROCESS_GROUPS,
    QUALITY,
    RANKS,
    SAYS_OBFUSCATED,
    SAYS_SYNTHETIC,
    STEPS,
    VISIBLE,
    Trace,
)

IntArray = npt.NDArray[np.int64]

# Below a tenth, kernels of nanoseconds would become equal; a factor near 1 would hide nothing.
_LEAST_FACTOR, _MOST_FACTOR = 0.1, 10.0
_DRAWN_FACTOR = (1.25, 2.5)
# Where wall time is known, all ranks begin here: 2020-01-01, so that ranks stay comparable.
_ORIGIN_NS = 1_577_836_800_000_000_000
_EPOCH = "epoch"
_LARGEST_EXACT = 100  # two significant digits hold it
_LISTED = 6
_LONGEST_NAME = 1000  # of a data loader; hostile ones would be searched for minutes

_WORDS = {
    "cpu_op": "operator", "user_annotation": "annotation", "gpu_user_annotation": "annotation",
    "python_function": "python_function", **dict.fromkeys(RUNTIME, "runtime_call"),
}  # fmt: skip
_CATEGORIES = {
    *_WORDS, *ON_STREAM, UNCATEGORISED, "overhead", "cpu_instant_event", "Trace",
}  # fmt: skip
# One name for each rule of kernel_kinds.csv, which the rules classify as before.
KERNEL_WORDS = {
    "elementwise": "elementwise", "normalisation": "layer_norm", "loss": "loss",
    "reduction": "reduction", "kv-cache": "store_kv_cache", "mixture-of-experts": "moe",
    "attention": "attention", "convolution": "conv", "tensor-layout": "transpose",
    "quantisation": "quant", "matrix-multiply": "gemm", "rotary-embedding": "rope",
    "embedding": "embedding", "optimiser": "optimizer", "state-space": "ssm",
    "sampling": "sampling", "pooling": "pool", "indexing": "index", "triton": "triton",
    "copy": "Memcpy", "dma": "dma", "in-flight": "operation (in flight)",
}  # fmt: skip
_KIND_WORDS = {"compute": "kernel", "memory": "Memcpy", "other": "other_kernel"}
_SPELLED = {"send-receive": "SendRecv", "receive": "Recv"}
_ONLY_AS_PREFIX = ("wait", "coalesced")
# Names made of these words alone belong to the driver or the profiler, not to whoever traced.
_PUBLIC = re.compile(
    r"(?:cuda|cu|hip)(?:Launch|Cooperative|Kernel|Ext?|C|Graph|Mem|cpy|set|Async|Device|Stream"
    r"|Event|Synchronize|Wait|Record|With|Flags|Query|Malloc|Free|Host|Get|Set|Attributes?"
    r"|Func|Create|Destroy|Occupancy|Max|Active|Blocks|Per|Multiprocessor|Ctx|Peek|At|Last"
    r"|Error|Is|Capturing|Instantiate|Exec|Info|_v[0-9]{1,5}|_ptsz)+"
    r"|(?:Mem(?:cpy|set)|[HDAP]to[HDAP]|Pageable|Pinned|Device|Managed|Array|Unknown"
    r"|Copy|Host|To|->|[ ()])+"
    r"|(?:Stream|Event|Context|Device)(?: Wait Event| Sync)"
    # Passes of a pipeline, by which jobs are read from traces.
    r"|PP:[0-9]{1,4}(?:(?:SEND|RECV)_)?[FBIW][0-9]{1,6}|(?:Forward|Backward) [0-9]{1,6}"
)
_DATA_LOADER = re.compile(r"dataloader.*__next__|enumerate\(dataloader\)", re.IGNORECASE)
_DTYPES = re.compile(
    r"(?:c10::)?(?:Q?U?Int(?:8|16|32|64)?|B?Float(?:16|32|64)?|Float8_e[0-9]m[0-9](?:fn|fnuz)?"
    r"|Half|Double|Long|Short|Char|Byte|Bool|Complex(?:Half|Float|Double))",
    re.IGNORECASE,
)
_NODE_TYPES = {*NOW.types, "cpu_op", "annotation", "root", "collective", "wait"}


class ObfuscatedFiles(list[Path]):
    """The files that were written, and what they still show."""

    def __init__(self, files: Iterable[Path], visible: pd.DataFrame, quality: pd.DataFrame) -> None:
        super().__init__(files)
        self.visible = visible
        """Table :data:`workbench.tables.VISIBLE`: what a reader can still tell."""
        self.quality = quality
        """Table :data:`workbench.tables.QUALITY`: what was not read from the source, so is not
        in the files."""


def write_obfuscated(
    path: Paths, out: str | Path, *, factor: float | None = None
) -> ObfuscatedFiles:
    """Write a copy of traces that may be shared: behaviour without names, hosts and true times.

    Parameters
    ----------
    path
        Traces of one job, as for :func:`traces`.
    out
        Folder to write, new or empty, outside of ``path``: ``rank_0.json.gz``, ... for profiles,
        ``chakra/job.0.et``, ... for execution traces.
    factor
        What all times are multiplied by, 0.1 to 10; a secret one, written nowhere, is drawn by
        default.

    Returns
    -------
    list of pathlib.Path
        The files. Its ``visible`` is table :data:`workbench.tables.VISIBLE`, with columns
        ``what``, ``value`` and ``reveals``; its ``quality`` tells what could not be read.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    FileExistsError
        If ``out`` holds anything.
    LoadError
        If ``out`` lies in ``path``, the factor is out of range, or nothing can be read.

    Notes
    -----
    Breakdown, overlap, idle and waiting shares, and replay over the factor, stay within 2 %.

    Names become a word for their kind and a number; words that analyses ask for stay (calls of
    CUDA and HIP, directions of copies, kinds of collectives, steps, passes of a pipeline). Other
    categories, types and arguments are dropped. Numbers of processes, threads, streams,
    correlations, groups and sequences are renumbered. Sizes are rounded to two significant
    digits. A time t becomes ``round((t - origin) factor)`` with one origin for all ranks, ends like
    starts, so that order, nesting and offsets of clocks stay; there is no jitter. The factor hides
    speeds only as long as no duration is known from elsewhere. PyTorch execution traces are
    written as Chakra.
    """
    folder = _new_folder(Path(out), path)
    secret = _factor(factor)
    source = traces(path, progress=False)
    trace = obfuscated_trace(source, secret)
    if trace.events.empty and trace.nodes.empty:
        msg = f"{shown_all(path)}: no events and no nodes, so there is nothing to share"
        raise LoadError(msg)
    files = []
    for row in trace.ranks[trace.ranks["rank"].isin(trace.events["rank"])].itertuples():
        events = trace.events[trace.events["rank"] == row.rank]
        base = _ORIGIN_NS if row.clock == _EPOCH else 0
        head = {"schemaVersion": 1, "displayTimeUnit": "ns", "baseTimeNanoseconds": base}
        head |= {"distributedInfo": _distributed(row, trace.process_groups), "obfuscated": True}
        head |= {"synthetic": True} if trace.is_synthetic else {}
        files.append(folder / f"rank_{row.rank}.json.gz")
        write_trace_file(events, files[-1], head)
    if len(trace.nodes):
        files += write_chakra(trace, folder / "chakra" / "job", allow_stuck=True)
    lost = source.quality["finding"].isin(["dropped", "truncated"])
    quality = QUALITY.check(source.quality[lost].reset_index(drop=True))
    return ObfuscatedFiles(files, _visible(trace), quality)


def obfuscated_trace(trace: Trace, factor: float) -> Trace:
    """Return the same tables, row by row, without names, hosts, exact sizes and true times."""
    groups = _groups(trace)
    clocks = set(trace.ranks.loc[trace.ranks["rank"].isin(trace.events["rank"]), "clock"])
    clock = _EPOCH if clocks == {_EPOCH} else "own"
    scale = _Clock.of(trace.events["start_ns"], factor, _ORIGIN_NS if clock == _EPOCH else 0)
    # Ids that only callers or dependencies name count too.
    graph = ((trace.nodes, ("node", "parent")), (trace.dependencies, ("node", "needs")))
    of_nodes, of_edges = _counted(graph)
    names = [groups[name] for name in trace.process_groups["group"]]
    described = trace.process_groups.assign(group=names, description=None, backend=None)
    first_step = int(trace.steps["step"].min()) if len(trace.steps) else 0
    steps = trace.steps.assign(step=trace.steps["step"] - first_step, **scale.times(trace.steps))
    rows = [("obfuscated", "noted", SAYS_OBFUSCATED, 1, None)]
    rows += [("obfuscated", "noted", SAYS_SYNTHETIC, 1, None)] * trace.is_synthetic
    # What the ranks of the copy say of themselves, the loader finds in its files.
    unsaid = dict.fromkeys(("backend", "first_ns", "last_ns", "host"))
    return Trace.of(
        events=_events(trace.events, groups, scale, first_step),
        ranks=RANKS.of(trace.ranks.assign(source="obfuscated", clock=clock, **unsaid)),
        steps=STEPS.of(steps),
        process_groups=PROCESS_GROUPS.of(described),
        nodes=_nodes(trace.nodes, of_nodes, groups, factor),
        dependencies=DEPENDENCIES.of(trace.dependencies.assign(**of_edges)),
        quality=quality_frame(rows),
    )


def _new_folder(folder: Path, path: Paths) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = f"{folder} exists and is not an empty folder; name a new one"
        raise FileExistsError(msg)
    resolved = folder.resolve()
    for source in given_paths(path):
        given = Path(source).resolve()
        if given == resolved or given in resolved.parents:
            msg = f"{folder} lies in {source}, which is read; name a folder outside of it"
            raise LoadError(msg)
    return folder


def _factor(factor: float | None) -> float:
    if factor is None:
        drawn = secrets.SystemRandom()
        larger = drawn.uniform(*_DRAWN_FACTOR)
        return drawn.choice([larger, 1 / larger])
    # A comparison that also refuses what is not a number.
    if not _LEAST_FACTOR <= factor <= _MOST_FACTOR:
        msg = f"factor must be from {_LEAST_FACTOR} to {_MOST_FACTOR:.0f}, not {factor!r}"
        raise LoadError(msg)
    return float(factor)


@dataclass(frozen=True)
class _Clock:
    """One monotonic function for starts and ends of all ranks keeps order, nesting, offsets."""

    first_ns: int
    factor: float
    origin_ns: int

    @classmethod
    def of(cls, start: pd.Series, factor: float, origin_ns: int) -> _Clock:
        return cls(int(start.min()) if start.notna().any() else 0, factor, origin_ns)

    def times(self, frame: pd.DataFrame) -> dict[str, pd.Series]:
        """Return starts and durations again; missing ones stay missing."""
        start = frame["start_ns"].to_numpy(dtype=np.int64, na_value=self.first_ns)
        end = start + frame["dur_ns"].to_numpy(dtype=np.int64, na_value=0)
        begin, done = (np.rint((t - self.first_ns) * self.factor).astype(np.int64)
                       for t in (start, end))  # fmt: skip
        new = {"start_ns": begin + self.origin_ns, "dur_ns": done - begin}
        return {n: pd.Series(v, frame.index, "Int64").mask(frame[n].isna()) for n, v in new.items()}


def _groups(trace: Trace) -> dict[str, str]:
    names = dict.fromkeys(trace.process_groups["group"])
    for table in (trace.events, trace.nodes):
        names |= dict.fromkeys(table["group"].dropna().unique())
    return {str(name): str(number) for number, name in enumerate(names, start=1)}


def _events(
    events: pd.DataFrame, groups: dict[str, str], scale: _Clock, first_step: int
) -> pd.DataFrame:
    numbers = count()
    # Arguments requested by name, and shapes, which are widths of the model, are dropped.
    kept = [name for name, column in EVENTS.columns.items() if not column.optional]
    table = events[kept].assign(
        **scale.times(events),
        name=_names(events, first_step),
        category=_mapped(events["category"], lambda t: t if t in _CATEGORIES else UNCATEGORISED),
        process=_mapped(events["process"], lambda _: str(next(numbers))),
        thread=_mapped(events["thread"], lambda _: str(next(numbers))),
        collective=_mapped(
            events["collective"], lambda text: _spelled(operation_of(text)).lower() or None
        ),
        group=_mapped(events["group"], lambda text: groups[text]),
        dtype=_mapped(events["dtype"], lambda text: text if _DTYPES.fullmatch(text) else None),
        step=events["step"] - first_step,
        seq=_sequence(events),
        **{name: _rounded(events[name]) for name in ("size_bytes", "in_count", "out_count")},
        **_counted([(events, ("correlation", "external_id", "wait_correlation"))], none=(0, -1))[0],
        **_counted([(events, ("stream", "wait_stream"))], none=(0, -1))[0],
        autograd_seq=_counted([(events, ("autograd_seq",))])[0]["autograd_seq"].astype("Int32"),
    )
    return EVENTS.of(table)


def _mapped(column: pd.Series, name_of: Callable[[str], str | None]) -> pd.Categorical:
    texts = [name_of(str(text)) for text in column.cat.categories]
    return _categorical(column.cat.codes.to_numpy(np.int64), texts)


def _categorical(
    codes: npt.NDArray[np.integer[Any]], texts: Sequence[str | None]
) -> pd.Categorical:
    known = list(dict.fromkeys(text for text in texts if text is not None))
    position = {text: at for at, text in enumerate(known)}
    of_code = np.array([-1 if text is None else position[text] for text in texts] + [-1])
    categories = pd.Index(known, dtype="str")
    return pd.Categorical.from_codes(of_code[codes], categories=categories)


def _distinct(frame: pd.DataFrame) -> tuple[IntArray, list[tuple[str, ...]]]:
    """Return the distinct rows of texts in order of appearance, and the position of each row."""
    # In that order numbers say nothing about names.
    codes = frame.apply(lambda column: column.cat.codes)
    number = codes.groupby(list(codes), sort=False, observed=True).ngroup().to_numpy(np.int64)
    first = codes.drop_duplicates()
    texts = [
        [["", *map(str, frame[name].cat.categories)][code + 1] for code in first[name]]
        for name in first
    ]
    return number, list(zip(*texts, strict=True))


def _numbering() -> Callable[[str, str], str]:
    numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def numbered(word: str, name: str) -> str:
        of_word = numbers[word]
        return f"{word}_{of_word.setdefault(name, len(of_word) + 1)}"

    return numbered


def _names(events: pd.DataFrame, first_step: int) -> pd.Categorical:
    position, rows = _distinct(events[["name", "category", "kind"]])
    rules = classify([name for name, *_ in rows])["rule"]
    numbered, names = _numbering(), []
    for (name, category, kind), rule in zip(rows, rules, strict=True):
        if not name or _PUBLIC.fullmatch(name):
            names.append(name)
        elif (step := step_number(name)) is not None:
            names.append(f"ProfilerStep#{max(step - first_step, 0)}")
        elif kind:
            names.append(numbered(_kernel_word(name, kind, rule), name))
        else:
            is_loader = _DATA_LOADER.search(name[:_LONGEST_NAME])
            word = "DataLoader___next__" if is_loader else _WORDS.get(category, "event")
            names.append(numbered(word, name))
    return _categorical(position, names)


def _kernel_word(name: str, kind: str, rule: str) -> str:
    if kind == "communication":
        return kernel_name(operation_of(name))
    # Rules of the user's own are not available where the copy is read.
    is_fitting = rule in KERNEL_WORDS and (kind == "memory") == (rule in ("copy", "dma"))
    return KERNEL_WORDS[rule] if is_fitting else _KIND_WORDS[kind]


def kernel_name(operation: str) -> str:
    """Name a kernel that communicates so that its operation can be told."""
    prefix = "nccl" if operation in _ONLY_AS_PREFIX else "ncclDevKernel_"
    return (prefix + _spelled(operation)).rstrip("_")


def _spelled(operation: str) -> str:
    if operation == UNKNOWN:
        return ""
    return _SPELLED.get(operation) or operation.title().replace("-", "")


def _sequence(events: pd.DataFrame) -> pd.Series:
    key = events["group"].astype(object).where(events["group"].notna(), "")
    return events["seq"] - events["seq"].groupby(key, sort=False, observed=True).transform("min")


def _rounded(column: pd.Series) -> pd.Series:
    """Round to two significant digits, halves up."""
    values = column.to_numpy(dtype=np.float64, na_value=0.0)
    digits = np.floor(np.log10(np.maximum(np.abs(values), _LARGEST_EXACT / 10))).astype(np.int64)
    unit = 10 ** (digits - 1)
    whole = column.to_numpy(dtype=np.int64, na_value=0)
    rounded = (whole // unit + (whole % unit * 2 >= unit)) * unit
    return pd.Series(rounded, index=column.index, dtype="Int64").mask(column.isna())


def _counted(
    tables: Sequence[tuple[pd.DataFrame, Sequence[str]]], *, none: Sequence[int] = ()
) -> list[dict[str, pd.Series]]:
    """Count the ids of each rank again, from 1 in their order; equal ones stay equal.

    Ids in all columns of all tables are counted together.
    """
    columns = [table[name] for table, names in tables for name in names]
    ranks = [table["rank"] for table, names in tables for _ in names]
    ids = pd.DataFrame(
        {
            "rank": np.concatenate(ranks),
            "id": np.concatenate([c.to_numpy(dtype=np.int64, na_value=0) for c in columns]),
        }
    )
    is_id = ~(np.concatenate([c.isna() for c in columns]) | ids["id"].isin(none))
    number = ids[is_id].groupby("rank", observed=True)["id"].rank("dense").astype("int64")
    new = iter(np.split(number.reindex(ids.index).fillna(ids["id"]).astype("int64").to_numpy(),
                        np.cumsum([len(column) for column in columns])[:-1]))  # fmt: skip
    return [
        {n: pd.Series(next(new), table.index, "Int64").mask(table[n].isna()) for n in names}
        for table, names in tables
    ]


def _distributed(row: Any, described: pd.DataFrame) -> dict[str, Any]:
    world = {} if pd.isna(row.world_size) else {"world_size": int(row.world_size)}
    groups = [
        {"pg_name": group.group, "ranks": [int(text) for text in group.members.split(",") if text]}
        | ({} if pd.isna(group.group_size) else {"pg_size": int(group.group_size)})
        for group in described[described["rank"] == row.rank].itertuples()
    ]
    return {"rank": int(row.rank), **world, **({"pg_config": groups} if groups else {})}


def _nodes(
    nodes: pd.DataFrame, ids: dict[str, pd.Series], groups: dict[str, str], factor: float
) -> pd.DataFrame:
    table = nodes.assign(
        **ids,
        name=_node_names(nodes),
        type=_mapped(nodes["type"], lambda text: text if text in _NODE_TYPES else "COMP_NODE"),
        **_Clock.of(nodes["start_ns"], factor, 0).times(nodes),
        record_function=None,
        collective=_mapped(nodes["collective"], _node_collective),
        group=_mapped(nodes["group"], lambda text: groups[text]),
        size_bytes=_rounded(nodes["size_bytes"]),
    )
    return NODES.of(table)


def _node_collective(text: str) -> str | None:
    operation = operation_of(text)
    return None if operation == UNKNOWN else operation.replace("-", "_")


def _node_names(nodes: pd.DataFrame) -> pd.Categorical:
    is_cpu = nodes["is_cpu"].astype(object).map({True: "", False: "GPU"}).fillna("")
    position, rows = _distinct(
        nodes[["name", "collective"]].assign(device=is_cpu.astype("category"))
    )
    rules = classify([name for name, *_ in rows])["rule"]
    numbered, names = _numbering(), []
    for (name, collective, device), rule in zip(rows, rules, strict=True):
        word = KERNEL_WORDS.get(rule, "kernel") if device else "operator"
        names.append(numbered(_node_collective(collective) or word, name))
    return _categorical(position, names)


def _visible(trace: Trace) -> pd.DataFrame:
    """List what names and factor do not hide, with its values in the copy."""
    work = trace.events[trace.events["kind"].notna()]
    per_step = work.groupby(["rank", "step", "name"], observed=True).size()
    repeats = per_step.groupby("name", observed=True).median().round().value_counts()
    talk = trace.events[trace.events["collective"].notna()]
    sent = talk.dropna(subset=["in_count"]).drop_duplicates(["in_count", "dtype"])
    types = sent["dtype"].astype(object).fillna("")
    messages = [f"{n:,} {text}" for n, text in zip(sent["in_count"], types, strict=True)]
    sizes = pd.concat([work["size_bytes"], trace.nodes["size_bytes"]]).dropna().unique()
    words = work["name"].astype(str).str.replace(r"_?[0-9]+$", "", regex=True)
    members = [text for text in trace.process_groups["members"].unique() if text]
    of_size = Counter([text.count(",") + 1 for text in members])
    steps = per_step.groupby(["rank", "step"], observed=True).sum()
    facts = [
        ("ranks", f"{len(trace.ranks)}", "size of the job"),
        ("process groups", _some(f"{n} x {size} ranks" for size, n in sorted(of_size.items())),
         "how the job is parallelised"),
        ("steps", f"{len(trace.steps['step'].unique())}", "how long was recorded, in steps"),
        ("GPU work per step", f"{steps.median():.0f}" if len(steps) else "", "size of the model"),
        ("repeats of one kernel in a step", _some(f"{int(n)}" for n in repeats.index if n > 1),
         "multiples of the number of layers and of micro-batches"),
        ("kinds of work", _some(words.value_counts().index, most=20), "family of the model"),
        ("elements of messages, 2 digits", _some(messages),
         "products of hidden width, sequence and batch; parameters"),
        ("bytes of copies and nodes, 2 digits", _some(f"{n:,}" for n in sorted(sizes)[::-1] if n),
         "widths of tensors"),
        ("nodes", f"{len(trace.nodes)}" if len(trace.nodes) else "", "size of the graph"),
        ("ratios of times", "all", "every speed, for whoever knows one duration from elsewhere"),
    ]  # fmt: skip
    table = pd.DataFrame([fact for fact in facts if fact[1]], columns=list(VISIBLE.columns))
    return VISIBLE.of(table)


def _some(texts: Iterable[str], most: int = _LISTED) -> str:
    listed = list(dict.fromkeys(texts))
    return ", ".join(listed[:most]) + (
        f" and {len(listed) - most} more" if len(listed) > most else ""
    )
