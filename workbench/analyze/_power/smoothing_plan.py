"""How power is smoothed: by the machines, by a store, or by both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench._numbers import in_range, not_negative, positive
from workbench.analyze._power.smoothing_stages import Store
from workbench.errors import WorkbenchError

_KILO = 1e3
_J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class SmoothingPlan:
    """What is done to power before the grid sees it; None and 0 leave a part out.

    First the machines draw: at least a floor, changing no faster than their ramps. Then a
    store takes and gives, so that the grid sees a filtered or ramp-limited draw.

    Parameters
    ----------
    floor_share
        Floor as a share of ``reference_w``: idle cycles or a second job burn what is missing.
    reference_w
        What the floor is a share of, in watts; the peak of the totals by default.
    ramp_up_w_per_s, ramp_down_w_per_s
        Fastest rise and fall of what machines draw. A limited rise holds the job back.
    hysteresis_s
        How long power is kept before it may fall.
    ballast_w
        The most that may be burnt on top of the demand, in watts; it can break the floor.
    storage_tau_s
        The grid sees the load through a filter of this time constant.
    storage_ramp_w_per_s
        Or it sees the load with limited ramps; then a charge that drifts needs
        ``charge_control_s``.
    storage_power_w, storage_energy_j
        What the store can give or take, and hold. Unlimited by default, to learn what is needed.
    storage_efficiency_share
        Of what goes in, what comes out; its square root on either way.
    storage_start_share
        Charge at the start, of ``storage_energy_j``.
    charge_control_s
        Time in which the charge is pulled to its middle (to its start if unlimited).

    Raises
    ------
    WorkbenchError
        If a number is out of its range, or settings contradict one another.
    """

    floor_share: float = 0.0
    reference_w: float | None = None
    ramp_up_w_per_s: float | None = None
    ramp_down_w_per_s: float | None = None
    hysteresis_s: float = 0.0
    ballast_w: float | None = None
    storage_tau_s: float | None = None
    storage_ramp_w_per_s: float | None = None
    storage_power_w: float | None = None
    storage_energy_j: float | None = None
    storage_efficiency_share: float = 1.0
    storage_start_share: float = 0.5
    charge_control_s: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "reference_w", "ramp_up_w_per_s", "ramp_down_w_per_s", "storage_tau_s",
            "storage_ramp_w_per_s", "storage_power_w", "storage_energy_j", "charge_control_s",
        ):  # fmt: skip
            if (value := getattr(self, name)) is not None:
                positive(name, value)
        in_range("floor_share", self.floor_share, least=0, most=1)
        not_negative("hysteresis_s", self.hysteresis_s)
        if self.ballast_w is not None:
            not_negative("ballast_w", self.ballast_w)
        in_range(
            "storage_efficiency_share", self.storage_efficiency_share, least=0, most=1,
            strictly=True,
        )  # fmt: skip
        in_range("storage_start_share", self.storage_start_share, least=0, most=1)
        self._check_store()

    def _check_store(self) -> None:
        """Refuse two targets of the store, and limits of a store without a target."""
        limits = (self.storage_power_w, self.storage_energy_j, self.charge_control_s)
        if self.storage_tau_s is not None and self.storage_ramp_w_per_s is not None:
            msg = "a store follows storage_tau_s or storage_ramp_w_per_s, not both"
            raise WorkbenchError(msg)
        if not self.has_storage and any(limit is not None for limit in limits):
            msg = (
                "limits of a store need a store: give storage_tau_s (a filtered draw) or "
                "storage_ramp_w_per_s (limited ramps)"
            )
            raise WorkbenchError(msg)

    @property
    def has_storage(self) -> bool:
        """Whether there is a store."""
        return self.storage_tau_s is not None or self.storage_ramp_w_per_s is not None

    def store(self) -> Store:
        """Return the settings of the store, infinite where unlimited."""
        energy = np.inf if self.storage_energy_j is None else self.storage_energy_j
        limited = np.isfinite(energy)
        return Store(
            tau_s=self.storage_tau_s,
            ramp_w_per_s=np.inf if self.storage_ramp_w_per_s is None else self.storage_ramp_w_per_s,
            power_w=np.inf if self.storage_power_w is None else self.storage_power_w,
            energy_j=energy,
            one_way_ratio=float(np.sqrt(self.storage_efficiency_share)),
            start_j=self.storage_start_share * energy if limited else 0.0,
            middle_j=energy / 2 if limited else 0.0,
            control_s=np.inf if self.charge_control_s is None else self.charge_control_s,
        )

    def words(self) -> str:
        """Say in a few words what is done, for titles and labels."""
        said = []
        if self.floor_share:
            said.append(f"floor {100 * self.floor_share:g} %")
        ramps = [each for each in (self.ramp_up_w_per_s, self.ramp_down_w_per_s) if each]
        if ramps:
            said.append("ramps " + "/".join(f"{each / _KILO:g}" for each in ramps) + " kW/s")
        if self.hysteresis_s:
            said.append(f"hold {self.hysteresis_s:g} s")
        if self.storage_tau_s:
            said.append(f"store tau {self.storage_tau_s:g} s")
        if self.storage_ramp_w_per_s:
            said.append(f"store ramps {self.storage_ramp_w_per_s / _KILO:g} kW/s")
        if self.storage_energy_j:
            said.append(f"{self.storage_energy_j / _J_PER_KWH:.3g} kWh")
        return ", ".join(said) or "nothing"
