"""Power along the delivery tree: sums, what no meter explains, PUE, headroom."""

from __future__ import annotations

from workbench.tables._power import _TIME
from workbench.tables._table import Column, Table

_PARTS = "parts are the nearest meters below it, and what has neither a meter nor anything below it"

POWER_TREE = Table(
    "power_tree",
    "One row per thing in the delivery tree and cell of time, in order of the topology and time: "
    f"its power, and that of its parts. Its {_PARTS}.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", "what is fed"),
        "power_w": Column(
            "float64",
            "by its own meter if it has one, else of its parts; missing where unknown",
            lower=0,
            nullable=True,
        ),
        "parts_w": Column(
            "float64",
            "sum of its parts; missing where too few are known, and where there are none",
            lower=0,
            nullable=True,
        ),
        "is_metered": Column("bool", "whether it has a meter of its own"),
        "entity_count": Column("int64", "parts with a value", lower=0),
        "expected_count": Column("int64", "parts there are", lower=0),
        "covered_share": Column(
            "float64",
            "entity_count / expected_count; without parts, 1 where its meter has a value, else 0",
            lower=0,
            upper=1,
        ),
    },
)

POWER_RESIDUAL = Table(
    "power_residual",
    "One row per metered thing with parts and cell of time: what its meter shows and its parts "
    "do not.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", "what has a meter and parts"),
        "metered_w": Column("float64", "by its own meter", lower=0, nullable=True),
        "parts_w": Column("float64", "sum of its parts", lower=0, nullable=True),
        "residual_w": Column("float64", "metered_w - parts_w, missing with either", nullable=True),
        "residual_ratio": Column("float64", "residual_w / metered_w", nullable=True),
        "is_negative": Column("bool", "whether the parts draw more than the meter shows"),
        "covered_share": Column("float64", "of its parts with a value", lower=0, upper=1),
    },
)

PUE = Table(
    "pue",
    "One row per window of time: energy of the facility over energy of its IT.",
    {
        "start_ns": Column("int64", f"start of the window; {_TIME}"),
        "end_ns": Column("int64", f"end of the window; {_TIME}"),
        "facility_j": Column(
            "float64", "energy of the cells that both have; missing if none", lower=0, nullable=True
        ),
        "it_j": Column(
            "float64", "energy of the cells that both have; missing if none", lower=0, nullable=True
        ),
        "pue_ratio": Column(
            "float64", "facility_j / it_j; missing if no cell has both", lower=0, nullable=True
        ),
        "covered_share": Column(
            "float64", "of the window in which both are known", lower=0, upper=1
        ),
        "is_below_one": Column("bool", "less for the facility than for its IT: meters disagree"),
    },
)

POWER_HIERARCHY = Table(
    "power_hierarchy",
    "One row per thing in the delivery tree, in order of the topology: how near its power comes "
    "to its limit, how its children's peaks coincide, and what headroom can be used.",
    {
        "entity": Column("str", "what is fed"),
        "parent": Column("str", "what feeds it; missing at the root", nullable=True),
        "level": Column("str", "gpu, node, rack, panel, switchboard, msb, utility, ..."),
        "is_metered": Column("bool", "whether it has a meter of its own"),
        "child_count": Column("int64", "things it feeds directly", lower=0),
        "known_count": Column("int64", "of them, those with any value", lower=0),
        "nameplate_w": Column("float64", "rated power", lower=0, nullable=True),
        "limit_w": Column("float64", "what its feed allows", lower=0, nullable=True),
        "mean_w": Column("float64", "mean over the known cells", lower=0, nullable=True),
        "p99_w": Column("float64", "99th percentile of the known cells", lower=0, nullable=True),
        "peak_w": Column("float64", "highest known cell", lower=0, nullable=True),
        "peaks_w": Column(
            "float64",
            "sum of the peaks that the known children have on their own, over common cells",
            lower=0,
            nullable=True,
        ),
        "diversity_ratio": Column(
            "float64", "peaks_w / peak of the children's sum", lower=1, nullable=True
        ),
        "coincidence_share": Column("float64", "1 / diversity", lower=0, upper=1, nullable=True),
        "common_share": Column(
            "float64", "of the cells in which all known children have a value", lower=0, upper=1
        ),
        "load_factor_share": Column("float64", "mean_w / peak_w", lower=0, upper=1, nullable=True),
        "peak_nameplate_ratio": Column("float64", "peak_w / nameplate_w", lower=0, nullable=True),
        "peak_limit_ratio": Column("float64", "peak_w / limit_w", lower=0, nullable=True),
        "p99_limit_ratio": Column("float64", "p99_w / limit_w", lower=0, nullable=True),
        "nameplates_limit_ratio": Column(
            "float64", "sum of the children's nameplates / limit_w", lower=0, nullable=True
        ),
        "p99s_limit_ratio": Column(
            "float64", "sum of the children's own p99_w / limit_w", lower=0, nullable=True
        ),
        "headroom_w": Column("float64", "limit_w - peak_w; below 0 if over it", nullable=True),
        "usable_headroom_w": Column(
            "float64", "what could be added below it within all limits", lower=0, nullable=True
        ),
        "stranded_w": Column(
            "float64", "headroom that limits above or below make useless", lower=0, nullable=True
        ),
        "covered_share": Column(
            "float64", "of its time and parts that are known", lower=0, upper=1
        ),
    },
)
