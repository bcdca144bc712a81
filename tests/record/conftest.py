# ruff: noqa: N802 - the names are those of the library
"""A driver's library that is made up, so that machines without a GPU can test what asks it."""

import sys
from types import SimpleNamespace

import pytest


class NVMLError(Exception):
    """As the driver's library raises it."""


class FakeNvml:
    """Two GPUs; what is in ``refuses`` is answered with an error."""

    NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT = 185, 186
    NVML_SUCCESS, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_PERF_POLICY_POWER = 0, 1, 0, 0
    NVMLError = NVMLError

    def __init__(self):
        self.refuses = set()
        self.architecture = 9
        self.is_shut = False

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuses"):

            def refuse(*words):
                raise NVMLError(*["Not Supported"])

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        return None

    def nvmlShutdown(self):
        self.is_shut = True

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetArchitecture(self, handle):
        return self.architecture

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle):
        return [200_000, 700_000]

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle):
        return 700_000

    def nvmlSystemGetDriverVersion(self):
        return b"590.48"

    def nvmlDeviceGetMigMode(self, handle):
        return [0, 0]

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}"

    def nvmlDeviceGetPowerUsage(self, handle):
        return 500_123 + handle

    def nvmlDeviceGetFieldValues(self, handle, fields):
        value = SimpleNamespace(uiVal=501_000 if fields[0] == 185 else 620_000)
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        return 12_345_678

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 650_000

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=100)

    def nvmlDeviceGetTemperature(self, handle, kind):
        return 63

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 0x4

    def nvmlDeviceGetViolationStatus(self, handle, policy):
        return SimpleNamespace(violationTime=39_997_999_904)


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake
