"""Claims about findings: recall, false findings and cost in simulated jobs of known truth."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from claims._tables import FINDING_CASES, FINDING_QUALITY
from claims.registry import Reading, claim
from data import make
from workbench import analyze

NO_TROUBLE = "none"
LEAST_RECALL, MOST_FALSE, MOST_COST_ERROR = 0.95, 0.1, 0.2
_CLAIMED_SEEDS = (1, 3)
_TRACED_RANKS = (2, 4, 4, 8, 8, 8, 16, 32)


class Expected(NamedTuple):
    """The rule that should find a trouble, from which loss on, and the strengths to try."""

    rule: str
    from_share: float = 0.02
    strengths: tuple[float, float] = (0.002, 0.3)


# Silicon of one model varies in power by several per cent, grids are specified in tenths of the
# load, and collectors lose single readings: smaller values there are no trouble.
EXPECTED = {
    "slow rank": Expected("straggler"),
    "late host": Expected("straggler"),
    "exposed communication": Expected("exposed_communication"),
    "slow link": Expected("slow_group"),
    "slow launches": Expected("host_bound"),
    "synchronising calls": Expected("synchronising_calls"),
    "pageable copies": Expected("pageable_copies"),
    "tiny kernels": Expected("tiny_kernels"),
    "slow first step": Expected("first_step"),
    "wrong clock": Expected("clock_disagreement"),
    "slow data loader": Expected("data_loader"),
    "pauses": Expected("long_pauses"),
    "unequal experts": Expected("expert_imbalance"),
    "checkpoints": Expected("checkpoint_time"),
    "evaluations": Expected("evaluation_time"),
    "start-up": Expected("initialisation"),
    "unexplained time": Expected("time_not_told"),
    "slower steps": Expected("slower_steps"),
    "outlier steps": Expected("outlier_steps"),
    "interruption": Expected("interruption"),
    "power cap": Expected("capped_gpu"),
    "throttling": Expected("thermal_throttling"),
    "low power": Expected("odd_gpu", 0.15, (0.02, 0.5)),
    "power swing": Expected("power_swing", 0.1, (0.02, 0.5)),
    "idle GPU": Expected("idle_gpus", 0.05),
    "silent meter": Expected("telemetry_gaps", 0.1, (0.02, 0.5)),
    "pipeline: slow worker": Expected("slow_workers"),
    "pipeline: last stage": Expected("last_stage"),
    "pipeline: sequence lengths": Expected("sequence_lengths"),
    "pipeline: pauses": Expected("pauses"),
    "pipeline: slow network": Expected("slow_network"),
    "dark time": Expected("graph_holes", 0.06, (0.02, 0.5)),
    "unknown idle time": Expected("unexplained_idle", 0.06, (0.02, 0.5)),
    "unused GPU": Expected("unused_gpu", 0.6, (0.1, 1.0)),
    **dict.fromkeys(make.TROUBLES["failure logs"], Expected("last_failure")),
}


def finding_cases(
    seeds: Iterable[int],
    *,
    troubles: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Simulate a job per trouble and seed, and ask the rule that should find the trouble.

    A third of the jobs has a second trouble that another rule finds. Every seed also gives one job
    without trouble, of which all rules are asked.

    Parameters
    ----------
    seeds
        Seeds of the jobs. Thresholds were chosen on even ones; report odd ones.
    troubles
        Troubles to put in, of :data:`data.make.TROUBLES`, or ``"none"``; all that have a
        rule by default.
    progress
        Called with each trouble.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims.FINDING_CASES`.
    """
    numbers, rows = list(seeds), []
    for trouble in (NO_TROUBLE, *EXPECTED) if troubles is None else troubles:
        if progress is not None:
            progress(trouble)
        case = _healthy if trouble == NO_TROUBLE else functools.partial(_case, trouble)
        rows += [case(seed) for seed in numbers]
    table = pd.DataFrame(rows, columns=list(FINDING_CASES.columns))
    return FINDING_CASES.check(FINDING_CASES.cast(table))


def _healthy(seed: int) -> dict[str, object]:
    random = np.random.default_rng([seed, 21])
    job = make.troubled_job(seed=seed, ranks=int(random.choice(_TRACED_RANKS)))
    table = analyze.findings(job.bundle).findings
    return _row(NO_TROUBLE, ", ".join(table["rule"]), seed, false_count=len(table))


def _row(trouble: str, rule: str, seed: int, **known: object) -> dict[str, object]:
    usual = {"others": "", "loss_share": 0.0, "is_found": False, "elsewhere_count": 0,
             "cost": None, "true_cost": None, "false_count": 0}  # fmt: skip
    return usual | {"trouble": trouble, "rule": rule, "seed": seed} | known


def _case(trouble: str, seed: int) -> dict[str, object]:
    random = np.random.default_rng([seed, 22, list(EXPECTED).index(trouble)])
    chosen = {trouble: _strength(trouble, random)}
    others = [other for other in _alike(trouble) if EXPECTED[other].rule != EXPECTED[trouble].rule]
    if others and random.random() < 1 / 3:
        other = str(random.choice(others))
        chosen[other] = _strength(other, random)
    # One group has no like, so its link cannot be compared.
    ranks = int(random.choice(_TRACED_RANKS[1:] if trouble == "slow link" else _TRACED_RANKS))
    if trouble in ("low power", "power swing"):
        # Two GPUs have no usual power and swing no grid.
        ranks = max(ranks, 4)
    job = make.troubled_job(chosen, seed=seed, ranks=ranks, steps=int(random.integers(5, 10)))
    truth = job.truth.set_index("trouble").loc[trouble]
    rule = EXPECTED[trouble].rule
    # Why a job died is the first question, so its answer has to be the first finding of all.
    is_end = trouble in make.TROUBLES["failure logs"]
    table = analyze.findings(job.bundle, rules=None if is_end else [rule]).findings
    table = table.head(1) if is_end else table
    place = re.compile(rf"\b{re.escape(truth['where'])}\b" if truth["where"] else "")
    table = table.assign(is_here=[bool(place.search(where)) for where in table["where"]])
    hits = table[table["is_here"] & table["rule"].eq(rule)]
    cost = hits["cost"].iloc[0] if len(hits) and pd.notna(truth["cost"]) else None
    return _row(
        trouble, rule, seed, others=", ".join(list(chosen)[1:]),
        loss_share=truth["loss_share"], is_found=len(hits) > 0, cost=cost, true_cost=truth["cost"],
        elsewhere_count=len(table) - len(hits),
    )  # fmt: skip


def _strength(trouble: str, random: np.random.Generator) -> float:
    low, high = np.log(EXPECTED[trouble].strengths)
    return float(np.exp(random.uniform(low, high)))


def _alike(trouble: str) -> tuple[str, ...]:
    """Return the troubles that show in the same kind of data; a job has one end."""
    kinds = [names for kind, names in make.TROUBLES.items()
             if kind not in ("job operations", "failure logs")]  # fmt: skip
    return next((names for names in kinds if trouble in names), ())


def finding_quality(cases: pd.DataFrame) -> pd.DataFrame:
    """Measure detection and cost error of each trouble, and false findings.

    Parameters
    ----------
    cases
        Table :data:`claims.FINDING_CASES`.

    Returns
    -------
    pandas.DataFrame
        Table :data:`claims.FINDING_QUALITY`, one row per trouble.
    """
    FINDING_CASES.check(cases)
    troubled = cases[cases["trouble"] != NO_TROUBLE]
    rows = [_quality(str(name), own) for name, own in troubled.groupby("trouble", sort=False)]
    healthy = cases[cases["trouble"] == NO_TROUBLE]
    if len(healthy):
        false = float(healthy["false_count"].mean())
        rows.append(
            {"trouble": NO_TROUBLE, "rule": "all rules", "case_count": len(healthy),
             "found_count": 0, "false_ratio": false,
             "verdict": "met" if false <= MOST_FALSE else "MISSED"}
        )  # fmt: skip
    table = pd.DataFrame(rows, columns=list(FINDING_QUALITY.columns)).astype(object)
    return FINDING_QUALITY.check(FINDING_QUALITY.cast(table.where(table.notna(), None)))


def _quality(trouble: str, cases: pd.DataFrame) -> dict[str, Any]:
    from_share = EXPECTED[trouble].from_share
    large = cases[cases["loss_share"] >= from_share]
    hits = large[large["is_found"] & large["cost"].notna()]
    error = (hits["cost"] / hits["true_cost"] - 1).abs().median() if len(hits) else None
    recall = float(large["is_found"].mean()) if len(large) else None
    elsewhere = float(cases["elsewhere_count"].mean())
    is_met = recall is not None and recall >= LEAST_RECALL and elsewhere <= MOST_FALSE
    is_met = is_met and (error is None or error <= MOST_COST_ERROR)
    return {
        "trouble": trouble, "rule": EXPECTED[trouble].rule, "from_share": from_share,
        "case_count": len(large), "found_count": int(large["is_found"].sum()),
        "recall_share": recall, "smallest_share": _smallest(cases), "elsewhere_ratio": elsewhere,
        "cost_error_ratio": error, "verdict": "met" if is_met else "MISSED",
    }  # fmt: skip


def _smallest(cases: pd.DataFrame) -> float | None:
    """Return the smallest loss such that nine of ten of the cases from there on are found."""
    ordered = cases.sort_values("loss_share", ascending=False)
    recall = ordered["is_found"].expanding().mean().to_numpy()
    enough = np.flatnonzero(recall >= 0.9)
    return float(ordered["loss_share"].iloc[enough[-1]]) if len(enough) else None


@claim(
    noun="findings",
    name="rules find the troubles of simulated jobs, and nothing in healthy ones",
    source="goals of docs/diagnose.md; data.make.troubled_job",
)
def rules() -> Iterator[Reading]:
    """Compare what two odd seeds give over all troubles with the goals.

    :func:`finding_quality` of more seeds tells the rules apart; docs/diagnose.md prints it.
    """
    cases = finding_cases(_CLAIMED_SEEDS)
    is_healthy = cases["trouble"] == NO_TROUBLE
    troubled, healthy = cases[~is_healthy], cases[is_healthy]
    large = troubled[troubled["loss_share"] >= troubled["trouble"].map(_from_share)]
    error = (large["cost"] / large["true_cost"] - 1).abs().median()
    yield Reading("recall, all troubles", LEAST_RECALL, float(large["is_found"].mean()), "",
                  bound="at least")  # fmt: skip
    limits = {
        "findings at another place per job": (MOST_FALSE, troubled["elsewhere_count"].mean()),
        "false findings per healthy job": (MOST_FALSE, healthy["false_count"].mean()),
        "median error of the cost": (MOST_COST_ERROR, error),
    }
    for what, (limit, here) in limits.items():
        yield Reading(what, limit, float(here), "", bound="at most")


def _from_share(trouble: str) -> float:
    return EXPECTED[trouble].from_share
