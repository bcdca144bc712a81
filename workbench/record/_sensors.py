"""Power sensors: NVML, AMD SMI and RAPL, each read by a sampler of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

# AMD GPUs through the command ``amd-smi``, which prints JSON.

_TIMEOUT_S = 20
# Older versions print bare numbers, in the unit that newer ones name.
_SCALE = {"W": 1.0, "mW": 0.001, "J": 1.0, "mJ": 0.001, "MHz": 1.0, "C": 1.0, "%": 0.01}


def amd_sampler(host: str) -> AmdSmi:
    """Find the command and ask it once; ``NotFoundError`` says why there is nothing."""
    command = shutil.which("amd-smi")
    if command is None:
        msg = "AMD GPUs: the command amd-smi was not found"
        raise NotFoundError(msg)
    sampler = AmdSmi(command, host)
    if not sampler.sensors:
        reasons = "; ".join(sampler.missing) or "it lists no GPU"
        msg = f"AMD GPUs: {command} gives no power: {reasons}"
        raise NotFoundError(msg)
    return sampler


class AmdSmi:
    """All GPUs that amd-smi lists; it is started for every reading."""

    name = "amd-smi"
    least_period_s = 1.0

    def __init__(self, command: str, host: str) -> None:
        self._command = [command, "metric", "-p", "-E", "-c", "-t", "-u", "--json"]
        self._host = host
        self.missing: dict[str, int] = {}
        self.sensors: Sequence[Sensor] = [
            Sensor(entity, "gpu", "unknown", entity.removeprefix(f"{host}/gpu"))
            for entity, values in self.read()
            if "power_w" in values
        ]

    def read(self) -> list[tuple[str, Values]]:
        """Ask for all GPUs once."""
        try:
            done = subprocess.run(
                self._command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
            )
            answer = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._miss(f"amd-smi: {str(error)[:200]}")
            return []
        gpus = answer.get("gpu_data", []) if isinstance(answer, dict) else answer
        return list(self._rows(gpus if isinstance(gpus, list) else []))

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, gpus: list[Any]) -> Iterator[tuple[str, Values]]:
        for gpu in gpus:
            if not isinstance(gpu, dict) or not isinstance(gpu.get("gpu"), int):
                self._miss("amd-smi: an entry without a GPU number")
                continue
            power, energy = _part(gpu, "power"), _part(gpu, "energy")
            readings = {
                "power_w": _number(power.get("socket_power", power.get("current_socket_power"))),
                "energy_j": _number(energy.get("total_energy_consumption")),
                "clock_mhz": _number(_part(_part(gpu, "clock"), "gfx_0").get("clk")),
                "busy_share": _number(_part(gpu, "usage").get("gfx_activity"), bare=0.01),
                "temperature_c": _number(_part(gpu, "temperature").get("hotspot")),
            }
            values = {column: value for column, value in readings.items() if value is not None}
            yield f"{self._host}/gpu{gpu['gpu']}", values

    def _miss(self, reason: str) -> None:
        self.missing[reason] = self.missing.get(reason, 0) + 1


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    section = entry.get(name)
    return section if isinstance(section, dict) else {}


def _number(value: Any, *, bare: float = 1.0) -> float | None:
    """Return a value with or without its unit in house units; None if it is not a number."""
    scale: float | None = bare
    if isinstance(value, dict):
        scale, value = _SCALE.get(str(value.get("unit"))), value.get("value")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if scale is None or not is_number else float(value) * scale


# NVIDIA GPUs through NVML: milliwatts and millijoules of the driver become W and J.

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
        msg = "NVIDIA GPUs: the driver lists none"
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
        # Found once: a driver without a field should not be queried for it a million times.
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
        # A field can fail although the call succeeds.
        if value.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(value.nvmlReturn)
        return int(value.value.uiVal)

    def _try(self, question: str, ask: Callable[..., Any], *words: Any) -> Any:
        """Ask the driver; what it does not answer is counted, and None."""
        try:
            return ask(*words)
        # AttributeError: an older pynvml lacks the function.
        except (self._nvml.NVMLError, AttributeError) as error:
            reason = f"{question}: {error}"
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


# CPU packages and memory through the kernel's energy counters (RAPL).

ZONES = Path("/sys/class/powercap")
_SCOPE = {"package": "cpu", "dram": "memory"}


def rapl_sampler(host: str) -> Rapl:
    """Find the counters that may be read; ``NotFoundError`` says why there are none."""
    zones = sorted(ZONES.glob("intel-rapl:*"))
    if not zones:
        msg = f"CPU energy: this kernel shows no counters under {ZONES}"
        raise NotFoundError(msg)
    sampler = Rapl(zones, host)
    if not sampler.sensors:
        msg = "CPU energy: the counters may be read by root only (chmod a+r energy_uj)"
        raise NotFoundError(msg)
    return sampler


class Rapl:
    """Energy counters of packages and memory; cores and the whole are parts of others."""

    name = "RAPL"
    least_period_s = 0.01

    def __init__(self, zones: list[Path], host: str) -> None:
        self.missing: dict[str, int] = {}
        self._ranges: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._added: dict[str, float] = {}
        self._counters: dict[str, Path] = {}
        sensors = [self._taken(zone, host) for zone in zones]
        self.sensors: Sequence[Sensor] = [sensor for sensor in sensors if sensor]

    def read(self) -> list[tuple[str, Values]]:
        """Read every counter once; one that wrapped goes on."""
        rows: list[tuple[str, Values]] = []
        for entity, counter in self._counters.items():
            now = self._joules(counter)
            if now is None:
                rows.append((entity, {}))
                continue
            # The kernel's counter wraps at its range: one whole range has passed.
            if now < self._last.get(entity, 0.0):
                self._added[entity] = self._added.get(entity, 0.0) + self._ranges[entity]
            self._last[entity] = now
            rows.append((entity, {"energy_j": now + self._added.get(entity, 0.0)}))
        return rows

    def close(self) -> None:
        """Nothing is held."""

    def _taken(self, zone: Path, host: str) -> Sensor | None:
        name = _word(zone / "name")
        scope = _SCOPE.get((name or "").split("-")[0])
        counter = zone / "energy_uj"
        span = _word(zone / "max_energy_range_uj")
        if scope is None or self._joules(counter) is None or not (span or "").isdigit():
            return None
        entity = f"{host}/{zone.name.removeprefix('intel-rapl:')}-{name}"
        self._counters[entity] = counter
        self._ranges[entity] = int(span or 0) / 1e6
        return Sensor(entity, scope, "counter", zone.name, name)

    def _joules(self, counter: Path) -> float | None:
        text = _word(counter)
        if text is None or not text.isdigit():
            reason = f"{counter}: cannot be read"
            self.missing[reason] = self.missing.get(reason, 0) + 1
            return None
        return int(text) / 1e6


def _word(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


# What is sampled, and what a way of sampling has to offer.

# A reading: the entity, and the columns of the file that could be read.
Values = dict[str, Any]


class NotFoundError(Exception):
    """A machine has nothing of the kind; the text says what was looked for."""


@dataclass(frozen=True)
class Sensor:
    """One metered thing and what its readings mean.

    Attributes
    ----------
    entity
        Its name in the files, e.g. ``node001/gpu3``.
    scope, method
        As in ``workbench.tables.POWER_ENTITIES``.
    device, model, uuid
        Index in its host, product, and the driver's own name for it.
    facts
        What else is worth keeping: limits, PCI address, driver.
    """

    entity: str
    scope: str
    method: str
    device: str
    model: str | None = None
    uuid: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Sampler(Protocol):
    """A way to read sensors of this machine."""

    name: str
    # No sense in asking more often.
    least_period_s: float
    sensors: Sequence[Sensor]
    # What could not be had, in words; grows when a sensor stops answering.
    missing: dict[str, int]

    def read(self) -> list[tuple[str, Values]]:
        """Read every sensor once; one that does not answer gives a row without values."""

    def close(self) -> None:
        """Release what the driver holds."""
