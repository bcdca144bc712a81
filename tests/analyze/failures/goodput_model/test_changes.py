"""Ladders and sizes of goodput."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analyze import (
    FaultTolerance,
    failure_interval_of,
    goodput_at_scale,
    goodput_ladder,
    productive_share,
)
from workbench.errors import TableError, WorkbenchError

PUBLISHED = FaultTolerance()
AT_98K = {"reference_gpus": 98_304, "failure_interval_min": 18}


@pytest.mark.oracle
def test_the_ladder_goes_from_44_to_80_percent():
    printed = {"full restart": 0.44, "global stall": 0.80}
    ladder = goodput_ladder(
        PUBLISHED, failure_interval_min=18, convention="interval", printed=printed
    ).set_index("change")
    assert ladder["productive_share"].round(4).tolist() == [0.4444, 0.9537, 0.8009]
    assert ladder["gain_ratio"].sum() == pytest.approx(0.8009 - 0.4444, abs=1e-4)
    assert ladder["printed_share"].dropna().to_dict() == printed


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("rate", "minutes"), [(2.3, 50.9), (3.79, 30.9), (4.21, 27.8), (6.5, 18.03)]
)
def test_time_between_failures_at_98304_gpus(rate, minutes):
    here = failure_interval_of(98_304, failures_per_1000_node_days=rate)
    # The first is 50.95, printed as 50.9.
    assert here == pytest.approx(minutes, abs=0.052)


def test_a_ladder_has_a_rung_for_all_that_the_job_has():
    job = replace(
        PUBLISHED, rejoin_min=100 / 60, checkpoint_interval_min=60, checkpoint_write_min=1
    )
    for convention in ("interval", "poisson"):
        ladder = goodput_ladder(job, failure_interval_min=18, convention=convention)
        assert ladder["change"].tolist()[-2:] == ["and again at re-join", "checkpoints are written"]
        ends = [
            productive_share(each, failure_interval_min=18, convention=convention)
            for each in (PUBLISHED.synchronous(), job)
        ]
        assert ladder["productive_share"].iloc[[0, -1]].tolist() == pytest.approx(ends)
        steps = np.cumsum(ladder["gain_ratio"]) + ends[0]
        assert steps.tolist() == pytest.approx(ladder["productive_share"].tolist())


@pytest.mark.oracle
def test_the_reference_size_gives_the_published_shares():
    table = goodput_at_scale(
        [98_304], PUBLISHED, convention="interval", rate_exponent=1.95, recovery_exponent=0.84,
        **AT_98K,
    )  # fmt: skip
    assert table["synchronous_share"].item() == pytest.approx(0.4444, abs=5e-5)
    assert table["replica_share"].item() == pytest.approx(0.8009, abs=5e-5)


def test_size_changes_rate_recovery_and_replicas_as_powers():
    table = goodput_at_scale(
        [16_384, 49_152, 196_608], PUBLISHED, gpus_per_replica=8_192, rate_exponent=2,
        recovery_exponent=0.5, **AT_98K,
    )  # fmt: skip
    assert table["failure_interval_min"].tolist() == pytest.approx([648, 72, 4.5])
    assert table["recovery_min"].tolist() == pytest.approx([10 / 6**0.5, 10 / 2**0.5, 10 * 2**0.5])
    assert table["replica_count"].tolist() == [2, 6, 24]
    small = goodput_at_scale([100], PUBLISHED, gpus_per_replica=8_192, **AT_98K)
    assert small["replica_count"].tolist() == [1]
    assert small["replica_share"].equals(small["synchronous_share"].rename("replica_share"))


@given(sizes=st.lists(st.integers(64, 500_000), min_size=2, max_size=6, unique=True).map(sorted),
       rate=st.floats(0, 2), recovery=st.floats(0, 1.5))  # fmt: skip
def test_larger_jobs_never_do_better(sizes, rate, recovery):
    table = goodput_at_scale(
        sizes, PUBLISHED, rate_exponent=rate, recovery_exponent=recovery, **AT_98K
    )
    for name in ("synchronous_share", "replica_share"):
        assert (table[name].diff().dropna() <= 1e-12).all()


# --- what is refused ---


def test_a_minimum_of_live_replicas_has_no_closed_form_anywhere():
    job = replace(PUBLISHED, min_replicas=10)
    calls = (
        lambda: goodput_at_scale([1024], job, **AT_98K),
        lambda: goodput_ladder(job, failure_interval_min=18, convention="poisson"),
    )
    for call in calls:
        with pytest.raises(WorkbenchError, match="min_replicas=10 has no closed form"):
            call()


def test_a_ladder_knows_its_changes_and_prints_shares():
    call = {"failure_interval_min": 18, "convention": "interval"}
    with pytest.raises(WorkbenchError, match=r"printed names \['magic'\]; the changes are"):
        goodput_ladder(PUBLISHED, printed={"magic": 0.5}, **call)
    with pytest.raises(TableError, match="'printed_share' has 1 values above 1"):
        goodput_ladder(PUBLISHED, printed={"full restart": 44}, **call)
    with pytest.raises(WorkbenchError, match="'renewal' has no closed form"):
        goodput_ladder(PUBLISHED, failure_interval_min=18, convention="renewal")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu_counts": []}, "gpu_counts must be numbers from 1"),
        ({"gpu_counts": [0]}, "gpu_counts must be numbers from 1"),
        ({"gpu_counts": [math.nan]}, "gpu_counts must be numbers from 1"),
        ({"reference_gpus": 0}, "reference_gpus must be above 0"),
        ({"failure_interval_min": -1}, "failure_interval_min must be above 0"),
        ({"rate_exponent": math.inf}, "rate_exponent must be a finite number"),
        ({"recovery_exponent": math.nan}, "recovery_exponent must be a finite number"),
        ({"rate_exponent": 1e6}, "rate_exponent=1e[+]06 takes .* out of all bounds"),
        ({"recovery_exponent": -1e6}, "recovery_exponent=-1e[+]06 takes .* out of all bounds"),
        ({"gpus_per_replica": 0}, "gpus_per_replica must be above 0"),
    ],
)
def test_sizes_are_checked(changes, words):
    values = {"gpu_counts": [1024], **AT_98K, **changes}
    with pytest.raises(WorkbenchError, match=words):
        goodput_at_scale(values.pop("gpu_counts"), PUBLISHED, **values)
    with pytest.raises(ValueError, match="convention must be one of"):
        goodput_at_scale([1024], PUBLISHED, convention="log", **AT_98K)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, None])
def test_rates_are_checked(value):
    with pytest.raises(WorkbenchError, match="failures_per_1000_node_days must be above 0"):
        failure_interval_of(8, failures_per_1000_node_days=value)
    with pytest.raises(WorkbenchError, match="gpu_count must be above 0"):
        failure_interval_of(value, failures_per_1000_node_days=1)
    with pytest.raises(WorkbenchError, match="gpus_per_node must be above 0"):
        failure_interval_of(8, failures_per_1000_node_days=1, gpus_per_node=value)
