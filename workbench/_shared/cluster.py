"""Tasks on the workers of a Dask cluster: futures, a few in flight at a time."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from workbench.errors import MissingExtraError, WorkbenchError

# Tasks that wait at a worker: one to run, one to follow at once.
_TASKS_PER_WORKER = 2
# Parameters of mallopt, what they are unless set, and what glibc lets them grow to by itself.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES, _GROWN_MMAP_BYTES, _GROWN_TRIM_BYTES = 1 << 17, 32 << 20, 64 << 20
_holding = threading.Event()  # in the process of a worker: it holds on to freed memory

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_cluster(
    client: Any, function: Callable[..., Result], items: Iterable[Item], *shared: Any
) -> Iterator[tuple[Item, Result | Exception]]:
    """Run ``function`` on every item at some worker; results come as they are ready.

    Of a thousand items only a few are in flight, so that results do not pile up. A task whose
    worker dies is run by another one; one that kills them all is an error in place of its result.
    Further arguments, ``shared`` by all items, travel to each worker once.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        msg = "a cluster needs Dask; pip install 'ai-infra-workbench[cluster]'"
        raise MissingExtraError(msg) from error
    try:
        yield from _results(client, distributed, function, items, shared)
    finally:
        # Workers that were lost or cannot be asked any more have nothing to be set back.
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            client.run(_hold_memory, hold=False, on_error="ignore")


def batches_on_cluster(
    client: Any,
    function: Callable[[Sequence[Item]], Sequence[Result | Exception]],
    batches: Iterable[Sequence[Item]],
) -> Iterator[tuple[Item, Result | Exception]]:
    """Run ``function`` on several items at a time; it returns a result for each.

    Of a batch that kills its workers each item is tried alone, so that one error is in place of the
    result of one item.
    """
    alone: list[Sequence[Item]] = []
    for batch, results in on_cluster(client, function, batches):
        if not isinstance(results, Exception):
            yield from zip(batch, results, strict=True)
        elif len(batch) == 1:
            yield batch[0], results
        else:
            alone += [(item,) for item in batch]
    if alone:
        for (item,), results in on_cluster(client, function, alone):
            yield item, results if isinstance(results, Exception) else results[0]


def _results(
    client: Any,
    distributed: Any,
    function: Callable[..., Result],
    items: Iterable[Item],
    shared: tuple[Any, ...],
) -> Iterator[tuple[Item, Result | Exception]]:
    suspects = []
    sent = [_sent(client, value) for value in shared]

    def submit(item: Item) -> Any:
        return client.submit(_unpacked, function, item, *sent, pure=False)

    limit = _TASKS_PER_WORKER * max(sum(client.nthreads().values()), 1)
    for item, result in _in_flight(client, distributed, submit, items, limit):
        if isinstance(result, distributed.KilledWorker):
            suspects.append(item)
        else:
            yield item, result
    # A task that waits at a worker which dies is suspected as well, so each is tried alone.
    for item, result in _in_flight(client, distributed, submit, suspects, 1):
        if isinstance(result, distributed.KilledWorker):
            first = item[0] if isinstance(item, tuple) and item else item
            shown = getattr(first, "label", item)
            yield item, WorkbenchError(f"{shown}: its workers died, of memory perhaps ({result})")
        else:
            yield item, result


def _sent(client: Any, value: Any) -> Any:
    """Give a future of a value as bytes, which a worker that has lost it can make again.

    Workers that pass a model on to each other take it apart, and forget that its hooks are ordered;
    bytes stay as they are.
    """
    pickling = importlib.import_module("distributed.protocol.pickle")
    config = importlib.import_module("dask").config
    # A model of 100 MB is meant to be sent: Dask warns from 10 MB on.
    with config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        return client.submit(bytes, pickling.dumps(value), pure=False)


def _unpacked(function: Callable[..., Result], item: Item, *shared: bytes) -> Result:
    """Run a task on values of its own, which no other thread of the worker sees."""
    _hold_memory(hold=True)
    loads = importlib.import_module("distributed.protocol.pickle").loads
    return function(item, *map(loads, shared))


def _hold_memory(*, hold: bool) -> None:
    """Have malloc keep some freed memory for the next task, or give it back as the worker was told.

    Dask starts workers with a low threshold of giving memory back. With that set, glibc maps each
    array again, and the system has to clear its pages. Tasks get the thresholds that glibc reaches
    by itself in other processes; whoever has set more than Dask does is not overruled.
    """
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    is_chosen = "MALLOC_MMAP_THRESHOLD_" in os.environ or "glibc.malloc." in tunables
    if sys.platform != "linux" or hold == _holding.is_set() or is_chosen or not told.isdecimal():
        return
    libc = ctypes.CDLL(None)
    if int(told) >= _GROWN_TRIM_BYTES or not hasattr(libc, "gnu_get_libc_version"):
        return
    libc.mallopt(_M_MMAP_THRESHOLD, _GROWN_MMAP_BYTES if hold else _MMAP_BYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, _GROWN_TRIM_BYTES if hold else int(told))
    if hold:
        _holding.set()
    else:
        _holding.clear()
        libc.malloc_trim(0)


def _in_flight(
    client: Any,
    distributed: Any,
    submit_one: Callable[[Item], Any],
    items: Iterable[Item],
    limit: int,
) -> Iterator[tuple[Item, Result | Exception]]:
    """Run tasks, at most ``limit`` at a time; the death of its workers is a task's result."""
    waiting, tasks = iter(items), {}

    def submit() -> Any:
        for item in waiting:
            task = submit_one(item)
            tasks[task] = item
            return task
        return None

    running = distributed.as_completed([task for _ in range(limit) if (task := submit())])
    try:
        for task in running:
            item = tasks.pop(task)
            try:
                result = task.result()
            except distributed.KilledWorker as error:
                result = error
            task.release()
            if (follower := submit()) is not None:
                running.add(follower)
            yield item, result
    finally:
        client.cancel(list(tasks))


def missing_on_worker(label: str) -> WorkbenchError:
    return WorkbenchError(
        f"{label}: not found on worker {socket.gethostname()}; workers must see the files under "
        "the same paths"
    )
