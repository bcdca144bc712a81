"""Which readers there are for power telemetry, in the order they are asked."""

from __future__ import annotations

from workbench.load import (
    codecarbon,
    dcgmi_dmon,
    dps,
    mlperf_power,
    nvidia_capture,
    nvidia_dmon,
    nvidia_query,
    nvidia_smi,
    zeus,
)
from workbench.load._power_part import PowerFormat

FORMATS: tuple[PowerFormat, ...] = (
    nvidia_capture,
    nvidia_query,
    nvidia_dmon,
    nvidia_smi,
    mlperf_power,
    zeus,
    codecarbon,
    dcgmi_dmon,
    dps,
    nvidia_smi, mlperf_power, zeus, codecarbon, dcgmi_dmon, dps,
)  # fmt: skip


def power_format_of(head: bytes, label: str) -> PowerFormat | None:
    """Give the reader for a file that begins like this; None if nobody knows it."""
    return next((each for each in FORMATS if each.looks_like(head, label)), None)
