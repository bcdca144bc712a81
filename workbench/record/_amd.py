"""AMD GPUs through the command ``amd-smi``, which prints JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from workbench.record._sampler import NotFoundError, Sensor, Values

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
            said = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._miss(f"amd-smi: {str(error)[:200]}")
            return []
        gpus = said.get("gpu_data", []) if isinstance(said, dict) else said
        return list(self._rows(gpus if isinstance(gpus, list) else []))

    def close(self) -> None:
        """Nothing is held."""

    def _rows(self, gpus: list[Any]) -> Iterator[tuple[str, Values]]:
        for gpu in gpus:
            if not isinstance(gpu, dict) or not isinstance(gpu.get("gpu"), int):
                self._miss("amd-smi: an entry without a GPU number")
                continue
            power, energy = _part(gpu, "power"), _part(gpu, "energy")
            found = {
                "power_w": _number(power.get("socket_power", power.get("current_socket_power"))),
                "energy_j": _number(energy.get("total_energy_consumption")),
                "clock_mhz": _number(_part(_part(gpu, "clock"), "gfx_0").get("clk")),
                "busy_share": _number(_part(gpu, "usage").get("gfx_activity"), bare=0.01),
                "temperature_c": _number(_part(gpu, "temperature").get("hotspot")),
            }
            values = {column: value for column, value in found.items() if value is not None}
            yield f"{self._host}/gpu{gpu['gpu']}", values

    def _miss(self, what: str) -> None:
        self.missing[what] = self.missing.get(what, 0) + 1


def _part(entry: dict[str, Any], name: str) -> dict[str, Any]:
    part = entry.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: Any, *, bare: float = 1.0) -> float | None:
    """Return a value with or without its unit in house units; None if it is no number."""
    scale: float | None = bare
    if isinstance(value, dict):
        scale, value = _SCALE.get(str(value.get("unit"))), value.get("value")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if scale is None or not is_number else float(value) * scale
