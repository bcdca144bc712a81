"""NVIDIA GPUs through NVML: milliwatts and millijoules of the driver become W and J."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workbench.record._sampler import NotFoundError, Sensor, Values

_AMPERE = 7
_NEEDS = "NVIDIA GPUs: the driver's library was not found (no GPU, or no driver)"


def nvml_sampler(host: str) -> Nvml:
    """Open the driver's library; ``NotFoundError`` says why there is nothing to sample."""
    try:
        import pynvml
    except ImportError:
        msg = "NVIDIA GPUs: pip install 'ai-infra-workbench[record]' brings what asks the driver"
        raise NotFoundError(msg) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        msg = f"{_NEEDS}: {error}"
        raise NotFoundError(msg) from None
    sampler = Nvml(pynvml, host)
    if not sampler.sensors:
        sampler.close()
        msg = "NVIDIA GPUs: the driver knows of none"
        raise NotFoundError(msg)
    return sampler


class Nvml:
    """All GPUs that NVML shows to this process."""

    name = "NVML"
    least_period_s = 0.01

    def __init__(self, nvml: Any, host: str) -> None:
        self._nvml = nvml
        self.missing: dict[str, int] = {}
        self._gpus: list[tuple[Sensor, Any]] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = self._try(f"GPU {index}", nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:
                self._gpus.append((self._sensor(handle, index, host), handle))
        self.sensors: Sequence[Sensor] = [sensor for sensor, _ in self._gpus]
        # Found once: a driver without a field should not be asked for it a million times.
        self._reads = {sensor.entity: self._supported(handle) for sensor, handle in self._gpus}

    def read(self) -> list[tuple[str, Values]]:
        """Read every GPU once."""
        rows = []
        for sensor, handle in self._gpus:
            values: Values = {}
            for column, ask in self._reads[sensor.entity].items():
                value = self._try(f"{column} of {sensor.entity}", ask, handle)
                if value is not None:
                    values[column] = value
            rows.append((sensor.entity, values))
        return rows

    def close(self) -> None:
        """Close the driver's library."""
        self._try("closing", self._nvml.nvmlShutdown)

    def _sensor(self, handle: Any, index: int, host: str) -> Sensor:
        nvml = self._nvml
        architecture = self._try("architecture", nvml.nvmlDeviceGetArchitecture, handle)
        limits = self._try("limits", nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
        facts: dict[str, Any] = {
            "driver": _text(self._try("driver", nvml.nvmlSystemGetDriverVersion)),
            "default_limit_w": _thousandth(
                self._try("limit", nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
            ),
            "settable_limits_w": None if limits is None else [w / 1000 for w in limits],
            "mig": self._try("MIG", lambda h: bool(nvml.nvmlDeviceGetMigMode(h)[0]), handle),
        }
        return Sensor(
            entity=f"{host}/gpu{index}",
            scope="gpu",
            # The driver's manual: the mean of the last second from Ampere on, an instant before.
            method=_method(architecture),
            device=str(index),
            model=_text(self._try("name", nvml.nvmlDeviceGetName, handle)),
            uuid=_text(self._try("UUID", nvml.nvmlDeviceGetUUID, handle)),
            facts=facts,
        )

    def _supported(self, handle: Any) -> dict[str, Callable[[Any], Any]]:
        """Keep the questions that this GPU answers; the others are missing, by name."""
        nvml = self._nvml
        reasons = getattr(
            nvml, "nvmlDeviceGetCurrentClocksEventReasons",
            getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None),
        )  # fmt: skip
        questions: dict[str, Callable[[Any], Any]] = {
            "power_w": lambda h: nvml.nvmlDeviceGetPowerUsage(h) / 1000,
            "average_w": lambda h: self._field(h, nvml.NVML_FI_DEV_POWER_AVERAGE) / 1000,
            "instant_w": lambda h: self._field(h, nvml.NVML_FI_DEV_POWER_INSTANT) / 1000,
            "energy_j": lambda h: nvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1000,
            "limit_w": lambda h: nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000,
            "clock_mhz": lambda h: float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)),
            "busy_share": lambda h: nvml.nvmlDeviceGetUtilizationRates(h).gpu / 100,
            "temperature_c": lambda h: float(
                nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)
            ),
            "reasons": lambda h: int(reasons(h)) if reasons else None,
            "power_violation_ns": lambda h: int(
                nvml.nvmlDeviceGetViolationStatus(h, nvml.NVML_PERF_POLICY_POWER).violationTime
            ),
        }
        return {
            column: ask
            for column, ask in questions.items()
            if self._try(f"{column} (not offered by this GPU or driver)", ask, handle) is not None
        }

    def _field(self, handle: Any, field: int) -> int:
        (value,) = self._nvml.nvmlDeviceGetFieldValues(handle, [field])
        if value.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    def _try(self, what: str, ask: Callable[..., Any], *words: Any) -> Any:
        """Ask the driver; what it does not answer is counted, and None."""
        try:
            return ask(*words)
        except (self._nvml.NVMLError, AttributeError) as error:
            reason = f"{what}: {error}"
            self.missing[reason] = self.missing.get(reason, 0) + 1
            return None


def _method(architecture: int | None) -> str:
    if architecture is None:
        return "unknown"
    return "avg_1s" if architecture >= _AMPERE else "instant"


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _thousandth(value: float | None) -> float | None:
    return None if value is None else value / 1000
