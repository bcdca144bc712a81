"""Failures: causes, rates, lifetimes, and whether they are spread evenly."""

from __future__ import annotations

from workbench.tables.table import table

CAUSE_COUNTS = table("""
    cause_counts: One row per cause: how many failures it explains, as somebody counted or printed
    them.

    cause: str - what failed
    category: str? - kind of cause: gpu, network, software, ...
    failure_count: int64 >=0 - failures
    printed_share: Float64? 0..1 - share of all failures as printed
""")

CAUSE_SHARES = table("""
    cause_shares: One row per cause, or category of causes, the most frequent first.

    cause: str - cause, or what the failures were put together by
    category: str? - category; missing if it has several
    failure_count: int64 >=0 - failures
    failure_share: Float64? 0..1 - of all failures, from the counts; missing if there are none
    low_share: float64 0..1 - lower end of the interval
    high_share: float64 0..1 - upper end of the interval
    cumulative_share: Float64? 0..1 - this cause and those before
    printed_share: Float64? 0..1 - share as printed by the source
""")

FAILURE_RATES = table("""
    failure_rates: One row per group of failures or nodes: failures over the time that nodes were
    watched.

    group: str - all, or the cause, category or node group
    failure_count: int64 >=0 - failures
    node_count: int64 >=1 - nodes watched
    exposure_node_days: float64 >=0 - time watched, all nodes together
    per_1000_node_days: float64 >=0 - failures per 1,000 node-days
    low_per_1000_node_days: float64 >=0 - lower end of the interval
    high_per_1000_node_days: float64 >=0 - upper end of the interval
    mtbf_h: Float64? >=0 - mean time between failures of all these nodes; missing if none failed
    low_mtbf_h: float64 >=0 - lower end of the interval
    high_mtbf_h: Float64? >=0 - upper end of the interval; missing if none failed
""")

JOB_SIZES = table("""
    job_sizes: One row per size of job: how long jobs of that size ran, and how often they failed.

    gpu_count: int64 >=1 - GPUs of the job
    run_count: int64 >=1 - runs
    failure_count: int64 >=0 - runs that failed
    exposure_h: float64 >=0 - time they ran, added up
""")

MTTF_BY_SIZE = table("""
    mttf_by_size: One row per size of job: the mean time to failure, and how it scales with size.

    gpu_count: int64 >=1 - GPUs of the job
    kind: str - measured or projected
    mttf_h: Float64? >=0 - mean time to failure; missing if none failed
    low_mttf_h: Float64? >=0 - lower end of the interval; missing without counts
    high_mttf_h: Float64? >=0 - upper end of the interval; missing without counts, or if none failed
    failure_count: Int64? >=0 - failures; missing if not counted
    exposure_h: Float64? >=0 - time jobs of that size ran, added up
    per_1000_node_days: Float64? >=0 - failures per 1,000 node-days; missing if none failed
    slope_ratio: Float64? - failures grow with size to this power, over the rows with counts; 1:
        every GPU is as likely to fail. The same in every row; missing if it cannot be known
    low_slope_ratio: Float64? - lower end of the interval
    high_slope_ratio: Float64? - upper end of the interval
""")

LIFETIMES = table("""
    lifetimes: One row per life: of a node from one failure to the next, or of a part until it
    failed.

    node: str? - node, or serial number of the part
    group: str - what is compared: model, rack, ...; all if nothing is
    lifetime_h: float64 >=0 - how long it lasted, or was watched
    is_failure: bool - it failed then; else it was no longer watched
""")

SURVIVAL = table("""
    survival: One row per group and time at which something failed or was last watched.

    group: str - group of lifetimes
    time_h: float64 >=0 - age
    at_risk_count: int64 >=0 - still watched just before that age
    failure_count: int64 >=0 - failed at that age
    censored_count: int64 >=0 - no longer watched after that age
    survival_share: float64 0..1 - that lives beyond that age (Kaplan-Meier)
    low_share: float64 0..1 - lower end of the interval
    high_share: float64 0..1 - upper end of the interval
    weibull_share: Float64? 0..1 - the same by the fitted Weibull law
""")

WEIBULL = table("""
    weibull: One row per group: the Weibull law that fits the lifetimes best.

    group: str - group of lifetimes
    lifetime_count: int64 >=0 - lifetimes, censored ones included
    failure_count: int64 >=0 - of them ended by a failure
    shape_ratio: Float64? >=0 - shape: below 1 early failures or bursts, 1 chance, above 1 wear;
        missing if there are too few failures
    low_shape_ratio: Float64? >=0 - lower end of the interval
    high_shape_ratio: Float64? >=0 - upper end of the interval
    scale_h: Float64? >=0 - scale: 63 % have failed by then
    low_scale_h: Float64? >=0 - lower end of the interval
    high_scale_h: Float64? >=0 - upper end of the interval
    exponential_mean_h: Float64? >=0 - mean if failures come by chance: total time / failures
    likelihood_ratio: Float64? >=0 - twice the gain in log-likelihood over chance alone
    p_value_share: Float64? 0..1 - probability of such a gain by chance
""")

RECURRENCE = table("""
    recurrence: One row per time at which nodes failed: failures per node up to then.

    time_h: float64 >=0 - since the observation began
    failure_count: int64 >=1 - failures at that time
    at_risk_count: int64 >=1 - nodes watched at that time
    mean_count: float64 >=0 - failures per node up to then (Nelson-Aalen)
    low_count: Float64? >=0 - lower end of the interval; missing once only one node is watched
    high_count: Float64? >=0 - upper end of the interval; missing likewise
    trend_count: float64 >=0 - the same by the fitted power law
""")

FAILURE_TREND = table("""
    failure_trend: One row: whether failures became more or less frequent while the nodes were
    watched.

    failure_count: int64 >=0 - failures
    node_count: int64 >=1 - nodes watched
    exposure_node_days: float64 >=0 - time watched, all nodes together
    growth_ratio: Float64? >=0 - failures grow with time to this power: above 1 ever more often;
        missing if there are too few failures
    low_growth_ratio: Float64? >=0 - lower end of the interval
    high_growth_ratio: Float64? >=0 - upper end of the interval
    laplace_ratio: Float64? - Laplace's test, in standard deviations: above 0 ever more often
    p_value_share: Float64? 0..1 - probability of so strong a trend if the rate is constant
""")

LEMON_NODES = table("""
    lemon_nodes: One row per node, the most suspicious first: whether it fails more often than
    chance has it.

    node: str - node
    failure_count: int64 >=0 - failures
    exposure_node_days: float64 >=0 - time it was watched
    expected_count: float64 >=0 - failures if all nodes had the same rate
    p_value_share: float64 0..1 - probability of so many by chance
    adjusted_p_value_share: float64 0..1 - the same for that many nodes at once
    shrunk_per_1000_node_days: float64 >=0 - its rate, drawn towards that of all nodes; to rank by
    is_lemon: bool - fails more often than the false discovery rate allows
    dispersion_ratio: Float64? >=0 - variance / mean of the counts of all nodes; 1 if only chance
        is at work. The same in every row; missing if none failed
    recall_share: Float64? 0..1 - of lemons as assumed, how many such an observation finds. The
        same in every row; missing if so few nodes have no whole lemon
""")

LEMON_RECALL = table("""
    lemon_recall: One row per length of observation: how many of the assumed lemons it finds.

    observed_days: float64 >=0 - how long the nodes are watched
    failure_count: float64 >=0 - failures to expect, all nodes
    least_failures_count: Int64? >=1 - failures from which a node is flagged; missing if none can
        be
    recall_share: float64 0..1 - of the lemons that are flagged
    precision_share: Float64? 0..1 - of the flagged that are lemons
""")

FAILURE_GAPS = table("""
    failure_gaps: One row: whether the failures of the whole system come in bursts.

    gap_count: int64 >=0 - times between failures
    together_count: int64 >=0 - failures at the same instant as one before
    mean_h: Float64? >=0 - mean time between failures
    variation_ratio: Float64? >=0 - standard deviation / mean of the gaps; 1 by chance
    shape_ratio: Float64? >=0 - Weibull shape: below 1 bursts, above 1 regular; missing if there are
        too few failures
    low_shape_ratio: Float64? >=0 - lower end of the interval
    high_shape_ratio: Float64? >=0 - upper end of the interval
    p_value_share: Float64? 0..1 - probability of such a shape by chance
""")

JOB_FAILURES = table("""
    job_failures: One row per run of a job that failed: what failed on its nodes around its end.

    job: str? - job as its scheduler numbers it
    attempt: Int32? >=1 - run of that job, from 1
    end_ns: int64 - when it ended, ns since the Unix epoch
    outcome: str - how it ended, as written
    primary_cause: str - earliest fatal cause, else earliest; unknown if none
    causes: str - all causes seen, in order of time, joined by ' + '
    cause_count: int64 >=0 - different causes seen
""")

CRASH_LOOPS = table("""
    crash_loops: One row per series of runs of one job that failed shortly after each other.

    job: str - job as its scheduler numbers it
    run_count: int64 >=1 - failed runs in a row
    first_ns: int64 - end of the first of them, ns since the Unix epoch
    last_ns: int64 - end of the last of them, ns since the Unix epoch
    primary_cause: str - most frequent primary cause of these runs
""")
