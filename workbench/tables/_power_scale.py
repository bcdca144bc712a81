"""Power of whole fleets over long times, in fewer numbers."""

from workbench.tables._power import _ENTITY, _TIME
from workbench.tables._table import Column, Table

POWER_ROLLUP = Table(
    "power_rollup",
    "One row per entity and cell of time that holds readings, in order of entity and time: what "
    "suffices to make longer cells of it without loss.",
    {
        "time_ns": Column("int64", f"start of the cell; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "period_s": Column("float64", "length of the cell", lower=0),
        "reading_count": Column("int64", "readings in the cell", lower=1),
        "mean_w": Column("float64", "mean of the readings", lower=0),
        "min_w": Column("float64", "lowest reading", lower=0),
        "max_w": Column("float64", "highest reading", lower=0),
        "m2_w2": Column(
            "float64",
            "sum of squared deviations of the readings from their mean, W^2; their variance is "
            "this over reading_count",
            lower=0,
        ),
    },
)

POWER_SAMPLED = Table(
    "power_sampled",
    "One row per reading that a line through a long series must not lose, in order of time.",
    {
        "time_ns": Column("int64", f"instant of the reading; {_TIME}"),
        "power_w": Column(
            "float64", "power; missing where a gap begins or ends", lower=0, nullable=True
        ),
        "row": Column("int64", "row of the series that it was, from 0", lower=0),
    },
)

POWER_HEATMAP = Table(
    "power_heatmap",
    "One row per entity and column of a picture, in order of entity and time: whole watts of "
    "the cells of the grid that lie in it.",
    {
        "time_ns": Column("int64", f"start of the column; {_TIME}"),
        "entity": Column("category", _ENTITY),
        "mean_w": Column(
            "Int32", "mean over the known cells, rounded; missing if none is", 0, nullable=True
        ),
        "max_w": Column(
            "Int32", "highest of the known cells, rounded; missing if none is", 0, nullable=True
        ),
        "covered_share": Column("float64", "of the cells that are known", lower=0, upper=1),
    },
)
