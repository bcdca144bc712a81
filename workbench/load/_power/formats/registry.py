"""Readers of power telemetry, in the order in which they are tried."""

from __future__ import annotations

from workbench.load._power.formats import (
    amd_smi,
    codecarbon,
    dcgmi_dmon,
    hl_smi,
    ipmi,
    ptdaemon,
    redfish,
    zeus,
)
from workbench.load._power.formats import mlperf as mlperf_power
from workbench.load._power.formats import prometheus as prometheus_power
from workbench.load._power.formats.nvidia import capture as nvidia_capture
from workbench.load._power.formats.nvidia import console_table as nvidia_table
from workbench.load._power.formats.nvidia import dmon as nvidia_dmon
from workbench.load._power.formats.nvidia import polls as nvidia_smi
from workbench.load._power.formats.nvidia import query as nvidia_query
from workbench.load._power.formats.table import reader as power_table
from workbench.load._power.formats.table import recorded as recorded_power
from workbench.load._power.formats.table.pieces import PARQUET_MAGIC
from workbench.load._power.part import PowerFormat

# What is sure comes first; a plain table could be anything and is asked last.
FORMATS: tuple[PowerFormat, ...] = (
    nvidia_capture, nvidia_query, nvidia_dmon, hl_smi, nvidia_smi, nvidia_table, mlperf_power,
    ptdaemon, zeus, codecarbon, dcgmi_dmon, amd_smi, prometheus_power, redfish, ipmi,
    recorded_power, power_table,
)  # fmt: skip


def power_format_of(head: bytes, label: str) -> PowerFormat | None:
    """Return the reader for a file that begins like this; None if nobody knows it."""
    # Searching Parquet for the words of other formats takes as long as reading the file.
    if head.startswith(PARQUET_MAGIC):
        return power_table
    return next((format_ for format_ in FORMATS if format_.looks_like(head, label)), None)
