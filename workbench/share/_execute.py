"""Run a notebook in a fresh kernel of this Python, always under the same conditions."""

from __future__ import annotations

import asyncio
import atexit
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workbench._shared.extras import import_nbformat, need
from workbench._shared.progress import progress
from workbench.errors import PublishError

_KERNEL_NAME = "python3"
_KERNEL_ENVIRONMENT = {
    "PLOTLY_RENDERER": "plotly_mimetype",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    # Sets in an order of their own would change outputs from run to run.
    "PYTHONHASHSEED": "0",
    "TQDM_DISABLE": "1",
}
_KERNEL_LOG = "kernel.log"
_LONGEST_SOCKET = 80  # characters of its folder; the system allows about 107 in all
_INJECTED = "injected-parameters"
_PLAIN = (str, int, float, bool, type(None), list, tuple, dict)


def read(path: Path) -> Any:
    """Read a notebook."""
    need("nbconvert", extra="lab", purpose="running notebooks")
    import_nbformat()
    import nbformat

    try:
        return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError:
        msg = f"{path}: there is no such notebook"
        raise PublishError(msg) from None
    except Exception as error:  # nbformat raises whatever its readers raise
        msg = f"{path} is not a Jupyter notebook ({type(error).__name__}: {error})"
        raise PublishError(msg) from error


def inject(notebook: Any, parameters: Mapping[str, Any], path: Path) -> None:
    """Set the variables of the cell tagged ``parameters`` to other values.

    As papermill does, a cell with the new values follows that cell; one left
    there by an earlier run is replaced.
    """
    if not parameters:
        return
    from nbformat.v4 import new_code_cell

    notebook.cells = [c for c in notebook.cells if _INJECTED not in c.metadata.get("tags", [])]
    tagged = _parameter_cells(notebook)
    if not tagged:
        msg = (
            f"{path}: no cell is tagged 'parameters', so {', '.join(parameters)} cannot be set; "
            "tag the cell that defines them (JupyterLab: property inspector, Cell Tags)"
        )
        raise PublishError(msg)
    if odd := [name for name, value in parameters.items() if not isinstance(value, _PLAIN)]:
        msg = f"{path}: parameter {odd[0]!r} must be a text, number, list or dictionary"
        raise PublishError(msg)
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    cell = new_code_cell(source)  # type: ignore[no-untyped-call]
    cell.metadata["tags"] = [_INJECTED]
    notebook.cells.insert(tagged[0] + 1, cell)


def has_parameters(notebook: Any) -> bool:
    """Return whether a notebook has a cell tagged ``parameters``."""
    return bool(_parameter_cells(notebook))


def execute(  # noqa: PLR0913 - one run and all its conditions
    notebook: Any,
    path: Path,
    *,
    timeout_s: float,
    preamble: str = "",
    go_on: bool = False,
    show_progress: bool = True,
    loop: LoopThread | None = None,
) -> None:
    """Run every cell of a notebook in its folder; outputs are replaced, widget state is kept.

    The preamble runs first and leaves no trace in the notebook. Notebooks that run side by side
    share a loop; closing it stops their kernels.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    at = [0]
    shift = _put_preamble(notebook, preamble)
    bar = progress(total=len(notebook.cells), unit="cells", label=path.name, enabled=show_progress)
    with bar, _kernel() as (manager, environment), ExitStack() as own:
        loop = loop or own.enter_context(LoopThread())
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=timeout_s,
            allow_errors=go_on,
            record_timing=False,
            store_widget_state=True,
            extra_arguments=["--IPKernelApp.log_level=40"],
            resources={"metadata": {"path": str(path.parent)}},
            on_cell_start=lambda cell, cell_index: at.__setitem__(0, cell_index),  # noqa: ARG005
            on_cell_complete=lambda cell, cell_index: bar.update(1),  # noqa: ARG005
        )
        client.owns_km = True  # this client shuts the kernel down, whatever happens
        try:
            loop.wait(_run(client, manager, environment))
        except CellExecutionError as error:
            msg = f"{path}, cell {at[0] + 1 - shift}: {error.ename}: {error.evalue}"
            raise PublishError(msg) from error
        except CellTimeoutError as error:
            msg = f"{path}, cell {at[0] + 1 - shift} took longer than {timeout_s:g} s"
            raise PublishError(msg) from error
        except DeadKernelError as error:
            msg = (
                f"{path}, cell {at[0] + 1 - shift}: the kernel died, most often for lack of memory"
                f"{_last_words(environment)}"
            )
            raise PublishError(msg) from error
    # The preamble leaves no trace, so cell numbers are those of the reader again.
    del notebook.cells[:shift]


async def _run(client: Any, manager: Any, environment: Mapping[str, str]) -> None:
    """Run the cells, and leave no kernel behind, even one that was still starting.

    A kernel that is stopped while it starts prints a traceback of its own, which would look like
    one of ours: what kernels print past their cells goes to a file.
    """
    log = Path(environment["IPYTHONDIR"], _KERNEL_LOG)
    try:
        with log.open("wb") as words:
            await client.async_execute(env=dict(environment), stdout=words, stderr=words)
    finally:
        # nbclient has it run at the end of the process, when there is no kernel to stop.
        atexit.unregister(client._cleanup_kernel)
        if manager.has_kernel:
            await manager.shutdown_kernel(now=True)


def _last_words(environment: Mapping[str, str]) -> str:
    log = Path(environment["IPYTHONDIR"], _KERNEL_LOG)
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f" (it ended with: {last[:200]})" if last else ""


def failures(notebook: Any) -> Iterator[tuple[int, Any]]:
    """Go through the outputs that are errors, as cell number from 1 and output."""
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                yield number, output


def _parameter_cells(notebook: Any) -> list[int]:
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    return [number for number, names in enumerate(tags) if "parameters" in names]


def _put_preamble(notebook: Any, preamble: str) -> int:
    from nbformat.v4 import new_code_cell

    if preamble:
        cell = new_code_cell(preamble)  # type: ignore[no-untyped-call]
        notebook.cells.insert(0, cell)
    return int(bool(preamble))


@contextmanager
def _kernel() -> Iterator[tuple[Any, dict[str, str]]]:
    """Prepare a kernel of this very Python that reads no start-up files of the user."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
            return KernelSpec(argv=command, display_name=kernel_name, language="python")

    manager = AsyncKernelManager(
        kernel_name=_KERNEL_NAME, kernel_spec_manager=ThisPython(), shutdown_wait_time=2.0
    )
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        # Sockets, where a system has them: ports that are free now may be another kernel's soon.
        if hasattr(socket, "AF_UNIX") and len(folder) < _LONGEST_SOCKET:
            manager.transport, manager.ip = "ipc", f"{folder}/kernel"
        yield manager, {**os.environ, **_KERNEL_ENVIRONMENT, "IPYTHONDIR": folder}


# An event loop in a thread of its own.

_CLEAN_UP_S = 20.0


class LoopThread:
    """Run coroutines from ordinary code: ``with LoopThread() as loop: loop.wait(work())``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._accepting = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wait(self, work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """Run a coroutine and give its result.

        If the wait ends early (Ctrl-C, time out), the coroutine is cancelled and
        has time to clean up before the exception goes on.
        """
        ended = threading.Event()

        async def watched() -> Any:
            try:
                return await work
            finally:
                ended.set()

        # Accepted before the loop is closed or never: what came in between was not cancelled by
        # close(), and waited for a loop that had stopped.
        with self._accepting:
            if self._is_closed:
                work.close()
                msg = "the loop is closed; open another LoopThread for more work"
                raise RuntimeError(msg)
            future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            if not ended.is_set():
                future.cancel()
                ended.wait(_CLEAN_UP_S)
            raise

    def close(self) -> None:
        """Accept no more work, cancel what still runs, stop the loop and end the thread."""
        with self._accepting:
            if self._is_closed:
                return
            self._is_closed = True
        last = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        try:
            last.result(_CLEAN_UP_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLEAN_UP_S)
            if not self._thread.is_alive():
                self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), _CLEAN_UP_S / 2)
