"""Effect of a power limit on the speed and energy of a job, from sweeps over limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench import datasets
from workbench._shared.numbers import in_range, positive
from workbench.errors import WorkbenchError
from workbench.tables import (
    POWER_CURVE,
    POWER_KNEES,
    POWER_SWEEPS,
    PROVISIONING_FACTS,
    PUBLISHED_GAINS,
)

_CURVE = ["gpu", "job", "configuration"]


def power_curve(
    sweeps: pd.DataFrame, *, per: Literal["configuration", "job"] = "configuration"
) -> pd.DataFrame:
    """Compare speed and energy at every limit with those at the largest.

    Times of different jobs cannot be averaged, their ratios can: every configuration is compared
    with itself at its largest limit.

    Parameters
    ----------
    sweeps
        Table :data:`workbench.tables.POWER_SWEEPS`.
    per
        ``"configuration"``: one curve for each job of the sweeps. ``"job"``: one curve for each
        GPU and network, the median of its configurations at each limit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_CURVE` with basis ``measured``. The doubt says where
        runs are missing, so that limits are not compared like with like.

    Raises
    ------
    WorkbenchError
        If ``per`` is neither, or a sweep has two rows at one limit.

    Notes
    -----
    ``speed = time at the largest limit / time``, ``energy ratio = energy / energy at the largest
    limit``. A speed above 1 at a lower limit is noise of the measurement; it stays as it is.
    """
    POWER_SWEEPS.check(sweeps)
    if per not in ("configuration", "job"):
        msg = f"per must be 'configuration' or 'job', not {per!r}"
        raise WorkbenchError(msg)
    if sweeps.empty:
        return POWER_CURVE.empty()
    table = _by_configuration(sweeps)
    if per == "job":
        table = _by_job(table)
    return POWER_CURVE.of(table.assign(saving_ratio=1 - table["energy_ratio"]))


def _by_configuration(sweeps: pd.DataFrame) -> pd.DataFrame:
    rows = sweeps.assign(
        gpu=sweeps["gpu"].fillna("unknown GPU"),
        job=sweeps["network"].fillna(sweeps["job"]),
        configuration=sweeps["job"],
        variant=sweeps["variant"].fillna(""),
    )
    usable = rows["time_s"].gt(0) & rows["energy_j"].gt(0) & rows["limit_w"].notna()
    lost = (~usable).groupby([rows[name] for name in _CURVE]).sum().rename("lost_count")
    rows = rows[usable].sort_values([*_CURVE, "limit_w"], ignore_index=True)
    again = rows.duplicated([*_CURVE, "limit_w"])
    if again.any():
        at = rows[again].iloc[0]
        msg = (
            f"{at['gpu']}, {at['job']}, {at['configuration']} has two rows at {at['limit_w']:g} W "
            f"(the second from {at['source']}, line {at['line']}); load each sweep once"
        )
        raise WorkbenchError(msg)
    # Sorted by limit above, so the last row of a curve is that of its largest limit.
    top = rows.groupby(_CURVE)[["time_s", "energy_j", "variant", "run_count"]].transform("last")
    same = (rows["variant"] == top["variant"]) & (rows["run_count"] == top["run_count"])
    missing = rows.join(lost, on=_CURVE)["lost_count"]
    return rows.assign(
        configuration_count=1,
        speed_ratio=top["time_s"] / rows["time_s"],
        energy_ratio=rows["energy_j"] / top["energy_j"],
        basis="measured",
        is_extrapolated=False,
        doubt=[
            "; ".join(_doubts(bool(is_same), int(count), str(doubt)))
            for is_same, count, doubt in zip(same, missing, rows["doubt"], strict=True)
        ],
    )


def _doubts(has_same_runs: bool, lost_count: int, doubt: str) -> list[str]:
    doubts = [doubt] if doubt else []
    if not has_same_runs:
        doubts.append("other runs than at the largest limit")
    if lost_count:
        doubts.append(f"{lost_count} limits without time, energy or limit dropped")
    return doubts


def _by_job(curves: pd.DataFrame) -> pd.DataFrame:
    job = ["gpu", "job"]
    all_of = curves.groupby(job)["configuration"].nunique().rename("all_count")
    table = curves.groupby([*job, "limit_w"], as_index=False, sort=True).agg(
        configuration_count=("configuration", "nunique"),
        power_w=("power_w", "median"),
        speed_ratio=("speed_ratio", "median"),
        energy_ratio=("energy_ratio", "median"),
        source=("source", "first"),
    )
    table = table.merge(all_of, left_on=job, right_index=True)
    is_sparse = table["configuration_count"] < table["all_count"]
    return table.assign(
        configuration=[f"median of {count}" for count in table["all_count"]],
        basis="measured",
        is_extrapolated=False,
        doubt=[
            f"{count} of {of} configurations have this limit" if is_partial else ""
            for is_partial, count, of in zip(
                is_sparse, table["configuration_count"], table["all_count"], strict=True
            )
        ],
    )


# Speed at limits that nobody measured: between known limits, and, marked, beyond them.

Extrapolation = Literal["linear", "power", "quadratic", "cubic"]
_EXPONENTS = {"quadratic": 2, "cubic": 3}
_METHODS = ("linear", "power", "quadratic", "cubic")
_Floats = NDArray[np.float64]


def extended_curve(
    curve: pd.DataFrame,
    limit_w: float | Iterable[float],
    *,
    method: Extrapolation = "linear",
    like: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Add limits to a curve: interpolated where it is known on both sides, else extrapolated.

    Below the smallest known limit nothing says how fast speed falls, and a straight line is the
    most optimistic guess: real curves bend down. Take the range of several methods as the answer.

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE`; each GPU, job and configuration is extended
        by itself.
    limit_w
        Limits to add, in W; those that a curve has are left as they are.
    method
        How the lost speed grows beyond the known limits: ``"linear"``, along the line through
        the nearest two; ``"power"``, as the power law through them; ``"quadratic"`` or
        ``"cubic"``, as that power of the distance from the largest limit, through the nearest
        one (below the smallest limit only).
    like
        One measured curve whose shape is taken instead, below the smallest limit only: its
        lost speed, against limits as shares of the largest, scaled to agree at the smallest
        known limit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_CURVE` with the rows added: basis ``interpolated`` or
        ``extrapolated``; ``is_extrapolated`` and ``doubt`` mark the latter. Power is known
        between measured limits only.

    Raises
    ------
    WorkbenchError
        If a limit is not a number above 0, a curve has fewer than two limits, a method cannot
        answer, or the speed would fall to 0 or below.

    Examples
    --------
    >>> from workbench.analyze import published_curve
    >>> curve = extended_curve(published_curve("gb200-meta"), [960, 1100])
    >>> curve[["limit_w", "speed_ratio", "basis"]].values.tolist()[:2]
    [[960.0, 0.94, 'extrapolated'], [1000.0, 0.95, 'published']]
    """
    POWER_CURVE.check(curve)
    if method not in _METHODS:
        msg = f"no method is called {method!r}; there are {list(_METHODS)}"
        raise WorkbenchError(msg)
    wanted = [limit_w] if isinstance(limit_w, Real) else list(limit_w)  # type: ignore[arg-type]
    limits = np.unique([positive("limit_w", name) for name in wanted])
    shape = None if like is None else _shape(like)
    added = [_added(own, limits, method, shape) for _, own in curve.groupby(_CURVE, sort=False)]
    # pandas 2 warns where an empty frame takes part in the dtypes of a concat.
    rows = [curve, *(name for name in added if len(name))]
    table = pd.concat(rows, ignore_index=True) if len(rows) > 1 else curve.copy()
    return POWER_CURVE.of(table.sort_values([*_CURVE, "limit_w"], ignore_index=True, kind="stable"))


def _added(
    own: pd.DataFrame, limits: _Floats, method: str, shape: Callable[[_Floats], _Floats] | None
) -> pd.DataFrame:
    name, had = _name(own), own["limit_w"].to_numpy()
    # What was extrapolated before is not knowledge to build on.
    own = own[~own["is_extrapolated"]].sort_values("limit_w", ignore_index=True)
    limits_w = own["limit_w"].to_numpy()
    if len(np.unique(limits_w)) < 2 or len(np.unique(limits_w)) < len(limits_w):
        msg = f"{name} has {len(limits_w)} known rows; extending needs two or more different limits"
        raise WorkbenchError(msg)
    new = limits[~np.isin(limits, had)]
    speed = own["speed_ratio"].to_numpy()
    outside = (new < limits_w[0]) | (new > limits_w[-1])
    at = np.interp(new, limits_w, speed)
    if outside.any():
        # np.interp holds the last value outside; only the method may say what lies there.
        at[outside] = _beyond(new[outside], limits_w, speed, method, shape)
    if (at <= 0).any():
        msg = f"{name}: at {new[at <= 0][-1]:g} W the speed would be 0 or below; ask for more"
        raise WorkbenchError(msg)
    how = method if shape is None else "the shape of another curve"
    power = np.interp(new, limits_w, own["power_w"].to_numpy(dtype=np.float64))
    rows = pd.DataFrame({"limit_w": new, "speed_ratio": at}).assign(
        **{name: own[name].iloc[0] for name in (*_CURVE, "configuration_count")},
        power_w=np.where(outside, np.nan, power),
        basis=np.where(outside, "extrapolated", "interpolated"),
        is_extrapolated=outside,
        doubt=np.where(outside, f"no speed is known there; extrapolated: {how}", ""),
        source=own["source"].iloc[0],
    )
    energy = rows["power_w"] / own["power_w"].iloc[-1] / rows["speed_ratio"]
    return POWER_CURVE.cast(rows.assign(energy_ratio=energy, saving_ratio=1 - energy))


def _beyond(
    new: _Floats,
    limits_w: _Floats,
    speed: _Floats,
    method: str,
    shape: Callable[[_Floats], _Floats] | None,
) -> _Floats:
    above = new > limits_w[-1]
    if above.any() and (shape is not None or method in _EXPONENTS):
        msg = f"{new[above][0]:g} W is above the largest limit; there only linear and power answer"
        raise WorkbenchError(msg)
    top = limits_w[-1]
    lost = 1 - speed[0]
    if shape is not None:
        return _floats(1 - lost * shape(new / top) / _some(shape(limits_w[:1] / top))[0])
    if method in _EXPONENTS:
        return _floats(1 - lost * ((top - new) / (top - limits_w[0])) ** _EXPONENTS[method])
    # The line, or the power law, through the two known limits that are nearest.
    first = np.where(above, len(limits_w) - 2, 0)
    bend = (np.log, np.exp) if method == "power" else (np.asarray, np.asarray)
    x0, x1, y0, y1 = (
        bend[0](item)
        for item in (limits_w[first], limits_w[first + 1], speed[first], speed[first + 1])
    )
    return _floats(bend[1](y0 + (y1 - y0) * (bend[0](new) - x0) / (x1 - x0)))


def _floats(values: Any) -> _Floats:
    return np.asarray(values, dtype=np.float64)


def _shape(like: pd.DataFrame) -> Callable[[_Floats], _Floats]:
    POWER_CURVE.check(like, "like")
    count = like.groupby(_CURVE).ngroups
    if count != 1:
        msg = f"like has {count} curves; choose one GPU, job and configuration"
        raise WorkbenchError(msg)
    rows = like.sort_values("limit_w")
    at = (rows["limit_w"] / rows["limit_w"].max()).to_numpy()
    lost = 1 - rows["speed_ratio"].to_numpy()

    def lost_at(shares: _Floats) -> _Floats:
        if shares.min() < at[0]:
            msg = (
                f"like is known down to {100 * at[0]:.0f} % of its largest limit, and "
                f"{100 * shares.min():.0f} % was requested"
            )
            raise WorkbenchError(msg)
        return _floats(np.interp(shares, at, lost))

    return lost_at


def _some(lost: _Floats) -> _Floats:
    # A shape that loses no speed where the curve loses some cannot be scaled to it.
    if not math.isfinite(lost[0]) or lost[0] <= 0:
        msg = (
            f"like loses {100 * lost[0]:.2f} % of its speed where the curve ends; its shape says "
            "nothing about one that loses some"
        )
        raise WorkbenchError(msg)
    return lost


def _name(own: pd.DataFrame) -> str:
    return ", ".join(str(own[name].iloc[0]) for name in _CURVE)


# Limits that stand out on a power curve: least energy, kept speed, knee.

_OF_ENERGY = (
    "least_energy_limit_w", "saving_ratio", "speed_loss_ratio", "time_increase_ratio",
    "edp_limit_w", "ed2p_limit_w",
)  # fmt: skip
_MEDIANS = (
    *_OF_ENERGY, "smallest_limit_w", "largest_limit_w", "kept_speed_limit_w", "knee_limit_w",
    "per_watt_limit_w",
)  # fmt: skip


def power_knees(curve: pd.DataFrame, *, kept_speed_share: float = 0.95) -> pd.DataFrame:
    """Find the limits that stand out: least energy, most speed per watt, the knee, and others.

    Least energy ignores time; energy x time weighs both. A row gives medians over configurations,
    each at its own best limit; one limit for all of them costs more: that is in the curve of the
    job (``per="job"``).

    Parameters
    ----------
    curve
        Table :data:`workbench.tables.POWER_CURVE`, best one curve per configuration.
    kept_speed_share
        Speed to keep, as a share of that at the largest limit.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_KNEES`, one row per GPU and job. Without power there
        are not energies, and what needs them is missing.

    Raises
    ------
    WorkbenchError
        If the share is none, a curve keeps it nowhere, or a row was extrapolated: knees of
        guesses are not findings.

    Notes
    -----
    With speed s and energy e against the largest limit: saving ``1 - e``, lost speed ``1 - s``,
    added time ``1 / s - 1``, EDP ``e / s``, ED2P ``e / s^2``. Least energy is most speed per
    watt *drawn*; ``per_watt_limit_w`` is most speed per watt of *limit*, which is what a site
    has to provide. The knee is the point farthest above the straight line between the ends of
    the curve, both axes scaled to 1; it takes three limits and a curve above that line. Of
    limits that are equally good the smallest is given.

    References
    ----------
    Satopää, Albrecht, Irwin, Raghavan: Finding a "kneedle" in a haystack, ICDCSW 2011, for the
    knee as the discrete point of maximum curvature.
    """
    POWER_CURVE.check(curve)
    in_range("kept_speed_share", kept_speed_share, least=0, most=1, strictly=True)
    if curve["is_extrapolated"].any():
        msg = "the curve has extrapolated rows; leave them out: curve[~curve['is_extrapolated']]"
        raise WorkbenchError(msg)
    if curve.empty:
        return POWER_KNEES.empty()
    item = pd.DataFrame(
        [
            dict(zip(_CURVE, key, strict=True))
            | _knees(own.sort_values("limit_w", ignore_index=True), kept_speed_share)
            for key, own in curve.groupby(_CURVE, sort=False)
        ]
    )
    by_job = item.groupby(["gpu", "job"], sort=False)
    table = by_job[list(_MEDIANS)].median()
    table["configuration_count"] = by_job.size()
    table["kept_speed_share"] = kept_speed_share
    table["doubt"] = [
        _knees_doubts({str(name): value for name, value in row.items()})
        for row in table.to_dict("records")
    ]
    return POWER_KNEES.of(table.reset_index())


def _knees(own: pd.DataFrame, kept_speed_share: float) -> dict[str, Any]:
    limit, speed, energy = (
        own[name].to_numpy(dtype=np.float64) for name in ("limit_w", "speed_ratio", "energy_ratio")
    )
    result: dict[str, Any] = {
        "smallest_limit_w": limit[0],
        "largest_limit_w": limit[-1],
        "kept_speed_limit_w": _kept(own, kept_speed_share),
        "per_watt_limit_w": limit[np.argmax(speed / limit)],
        "knee_limit_w": _knee(limit, speed),
    }
    energy = np.where(speed > 0, energy, np.nan)
    if np.isnan(energy).all():
        return result | dict.fromkeys(_OF_ENERGY, np.nan)
    best = int(np.nanargmin(energy))
    return result | {
        "least_energy_limit_w": limit[best],
        "saving_ratio": 1 - energy[best],
        "speed_loss_ratio": 1 - speed[best],
        "time_increase_ratio": 1 / speed[best] - 1,
        "edp_limit_w": limit[np.nanargmin(energy / speed)],
        "ed2p_limit_w": limit[np.nanargmin(energy / speed**2)],
    }


def _kept(own: pd.DataFrame, kept_speed_share: float) -> float:
    """Return the smallest limit that keeps a speed, or say that the curve has none."""
    kept = own.loc[own["speed_ratio"] >= kept_speed_share, "limit_w"]
    if kept.empty:
        msg = (
            f"{_name(own)} keeps {own['speed_ratio'].max():.4g} of the speed at most, not "
            f"{kept_speed_share:g}; speed_ratio is against the largest limit, where it is 1"
        )
        raise WorkbenchError(msg)
    return float(kept.min())


def _knee(limit: np.ndarray, speed: np.ndarray) -> float:
    if len(limit) < 3 or speed[-1] <= speed[0]:
        return float("nan")
    across = (limit - limit[0]) / (limit[-1] - limit[0])
    above = (speed - speed[0]) / (speed[-1] - speed[0]) - across
    at = int(above.argmax())
    return float(limit[at]) if above[at] > 0 else float("nan")


def _knees_doubts(row: dict[str, Any]) -> str:
    """Describe what does not look like the effect of a limit."""
    doubts = []
    if row["speed_loss_ratio"] < 0:
        doubts.append(
            f"{-100 * row['speed_loss_ratio']:.1f} % faster at the lower limit, which no limit "
            "causes: noise of the measurement"
        )
    if row["least_energy_limit_w"] == row["smallest_limit_w"]:
        doubts.append("least energy at the smallest limit measured; it may lie lower")
    if pd.isna(row["least_energy_limit_w"]):
        doubts.append("no power is known, so no energy")
    if row["configuration_count"] == 1:
        doubts.append("one curve only")
    return "; ".join(doubts)


# What others published about limits, speed and sites: read, marked with its trust, not judged.


def published_curve(name: str = "gb200-meta") -> pd.DataFrame:
    """Return the speed that others published for some power limits.

    What lies between or beyond the published limits comes from
    :func:`workbench.analyze.extended_curve`, marked.

    Parameters
    ----------
    name
        Curve in the bundled ``published/power_curves.csv``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.POWER_CURVE` with basis ``published``. The doubt says how
        far each number can be trusted, if it was not printed in the source itself.

    Raises
    ------
    WorkbenchError
        If there is no such curve.

    Examples
    --------
    >>> published_curve("gb200-meta")[["limit_w", "speed_ratio"]].to_numpy().tolist()
    [[1000.0, 0.95], [1200.0, 1.0]]
    """
    every = _read("power_curves.csv")
    rows = every[every["curve"] == name]
    if rows.empty:
        msg = f"no published curve is called {name!r}; there are {sorted(every['curve'].unique())}"
        raise WorkbenchError(msg)
    rows = rows.sort_values("limit_w", ignore_index=True)
    curve = rows.assign(
        configuration=name, configuration_count=1, power_w=None, energy_ratio=None,
        saving_ratio=None, basis="published", is_extrapolated=False,
        doubt=[
            "" if trust == "printed" else f"{trust}, not printed in the source itself"
            for trust in rows["trust"]
        ],
    )  # fmt: skip
    return POWER_CURVE.check(POWER_CURVE.cast(curve), "power_curves.csv")


def published_gains(gpu: str | None = None) -> pd.DataFrame:
    """Return the gains in cluster throughput that others published for lower power limits.

    Printed numbers are rounded, and a quotient of two of them is known less well than it looks:
    1.9 / 1.7 may be anything from 1.06 to 1.18.

    Parameters
    ----------
    gpu
        Product, e.g. ``"GB200"``; all by default.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PUBLISHED_GAINS`.

    Raises
    ------
    WorkbenchError
        If none is known for that product.

    Examples
    --------
    >>> published_gains("GB200")["gain_ratio"].round(3).tolist()
    [0.09, 0.118]
    """
    rows = _read("power_gains.csv")
    if gpu is not None and gpu not in set(rows["gpu"]):
        msg = f"no published gain is known for {gpu!r}; there are {sorted(rows['gpu'].unique())}"
        raise WorkbenchError(msg)
    rows = rows if gpu is None else rows[rows["gpu"] == gpu].reset_index(drop=True)
    throughput, baseline = rows["throughput"], rows["reference_throughput"]
    rounding, baseline_rounding = rows["throughput_rounding"], rows["reference_rounding"]
    gains = rows.assign(
        gain_ratio=throughput / baseline - 1,
        low_gain_ratio=(throughput - rounding) / (baseline + baseline_rounding) - 1,
        high_gain_ratio=(throughput + rounding) / (baseline - baseline_rounding) - 1,
    )
    return PUBLISHED_GAINS.check(PUBLISHED_GAINS.cast(gains), "power_gains.csv")


def provisioning_facts() -> pd.DataFrame:
    """Return published numbers about a large site and its power, each with source and trust.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.PROVISIONING_FACTS`: ``quantity``, ``value``, ``unit``,
        ``trust``, ``source``.

    Examples
    --------
    >>> facts = provisioning_facts().set_index("quantity")["value"]
    >>> round(facts["site budget"] / facts["GPUs of the site"])
    1807
    """
    rows = _read("power_provisioning.csv")
    return PROVISIONING_FACTS.check(PROVISIONING_FACTS.cast(rows), "power_provisioning.csv")


def _read(file: str) -> pd.DataFrame:
    return pd.read_csv(datasets.path("published") / file)
