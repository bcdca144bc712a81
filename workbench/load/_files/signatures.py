"""The register of signatures: by what files of each format are known, and the module that reads.

The rows of a kind stand in the order in which formats are asked: certain ones first. The ``mark``
of a row is found in the first bytes of every file of the format. Other files may hold it, too, so
its module decides (``looks_like``), and is imported only then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, eq=False)
class Signature:
    """A format before its module is imported.

    Attributes
    ----------
    module
        The module that reads it, below ``workbench.load``.
    mark
        Pattern in the first bytes of every file of the format.
    anywhere
        Of lines that stand among those of other programs: bytes of which a file holds one if the
        program wrote anything that matters, perhaps gigabytes after its beginning.
    name, read, opens
        Of traces: the name in the tables, the function that reads, and the one that opens a file
        to be sure, where databases of several tools begin alike.
    """

    module: str
    mark: re.Pattern[bytes]
    anywhere: tuple[bytes, ...] = ()
    name: str = ""
    read: str = ""
    opens: str = ""

    @property
    def reader(self) -> Any:
        """The module, which is imported when it is first needed."""
        return import_module(f"workbench.load.{self.module}")

    @property
    def reads(self) -> Callable[..., Any]:
        """The function that reads a trace."""
        function: Callable[..., Any] = getattr(self.reader, self.read)
        return function

    def fits(self, head: bytes, label: str) -> bool:
        """Return whether a file that begins like this is of the format."""
        return self.mark.search(head) is not None and self.reader.looks_like(head, label)


def fitting(formats: Sequence[Signature], head: bytes, label: str) -> Signature | None:
    """Return the first format that a file fits; None if there is none."""
    return next((row for row in formats if row.fits(head, label)), None)


_DATABASE, _PARQUET = rb"\ASQLite format 3\0", rb"\APAR1"


def _trace(name: str, module: str, mark: bytes, read: str, opens: str = "") -> Signature:
    return Signature(f"_traces.{module}", re.compile(mark), (), name, read, opens)


# Kineto, which most files are, is asked between the two groups by its list of events.
FORMATS_BEFORE_KINETO: tuple[Signature, ...] = (
    _trace("xprof json", "xplane.json_form", rb'"/(?:device:[GT]PU:\d|host:CPU)', "xprof_json"),
    _trace("ascend", "ascend", rb"\A\s*\[\s*\{", "ascend"),
)
TRACE_FORMATS: tuple[Signature, ...] = (
    _trace("nsight", "nsight.reader", _DATABASE + rb"|" + _PARQUET, "nsight", "is_export"),
    _trace("rocpd", "rocm.rocpd", _DATABASE, "rocpd", "is_rocpd"),
    _trace("rocprofv3", "rocm.rocprofv3", rb'\A\s*\{\s*"rocprofiler-sdk-tool"', "rocprofv3"),
    _trace("xplane", "xplane.reader", rb"\A\x0a", "xplane"),
    _trace("perfetto", "perfetto.reader", rb"\A\x0a", "perfetto"),
    _trace("parquet", "parquet", _PARQUET, "parquet", "is_stored"),
    _trace("chakra", "chakra.reader", rb"", "chakra"),
    _trace("execution trace", "execution.reader", rb'"schema"', "execution_trace"),
    _trace("kineto", "kineto.reader", rb"", "kineto"),
)

# Profilers other than Kineto, of which a file may hold several ranks, and graphs of operators.
GRAPHS = ("chakra", "execution trace")
PROFILES = {
    row.name: row
    for row in (*FORMATS_BEFORE_KINETO, *TRACE_FORMATS)
    if row.name not in ("kineto", "parquet", *GRAPHS)
}


def _power(module: str, mark: bytes) -> Signature:
    return Signature(f"_power.formats.{module}", re.compile(mark, re.MULTILINE))


# A plain table could be anything and is asked last; Parquet holds words of other formats as names.
POWER_FORMATS: tuple[Signature, ...] = (
    _power("table.reader", _PARQUET),
    _power("nvidia.capture", rb"nvidia_gpu_exporter GPU capture"),
    _power("nvidia.query", rb"NVSMI LOG="),
    _power("nvidia.dmon", rb"#[^\n]*pwr"),
    _power("hl_smi", rb"\.aip\b|\bHL-\d{3}"),
    _power("nvidia.polls", rb'power\.draw|\A[\s"]*\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:'),
    _power("nvidia.console_table", rb"Pwr:Usage/Cap"),
    _power("mlperf", rb":::(?:MLLOG|SYSJSON|DLPAL)|^Total Power Usage: "),
    _power("ptdaemon", rb",Watts,"),
    _power("zeus", rb"window_name"),
    _power("codecarbon", rb"emissions"),
    _power("dcgmi_dmon", rb"#\s*Entity"),
    _power("amd_smi", rb"(?i)socket_power|package power|power_usage|accumulated energy"
                      rb"|total_energy_consumption"),
    _power("prometheus", rb'^# (?:HELP|TYPE) |^(?:DCGM_FI_|kepler_node_|nvidia_smi_|ipmi_)'
                         rb'|"(?:resultType|errorType|fields)"'),
    _power("redfish", rb'"(?:PowerWatts|PowerControl|MetricValues|PowerConsumedWatts'
                      rb'|InputPowerWatts|EnergykWh|ReadingUnits)"'),
    _power("ipmi", rb"(?i)power reading|current power|power measurement|\bwatts\b"),
    _power("table.recorded", rb'"workbench_recording"'),
    _power("table.reader", rb""),
)  # fmt: skip


# Bytes of which a console log holds one if the program wrote anything that matters, rarely at its
# beginning.
MEGATRON_LINES = (
    b"elapsed time per iteration (", b" arguments ------", b"[before the start of training step]",
)  # fmt: skip
TORCHELASTIC_LINES = (b"Root Cause (first observed failure)", b"ChildFailedError")
NVRX_LINES = (b" Event: failure_detected Node: ", b" Event: rendezvous_started Node: ")
NCCL_LINES = (
    b"ProcessGroupNCCL.cpp", b"NCCL WARN", b"Watchdog caught collective operation timeout",
    b"watchdog thread terminated with exception", b"watchdog got stuck for",
)  # fmt: skip
NCCL_RAS_LINES = (b"Communicators... (",)
SLURM_LINES = (
    b" CANCELLED AT ", b"oom-kill event", b"oom_kill event", b"srun: error: ",
    b"slurmstepd: error: ", b" memory limit",
)  # fmt: skip


def _log(module: str, mark: bytes, lines: tuple[bytes, ...] = ()) -> Signature:
    return Signature(f"_failures.formats.{module}", re.compile(mark, re.MULTILINE), lines)


# Files that hold one thing; then lines that many programs may have written into one console log.
FAILURE_FILES: tuple[Signature, ...] = (
    _log("fabric_manager", rb"\] \[tid \d"),
    _log("slurm", rb"JobID"),
    _log("ml_goodput", rb'"job_name"'),
    _log("goodput_events", rb'"event"'),
    _log("kubernetes_events", rb'"(?:involvedObject|regarding)"'),
    _log("prometheus_xid", rb'^(?:# (?:HELP|TYPE) )?DCGM_|"resultType"'),
    _log("torchft", rb'"replica_id"'),
)
CONSOLE_LOGS: tuple[Signature, ...] = (
    _log("megatron", b"|".join(map(re.escape, MEGATRON_LINES)), MEGATRON_LINES),
    _log(
        "torchelastic", rb'\A\s*\{\s*"message"|Root Cause \(first|ChildFailedError',
        TORCHELASTIC_LINES,
    ),
    _log("nvrx", rb'- Cycle: |"cycle_start_time"|"job_id"', NVRX_LINES),
    _log("nccl_log", b"|".join(map(re.escape, NCCL_LINES)), NCCL_LINES),
    _log("nccl_ras", rb"Communicators\.\.\.", NCCL_RAS_LINES),
    _log("slurm_output", rb"CANCELLED AT |oom[-_]kill|memory limit|srun: error: ", SLURM_LINES),
)  # fmt: skip
# The kernel's messages, which any log of a machine may hold.
KERNEL_LOG = _log("kernel_log", rb"")
FAILURE_FORMATS: tuple[Signature, ...] = (*FAILURE_FILES, *CONSOLE_LOGS, KERNEL_LOG)
