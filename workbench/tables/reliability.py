"""What failed, how often, how long things lived and whether the failures are spread evenly."""

from __future__ import annotations

from workbench.tables.table import Column, Table

_LOW, _HIGH = "lower end of the interval", "upper end of the interval"
_TOO_FEW = "missing if there are too few failures"

CAUSE_COUNTS = Table(
    "cause_counts",
    "One row per cause: how many failures it explains, as somebody counted or printed them.",
    {
        "cause": Column("str", "what failed"),
        "category": Column("str", "kind of cause: gpu, network, software, ...", nullable=True),
        "failure_count": Column("int64", "failures", lower=0),
        "printed_share": Column("Float64", "share of all failures as printed", 0, 1, nullable=True),
    },
)

CAUSE_SHARES = Table(
    "cause_shares",
    "One row per cause, or category of causes, the most frequent first.",
    {
        "cause": Column("str", "cause, or what the failures were put together by"),
        "category": Column("str", "category; missing if it has several", nullable=True),
        "failure_count": Column("int64", "failures", lower=0),
        "failure_share": Column(
            "Float64", "of all failures, from the counts; missing if there are none", 0, 1, True
        ),
        "low_share": Column("float64", _LOW, 0, 1),
        "high_share": Column("float64", _HIGH, 0, 1),
        "cumulative_share": Column("Float64", "this cause and those before", 0, 1, True),
        "printed_share": Column("Float64", "share as printed by the source", 0, 1, True),
    },
)

FAILURE_RATES = Table(
    "failure_rates",
    "One row per group of failures or nodes: failures over the time that nodes were watched.",
    {
        "group": Column("str", "all, or the cause, category or node group"),
        "failure_count": Column("int64", "failures", lower=0),
        "node_count": Column("int64", "nodes watched", lower=1),
        "exposure_node_days": Column("float64", "time watched, all nodes together", lower=0),
        "per_1000_node_days": Column("float64", "failures per 1,000 node-days", lower=0),
        "low_per_1000_node_days": Column("float64", _LOW, lower=0),
        "high_per_1000_node_days": Column("float64", _HIGH, lower=0),
        "mtbf_h": Column(
            "Float64", "mean time between failures of all these nodes; missing if none failed",
            lower=0, nullable=True,
        ),
        "low_mtbf_h": Column("float64", _LOW, lower=0),
        "high_mtbf_h": Column("Float64", f"{_HIGH}; missing if none failed", 0, nullable=True),
    },
)  # fmt: skip

JOB_SIZES = Table(
    "job_sizes",
    "One row per size of job: how long jobs of that size ran, and how often they failed.",
    {
        "gpu_count": Column("int64", "GPUs of the job", lower=1),
        "run_count": Column("int64", "runs", lower=1),
        "failure_count": Column("int64", "runs that failed", lower=0),
        "exposure_h": Column("float64", "time they ran, added up", lower=0),
    },
)

MTTF_BY_SIZE = Table(
    "mttf_by_size",
    "One row per size of job: the mean time to failure, and how it scales with size.",
    {
        "gpu_count": Column("int64", "GPUs of the job", lower=1),
        "kind": Column("str", "measured or projected"),
        "mttf_h": Column("Float64", "mean time to failure; missing if none failed", 0, None, True),
        "low_mttf_h": Column("Float64", f"{_LOW}; missing without counts", 0, None, True),
        "high_mttf_h": Column(
            "Float64", f"{_HIGH}; missing without counts, or if none failed", 0, None, True
        ),
        "failure_count": Column("Int64", "failures; missing if not counted", 0, None, True),
        "exposure_h": Column("Float64", "time jobs of that size ran, added up", 0, None, True),
        "per_1000_node_days": Column(
            "Float64", "failures per 1,000 node-days; missing if none failed", 0, None, True
        ),
        "slope_ratio": Column(
            "Float64",
            "failures grow with size to this power, over the rows with counts; 1: every GPU is as "
            "likely to fail. The same in every row; missing if it cannot be known",
            nullable=True,
        ),
        "low_slope_ratio": Column("Float64", _LOW, nullable=True),
        "high_slope_ratio": Column("Float64", _HIGH, nullable=True),
    },
)  # fmt: skip

LIFETIMES = Table(
    "lifetimes",
    "One row per life: of a node from one failure to the next, or of a part until it failed.",
    {
        "node": Column("str", "node, or serial number of the part", nullable=True),
        "group": Column("str", "what is compared: model, rack, ...; all if nothing is"),
        "lifetime_h": Column("float64", "how long it lasted, or was watched", lower=0),
        "is_failure": Column("bool", "it failed then; else it was no longer watched"),
    },
)

SURVIVAL = Table(
    "survival",
    "One row per group and time at which something failed or was last watched.",
    {
        "group": Column("str", "group of lifetimes"),
        "time_h": Column("float64", "age", lower=0),
        "at_risk_count": Column("int64", "still watched just before that age", lower=0),
        "failure_count": Column("int64", "failed at that age", lower=0),
        "censored_count": Column("int64", "no longer watched after that age", lower=0),
        "survival_share": Column("float64", "that lives beyond that age (Kaplan-Meier)", 0, 1),
        "low_share": Column("float64", _LOW, 0, 1),
        "high_share": Column("float64", _HIGH, 0, 1),
        "weibull_share": Column("Float64", "the same by the fitted Weibull law", 0, 1, True),
    },
)

WEIBULL = Table(
    "weibull",
    "One row per group: the Weibull law that fits the lifetimes best.",
    {
        "group": Column("str", "group of lifetimes"),
        "lifetime_count": Column("int64", "lifetimes, censored ones included", lower=0),
        "failure_count": Column("int64", "of them ended by a failure", lower=0),
        "shape_ratio": Column(
            "Float64",
            f"shape: below 1 early failures or bursts, 1 chance, above 1 wear; {_TOO_FEW}",
            0, nullable=True,
        ),
        "low_shape_ratio": Column("Float64", _LOW, 0, nullable=True),
        "high_shape_ratio": Column("Float64", _HIGH, 0, nullable=True),
        "scale_h": Column("Float64", "scale: 63 % have failed by then", 0, nullable=True),
        "low_scale_h": Column("Float64", _LOW, 0, nullable=True),
        "high_scale_h": Column("Float64", _HIGH, 0, nullable=True),
        "exponential_mean_h": Column(
            "Float64", "mean if failures come by chance: total time / failures", 0, nullable=True
        ),
        "likelihood_ratio": Column(
            "Float64", "twice the gain in log-likelihood over chance alone", 0, nullable=True
        ),
        "p_value_share": Column("Float64", "probability of such a gain by chance", 0, 1, True),
    },
)  # fmt: skip

RECURRENCE = Table(
    "recurrence",
    "One row per time at which nodes failed: failures per node up to then.",
    {
        "time_h": Column("float64", "since the observation began", lower=0),
        "failure_count": Column("int64", "failures at that time", lower=1),
        "at_risk_count": Column("int64", "nodes watched at that time", lower=1),
        "mean_count": Column("float64", "failures per node up to then (Nelson-Aalen)", lower=0),
        "low_count": Column(
            "Float64", f"{_LOW}; missing once only one node is watched", 0, None, True
        ),
        "high_count": Column("Float64", f"{_HIGH}; missing likewise", 0, None, True),
        "trend_count": Column("float64", "the same by the fitted power law", lower=0),
    },
)

FAILURE_TREND = Table(
    "failure_trend",
    "One row: whether failures became more or less frequent while the nodes were watched.",
    {
        "failure_count": Column("int64", "failures", lower=0),
        "node_count": Column("int64", "nodes watched", lower=1),
        "exposure_node_days": Column("float64", "time watched, all nodes together", lower=0),
        "growth_ratio": Column(
            "Float64",
            f"failures grow with time to this power: above 1 ever more often; {_TOO_FEW}",
            0, nullable=True,
        ),
        "low_growth_ratio": Column("Float64", _LOW, 0, nullable=True),
        "high_growth_ratio": Column("Float64", _HIGH, 0, nullable=True),
        "laplace_ratio": Column(
            "Float64", "Laplace's test, in standard deviations: above 0 ever more often", None,
            nullable=True,
        ),
        "p_value_share": Column(
            "Float64", "probability of so strong a trend if the rate is constant", 0, 1, True
        ),
    },
)  # fmt: skip

LEMON_NODES = Table(
    "lemon_nodes",
    "One row per node, the most suspicious first: whether it fails more often than chance has it.",
    {
        "node": Column("str", "node"),
        "failure_count": Column("int64", "failures", lower=0),
        "exposure_node_days": Column("float64", "time it was watched", lower=0),
        "expected_count": Column("float64", "failures if all nodes had the same rate", lower=0),
        "p_value_share": Column("float64", "probability of so many by chance", 0, 1),
        "adjusted_p_value_share": Column("float64", "the same for that many nodes at once", 0, 1),
        "shrunk_per_1000_node_days": Column(
            "float64", "its rate, drawn towards that of all nodes; to rank by", lower=0
        ),
        "is_lemon": Column("bool", "fails more often than the false discovery rate allows"),
        "dispersion_ratio": Column(
            "Float64",
            "variance / mean of the counts of all nodes; 1 if only chance is at work. The same in "
            "every row; missing if none failed",
            0, nullable=True,
        ),
        "recall_share": Column(
            "Float64",
            "of lemons as assumed, how many such an observation finds. The same in every row; "
            "missing if so few nodes have no whole lemon",
            0, 1, True,
        ),
    },
)  # fmt: skip

LEMON_RECALL = Table(
    "lemon_recall",
    "One row per length of observation: how many of the assumed lemons it finds.",
    {
        "observed_days": Column("float64", "how long the nodes are watched", lower=0),
        "failure_count": Column("float64", "failures to expect, all nodes", lower=0),
        "least_failures_count": Column(
            "Int64", "failures from which a node is flagged; missing if none can be", 1, None, True
        ),
        "recall_share": Column("float64", "of the lemons that are flagged", 0, 1),
        "precision_share": Column("Float64", "of the flagged that are lemons", 0, 1, True),
    },
)

FAILURE_GAPS = Table(
    "failure_gaps",
    "One row: whether the failures of the whole system come in bursts.",
    {
        "gap_count": Column("int64", "times between failures", lower=0),
        "together_count": Column("int64", "failures at the same instant as one before", lower=0),
        "mean_h": Column("Float64", "mean time between failures", 0, None, True),
        "variation_ratio": Column(
            "Float64", "standard deviation / mean of the gaps; 1 by chance", 0, None, True
        ),
        "shape_ratio": Column(
            "Float64", f"Weibull shape: below 1 bursts, above 1 regular; {_TOO_FEW}", 0, None, True
        ),
        "low_shape_ratio": Column("Float64", _LOW, 0, None, True),
        "high_shape_ratio": Column("Float64", _HIGH, 0, None, True),
        "p_value_share": Column("Float64", "probability of such a shape by chance", 0, 1, True),
    },
)

JOB_FAILURES = Table(
    "job_failures",
    "One row per run of a job that failed: what failed on its nodes around its end.",
    {
        "job": Column("str", "job as its scheduler numbers it", nullable=True),
        "attempt": Column("Int32", "run of that job, from 1", 1, None, True),
        "end_ns": Column("int64", "when it ended, ns since the Unix epoch"),
        "outcome": Column("str", "how it ended, as written"),
        "primary_cause": Column("str", "earliest fatal cause, else earliest; unknown if none"),
        "causes": Column("str", "all causes seen, in order of time, joined by ' + '"),
        "cause_count": Column("int64", "different causes seen", lower=0),
    },
)

CRASH_LOOPS = Table(
    "crash_loops",
    "One row per series of runs of one job that failed shortly after each other.",
    {
        "job": Column("str", "job as its scheduler numbers it"),
        "run_count": Column("int64", "failed runs in a row", lower=1),
        "first_ns": Column("int64", "end of the first of them, ns since the Unix epoch"),
        "last_ns": Column("int64", "end of the last of them, ns since the Unix epoch"),
        "primary_cause": Column("str", "most frequent primary cause of these runs"),
    },
)
