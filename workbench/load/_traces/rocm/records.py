"""Records of ROCm's profilers, whatever file holds them, in the shape of Kineto's rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from workbench._shared.collective_names import UNKNOWN, operation_of
from workbench.load._files.findings import Findings, Row
from workbench.load._files.json_events import to_integer
from workbench.load._traces.columns import Codes, IntArray, Rows, coded
from workbench.load._traces.kineto.blocks import MISSING, Texts

RCCL = "rccl_api"
# What a domain of ROCm is called begins with one of these, in any version; the first decides.
_CATEGORIES = {
    "kernel_dispatch": "kernel", "memory_copy": "gpu_memcpy", "hip": "cuda_runtime",
    "hsa": "cuda_driver", "marker": "user_annotation", "roctx": "user_annotation", "rccl": RCCL,
}  # fmt: skip
ON_GPU = frozenset({"kernel", "gpu_memcpy"})
_LAUNCHING = ("cuda_runtime", "cuda_driver")
# Kineto's words for the direction of a copy, by which analyses tell them apart.
_COPIES = {
    "HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}  # fmt: skip
_RCCL_KERNEL = re.compile(r"^(?:void )?(?:nccl|rccl)", re.IGNORECASE)
_SYMBOL_ENDS = (" [clone .kd]", ".kd")
# Sums and differences of times stay inside 64 bits.
_LATEST_NS = 1 << 61


def category_of(domain: str) -> str:
    """Return the category of the rows of a domain.

    Examples
    --------
    >>> category_of("HIP_RUNTIME_API"), category_of("rocm_rccl_api"), category_of("cpu_op")
    ('cuda_runtime', 'rccl_api', 'cpu_op')
    """
    name = domain.lower().removeprefix("rocm_")
    return next((known for start, known in _CATEGORIES.items() if name.startswith(start)), name)


def kernel_name(symbol: str) -> str:
    """Return the name of a kernel without the ending of its symbol.

    Examples
    --------
    >>> kernel_name("__amd_rocclr_copyBuffer.kd"), kernel_name("gemm(float*) [clone .kd]")
    ('__amd_rocclr_copyBuffer', 'gemm(float*)')
    """
    ending = next((ending for ending in _SYMBOL_ENDS if symbol.endswith(ending)), "")
    return symbol.removesuffix(ending)


def copy_name(operation: str) -> str:
    """Return Kineto's name of a copy.

    Examples
    --------
    >>> copy_name("MEMORY_COPY_HOST_TO_DEVICE"), copy_name("MEMORY_COPY_NONE")
    ('Memcpy HtoD', 'MEMORY_COPY_NONE')
    """
    words = operation.upper()
    return next((f"Memcpy {to}" for said, to in _COPIES.items() if words.endswith(said)), operation)


@dataclass
class Records:
    """Records of one domain, a number per record in each column."""

    category: str
    start: IntArray
    end: IntArray
    name: Codes
    thread: IntArray
    numbers: dict[str, IntArray] = field(default_factory=dict)

    @property
    def is_on_gpu(self) -> bool:
        return self.category in ON_GPU

    def take(self, rows: npt.NDArray[np.bool_]) -> Records:
        """Return some of the records."""
        columns = (self.start[rows], self.end[rows], self.name[rows], self.thread[rows])
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        return Records(self.category, *columns, numbers)

    def rows(self, pid: int | IntArray | None, texts: Texts, findings: Findings) -> Rows:
        """Return the rows of the records that have both times; ``pid`` of all, or of each."""
        # MISSING lies below the limit.
        unread = np.any(
            [np.clip(t, -_LATEST_NS, _LATEST_NS) != t for t in (self.start, self.end)], 0
        )
        findings.add(
            "dropped", f"{self.category} records without a readable time", int(unread.sum())
        )
        dur = np.where(unread, 0, self.end) - np.where(unread, 0, self.start)
        count = len(self.start)
        pids = np.full(count, MISSING if pid is None else pid, np.int64)
        process = coded(pids, lambda number: _spelled(number, ""), texts)
        thread = self.numbers.get("stream", self.thread) if self.is_on_gpu else self.thread
        prefix = "stream " if self.is_on_gpu else ""
        spelled = coded(thread, lambda number: _spelled(number, prefix), texts)
        category = np.full(count, texts.code(self.category) if self.category else -1, np.int32)
        rows = Rows(self.start, dur, self.name, category, process, spelled, self.numbers)
        return rows.take(~unread) if unread.any() else rows


def _spelled(number: int, prefix: str) -> str:
    return "" if number == MISSING else f"{prefix}{number}"


def name_collectives(records: Sequence[Records], texts: Texts, findings: Findings) -> None:
    """Add to RCCL kernels the collective that was called, where calls of RCCL were traced.

    A kernel belongs to the call inside which it was launched, on the thread that launched it, or
    whose correlation it has. The end of a group launches what was called before it.
    """
    names = texts.all()
    calls = [one for one in records if one.category == RCCL and len(one.start)]
    if not calls:
        return
    by_thread = _calls_by_thread(calls, names)
    launches = _launches([one for one in records if one.category in _LAUNCHING])
    of_call = _launches(calls)
    # The last is for rows without a name.
    is_rccl = np.array([*(bool(_RCCL_KERNEL.match(name)) for name in names), False], np.bool_)
    for one in records:
        if one.category != "kernel" or "correlation" not in one.numbers:
            continue
        named = np.full(len(one.start), MISSING, np.int64)
        for row in np.flatnonzero(is_rccl[one.name]).tolist():
            correlation = int(one.numbers["correlation"][row])
            launch = launches.get(correlation) or of_call.get(correlation)
            if launch is not None and (call := _call_before(by_thread, *launch)) is not None:
                named[row] = texts.code(call)
        one.numbers["Collective name"] = named
        finding = "RCCL kernels without the call that started them, so without their collective"
        findings.add("noted", finding, int((is_rccl[one.name] & (named == MISSING)).sum()))


# Of each thread the starts of its calls, and for each call its end and its collective.
_Calls = Mapping[int, tuple[IntArray, list[tuple[int, str]]]]


def _calls_by_thread(calls: Sequence[Records], names: Sequence[str]) -> _Calls:
    listed: dict[int, list[tuple[int, int, str]]] = {}
    for one in calls:
        columns = (one.thread.tolist(), one.start.tolist(), one.end.tolist(), one.name.tolist())
        for thread, start, end, name in zip(*columns, strict=True):
            text = names[name] if name >= 0 else ""
            listed.setdefault(thread, []).append((start, end, text))
    return {
        thread: (np.array([start for start, _, _ in rows]), [(end, name) for _, end, name in rows])
        for thread, rows in ((thread, sorted(rows)) for thread, rows in listed.items())
    }


def _launches(calls: Sequence[Records]) -> dict[int, tuple[int, int]]:
    """Return thread and start of the call with each correlation; 0 stands for none."""
    found: dict[int, tuple[int, int]] = {}
    for one in calls:
        ids = one.numbers.get("correlation", np.zeros(len(one.start), np.int64))
        columns = (ids.tolist(), one.thread.tolist(), one.start.tolist())
        found |= {number: (thread, start) for number, thread, start in zip(*columns, strict=True)}
    return {number: call for number, call in found.items() if number not in (0, MISSING)}


def _call_before(calls: _Calls, thread: int, time: int) -> str | None:
    """Return the collective called at a time on a thread; None outside calls."""
    if thread not in calls:
        return None
    starts, rows = calls[thread]
    at = int(np.searchsorted(starts, time, side="right")) - 1
    if at < 0 or time > rows[at][0]:
        return None
    while at >= 0 and operation_of(rows[at][1]) == UNKNOWN:
        at -= 1
    return rows[at][1] if at >= 0 else None


def streams_or_queues(stream: IntArray, queue: IntArray) -> IntArray:
    """Return the stream of each row, or the queue where no stream is told.

    Before ROCm 6.4 records have no stream; later ones have 0 where streams were not traced.
    """
    is_told = ((stream != 0) & (stream != MISSING)).any()
    return stream if is_told or (queue == MISSING).all() else queue


def device_property(
    index: int | None, name: object, text: Callable[[str], object], memory_bytes: int | None
) -> Row:
    """Return a GPU in Kineto's words, its numbers as ``text`` knows them by ROCm's names."""
    version = text("gfx_target_version")
    target = version if isinstance(version, int) else 0
    return {
        "id": index, "name": name if isinstance(name, str) else "", "totalGlobalMem": memory_bytes,
        "computeMajor": target // 10_000 if target else None,
        "computeMinor": target // 100 % 100 if target else None, "numSms": text("cu_count"),
    }  # fmt: skip


def integers(values: Sequence[object]) -> IntArray:
    """Return numbers as int64, MISSING for what is none or too large."""
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    numbers = (to_integer(value) for value in values)
    return np.array([MISSING if number is None else number for number in numbers], np.int64)


def replaced(values: IntArray, table: Mapping[int, int]) -> IntArray:
    """Return what ``table`` has for each value, MISSING where it has none."""
    return joined(values, integers(list(table)), integers(list(table.values())))


def joined(values: IntArray, keys: IntArray, results: IntArray) -> IntArray:
    """Return for each value the result of the last key equal to it, MISSING where none is."""
    if not len(keys):
        return np.full(len(values), MISSING, np.int64)
    by_key = np.argsort(keys, kind="stable")
    at = np.maximum(np.searchsorted(keys[by_key], values, side="right") - 1, 0)
    row = by_key[at]
    return np.where(keys[row] == values, results[row], MISSING)
