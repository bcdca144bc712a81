"""Which readers there are for power telemetry, in the order they are asked."""

from __future__ import annotations

from workbench.load import (
    amd_smi,
    codecarbon,
    dcgmi_dmon,
    dps,
    hl_smi,
    ipmi,
    mlperf_power,
    nvidia_capture,
    nvidia_dmon,
    nvidia_query,
    nvidia_smi,
    nvidia_table,
    power_table,
    prometheus_power,
    ptdaemon,
    recorded_power,
    redfish,
    zeus,
)
from workbench.load._power_part import PowerFormat

# What is sure comes first; a plain table could be anything and is asked last.
FORMATS: tuple[PowerFormat, ...] = (
    nvidia_capture,
    nvidia_query,
    nvidia_dmon,
    hl_smi,  # names power.draw as nvidia-smi does, and a temperature that only it has
    nvidia_smi,
    nvidia_table,
    mlperf_power,
    ptdaemon,
    zeus,
    codecarbon,
    dcgmi_dmon,
    dps,
    amd_smi,
    prometheus_power,
    redfish,
    ipmi,
    recorded_power,
    power_table,
)


def power_format_of(head: bytes, label: str) -> PowerFormat | None:
    """Give the reader for a file that begins like this; None if nobody knows it."""
    return next((each for each in FORMATS if each.looks_like(head, label)), None)
