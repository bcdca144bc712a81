"""Speed at limits that nobody measured: between known limits, and, marked, beyond them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from workbench._numbers import positive
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE

Extrapolation = Literal["linear", "power", "quadratic", "cubic"]
_EXPONENTS = {"quadratic": 2, "cubic": 3}
_METHODS = ("linear", "power", "quadratic", "cubic")
_Floats = NDArray[np.float64]
_CURVE = ["gpu", "job", "configuration"]


def extended_curve(
    curve: pd.DataFrame,
    limit_w: float | Iterable[float],
    *,
    method: Extrapolation = "linear",
    like: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Add limits to a curve: interpolated where it is known on both sides, else extrapolated.

    Below the smallest known limit nothing says how fast speed falls, and the usual guess, a
    straight line, is the kindest: real curves bend down. So ask more than one method, and take
    the range for the answer. Every row that is outside what is known says so.

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
    TableError
        If ``curve`` or ``like`` is not that table.
    WorkbenchError
        If a limit is no number above 0, a curve has fewer than two limits, a method cannot
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
    limits = np.unique([positive("limit_w", each) for each in wanted])
    shape = None if like is None else _shape(like)
    added = [_added(own, limits, method, shape) for _, own in curve.groupby(_CURVE, sort=False)]
    rows = [curve, *(each for each in added if len(each))]
    table = pd.concat(rows, ignore_index=True) if len(rows) > 1 else curve.copy()
    table = table.sort_values([*_CURVE, "limit_w"], ignore_index=True, kind="stable")
    return POWER_CURVE.check(POWER_CURVE.cast(table))


def _added(
    own: pd.DataFrame,
    limits: _Floats,
    method: str,
    shape: Callable[[_Floats], _Floats] | None,
) -> pd.DataFrame:
    """Make the rows that one curve lacks."""
    name, had = _name(own), own["limit_w"].to_numpy()
    # What was extrapolated before is no knowledge to build on.
    own = own[~own["is_extrapolated"]].sort_values("limit_w", ignore_index=True)
    known = own["limit_w"].to_numpy()
    if len(np.unique(known)) < 2 or len(np.unique(known)) < len(known):
        msg = f"{name} has {len(known)} known rows; extending needs two or more different limits"
        raise WorkbenchError(msg)
    new = limits[~np.isin(limits, had)]
    speed = own["speed_ratio"].to_numpy()
    outside = (new < known[0]) | (new > known[-1])
    at = np.interp(new, known, speed)
    if outside.any():
        at[outside] = _beyond(new[outside], known, speed, method, shape)
    if (at <= 0).any():
        msg = f"{name}: at {new[at <= 0][-1]:g} W the speed would be 0 or below; ask for more"
        raise WorkbenchError(msg)
    how = method if shape is None else "the shape of another curve"
    power = np.interp(new, known, own["power_w"].to_numpy(dtype=np.float64))
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
    known: _Floats,
    speed: _Floats,
    method: str,
    shape: Callable[[_Floats], _Floats] | None,
) -> _Floats:
    """Extrapolate the speed."""
    above = new > known[-1]
    if above.any() and (shape is not None or method in _EXPONENTS):
        msg = f"{new[above][0]:g} W is above the largest limit; there only linear and power answer"
        raise WorkbenchError(msg)
    top = known[-1]
    lost = 1 - speed[0]
    if shape is not None:
        return _floats(1 - lost * shape(new / top) / _some(shape(known[:1] / top))[0])
    if method in _EXPONENTS:
        return _floats(1 - lost * ((top - new) / (top - known[0])) ** _EXPONENTS[method])
    # The line, or the power law, through the two known limits that are nearest.
    first = np.where(above, len(known) - 2, 0)
    bend = (np.log, np.exp) if method == "power" else (np.asarray, np.asarray)
    x0, x1, y0, y1 = (
        bend[0](each) for each in (known[first], known[first + 1], speed[first], speed[first + 1])
    )
    return _floats(bend[1](y0 + (y1 - y0) * (bend[0](new) - x0) / (x1 - x0)))


def _floats(values: Any) -> _Floats:
    return np.asarray(values, dtype=np.float64)


def _shape(like: pd.DataFrame) -> Callable[[_Floats], _Floats]:
    """Give the lost speed of one curve as a function of limit / largest limit."""
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
                f"{100 * shares.min():.0f} % is asked for"
            )
            raise WorkbenchError(msg)
        return _floats(np.interp(shares, at, lost))

    return lost_at


def _some(lost: _Floats) -> _Floats:
    """Refuse a shape that loses nothing where the curve does: it cannot be scaled."""
    if not math.isfinite(lost[0]) or lost[0] <= 0:
        msg = (
            f"like loses {100 * lost[0]:.2f} % of its speed where the curve ends; its shape says "
            "nothing about one that loses some"
        )
        raise WorkbenchError(msg)
    return lost


def _name(own: pd.DataFrame) -> str:
    return ", ".join(str(own[name].iloc[0]) for name in _CURVE)
