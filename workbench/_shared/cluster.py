"""Tasks on the workers of a Dask cluster: futures, a few in flight at a time."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from workbench.errors import MissingExtraError, WorkbenchError

# Tasks that wait at a worker: one to run, one to follow at once.
_TASKS_PER_WORKER = 2

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
            shown = getattr(item, "label", item)
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
    loads = importlib.import_module("distributed.protocol.pickle").loads
    return function(item, *map(loads, shared))


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
