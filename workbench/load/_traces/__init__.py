"""Load: profiler and execution traces."""

from workbench.load._traces.chakra.writing import write_chakra
from workbench.load._traces.chrome_writing import write_chrome_trace
from workbench.load._traces.execution.operator_calls import operator_calls
from workbench.load._traces.execution.operator_script import (
    operator_replay,
    write_operator_benchmark,
)
from workbench.load._traces.reader import traces

__all__ = [
    "operator_calls",
    "operator_replay",
    "traces",
    "write_chakra",
    "write_chrome_trace",
    "write_operator_benchmark",
]
