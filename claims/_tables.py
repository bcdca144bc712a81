"""Tables of the claims, declared and checked like those of the workbench."""

from __future__ import annotations

from workbench.tables.table import table

RESULTS = table("""
    results: One row per number printed elsewhere and computed here.

    noun: str - what the claim is about, e.g. traces
    claim: str - name of the claim
    what: str - which of its numbers this is; empty for the claim as a whole
    source: str - paper, table, page or project that printed the number
    printed: float64? - number as printed, in `unit`
    here: float64? - number computed here, in `unit`
    tolerance: float64? >=0 - largest difference allowed, in `unit`
    unit: str - unit of the three numbers; empty for a plain number
    verdict: category - pass, short (misses a limit, and is known to), FAIL, or absent (a data set
        or package is not available)
    note: str - why a claim failed or how to get its data set; else empty
""")

FINDING_CASES = table("""
    finding_cases: One row per simulated job and trouble in it, and how the rule for it answered; a
    job without troubles has a row of its own.

    trouble: str - slow rank, checkpoints, power cap, ...; none
    rule: str - rule that should find it; of a job without troubles, the rules that found something
    seed: int64 - seed of the job
    others: str - other trouble of the job; else empty
    loss_share: float64 0..1 - true loss, as in the truth of the job
    is_found: bool - the rule found it, where it is
    elsewhere_count: int64 >=0 - findings of the rule that name another place
    cost: Float64? - cost as found, in the unit of the rule
    true_cost: Float64? >=0 - true cost, in the same unit
    false_count: int64 >=0 - findings in a job without troubles
""")

FINDING_QUALITY = table("""
    finding_quality: One row per trouble: how well its rule finds it in simulated jobs. The last
    row, of trouble none, counts what all rules find in jobs without trouble.

    trouble: str - slow rank, checkpoints, power cap, ...; none
    rule: str - rule that should find it
    from_share: Float64? 0..1 - true loss from which a case counts
    case_count: int64 >=0 - jobs with such a loss; of none, all jobs
    found_count: int64 >=0 - of them found, where the trouble is
    recall_share: Float64? 0..1 - found_count / case_count
    smallest_share: Float64? 0..1 - smallest loss from which on nine of ten jobs are found
    elsewhere_ratio: Float64? >=0 - findings of the rule that name another place, per job
    cost_error_ratio: Float64? >=0 - median of how far the found cost is off the true one
    false_ratio: Float64? >=0 - findings per job without trouble
    verdict: category - met, or MISSED: recall at least 95 %, cost within 20 %, and at most one
        false finding in ten jobs
""")
