"""What others published about limits, speed and sites: read, marked with its trust, not judged."""

from __future__ import annotations

import pandas as pd

from workbench import datasets
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, PROVISIONING_FACTS, PUBLISHED_GAINS


def published_curve(name: str = "gb200-meta") -> pd.DataFrame:
    """Give the speed that others published for some power limits.

    Publications name two or three limits. They are the points that are known; what lies
    between or beyond them comes from :func:`workbench.analyze.extended_curve`, marked.

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
        doubt=[_doubt(str(trust)) for trust in rows["trust"]],
    )  # fmt: skip
    return POWER_CURVE.check(POWER_CURVE.cast(curve), "power_curves.csv")


def published_gains(gpu: str | None = None) -> pd.DataFrame:
    """Give the gains in cluster throughput that others published for lower power limits.

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
    here, there = rows["throughput"], rows["reference_throughput"]
    here_off, there_off = rows["throughput_rounding"], rows["reference_rounding"]
    gains = rows.assign(
        gain_ratio=here / there - 1,
        low_gain_ratio=(here - here_off) / (there + there_off) - 1,
        high_gain_ratio=(here + here_off) / (there - there_off) - 1,
    )
    return PUBLISHED_GAINS.check(PUBLISHED_GAINS.cast(gains), "power_gains.csv")


def provisioning_facts() -> pd.DataFrame:
    """Give published numbers about a large site and its power, each with source and trust.

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


def _doubt(trust: str) -> str:
    return "" if trust == "printed" else f"{trust}, not printed in the source itself"
