"""Start-up: published points, the curve through them, its limits, and what it costs in goodput."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench.analyze._communication.startup_time import terms
from workbench.analyze._failures.goodput_model.startup import with_startup
from workbench.errors import PerformanceModelError, TableError, WorkbenchError

RANKS = np.array([8_192, 32_768, 98_304.0])
NCCL, NCCLX = np.array([14.5, 55.71, 265.0]), np.array([3.97, 11.89, 24.0])


@pytest.mark.oracle
def test_every_published_point_comes_back_and_the_largest_differ_elevenfold():
    times = analyze.startup_time([8_192, 32_768, 98_304], libraries=["NCCL", "NCCLX"])
    assert times["startup_s"].tolist() == [*NCCL, *NCCLX]
    assert set(times["basis"]) == {"published"}
    assert times["startup_s"].iloc[2] / times["startup_s"].iloc[5] == pytest.approx(11.04, abs=0.05)


def test_the_curve_through_the_points_is_quadratic_for_nccl_and_linear_for_ncclx():
    assert terms(RANKS, NCCL) * [1, 1e4, 1e8] == pytest.approx([5.28, 9.874, 1.683], abs=5e-3)
    fitted = terms(RANKS, NCCLX)
    assert fitted * [1, 1e4, 1e8] == pytest.approx([3.33, 2.145, 0], abs=5e-3)
    residuals = fitted @ [RANKS**k for k in range(3)] - NCCLX
    assert residuals == pytest.approx([1.1, -1.5, 0.4], abs=0.05)


def test_the_printed_topology_term_alone_does_not_explain_a_held_out_point():
    """10 s at 48K for the topology, and two points: 36 % too long at 32K, and less than 0 at 0."""
    c = 10 / 48_000**2
    b = (NCCL[2] - NCCL[0] - c * (RANKS[2] ** 2 - RANKS[0] ** 2)) / (RANKS[2] - RANKS[0])
    a = NCCL[0] - b * RANKS[0] - c * RANKS[0] ** 2
    assert a == pytest.approx(-4.8, abs=0.1)
    assert a + b * RANKS[1] + c * RANKS[1] ** 2 == pytest.approx(75.8, abs=0.2)


def test_beyond_the_points_both_curves_are_given_and_it_is_said():
    times = analyze.startup_time([200_000], libraries=["NCCL"]).iloc[0]
    a, b, c = terms(RANKS, NCCL)
    assert times["high_s"] == pytest.approx(a + b * 2e5 + c * 4e10)
    exponent = np.log(265 / 55.71) / np.log(3)
    assert times["low_s"] == pytest.approx(265 * (2e5 / 98_304) ** exponent)
    assert times["basis"] == "extrapolated"
    assert "from 3 published points" in times["doubt"]


def test_two_sources_on_one_library_are_not_averaged():
    times = analyze.startup_time([98_304]).set_index("library")
    assert times.loc[["NCCL", "NCCL of FT-HSDP"], "startup_s"].tolist() == [265.0, 200.0]


@given(st.lists(st.integers(min_value=2, max_value=10**6), min_size=1, max_size=20, unique=True))
def test_time_grows_with_ranks_and_lies_in_its_interval(counts):
    times = analyze.startup_time(sorted(counts))
    assert (times["low_s"] <= times["startup_s"]).all()
    assert (times["startup_s"] <= times["high_s"]).all()
    steps = times.groupby("library")["startup_s"].diff().dropna()
    assert (steps >= -1e-9).all()


@pytest.mark.parametrize("counts", [[1], [], [8.5], [np.nan]])
def test_numbers_of_ranks_that_make_no_sense_are_refused(counts):
    with pytest.raises(PerformanceModelError, match="rank_counts must hold whole numbers from 2"):
        analyze.startup_time(counts)


def test_an_unknown_library_is_refused_with_those_known():
    with pytest.raises(PerformanceModelError, match=r"of \['MPI'\] was printed; known: \['NCCL'"):
        analyze.startup_time([8_192], libraries=["MPI"])


JOB = analyze.FaultTolerance(recovery_min=5, stall_min=0, replicas=1)


@pytest.mark.oracle
def test_241_seconds_per_start_are_22_percent_of_the_time_at_a_failure_every_18_minutes():
    startup = analyze.startup_time([98_304], libraries=["NCCL", "NCCLX"])
    shares = [
        analyze.productive_share(
            with_startup(JOB, seconds), failure_interval_min=18, convention="interval"
        )
        for seconds in startup["startup_s"]
    ]
    assert shares[1] - shares[0] == pytest.approx(241 / 60 / 18, abs=1e-4)
    assert shares[1] - shares[0] == pytest.approx(0.22, abs=5e-3)


def test_goodput_by_size_is_that_of_a_job_with_the_start_up_in_its_recovery():
    startup = analyze.startup_time([16_384, 200_000], libraries=["NCCL"])
    table = analyze.startup_goodput(startup, JOB, failures_per_1000_node_days=6.5)
    for row in table.itertuples():
        interval = analyze.failure_interval_of(row.gpu_count, failures_per_1000_node_days=6.5)
        job = analyze.FaultTolerance(
            recovery_min={"rest": 5, "start": row.startup_s / 60}, stall_min=0, replicas=1
        )
        expected = analyze.productive_share(
            job, failure_interval_min=interval, convention="poisson"
        )
        assert row.productive_share == pytest.approx(expected)
    assert table["basis"].tolist() == ["interpolated", "extrapolated"]
    assert (table["low_share"] <= table["productive_share"]).all()
    assert (table["productive_share"] <= table["high_share"]).all()


def test_where_a_convention_has_no_answer_the_share_is_missing():
    startup = analyze.startup_time([200_000], libraries=["NCCL"])
    table = analyze.startup_goodput(
        startup, JOB, failures_per_1000_node_days=6.5, convention="interval"
    )
    assert table["productive_share"].isna().all()
    assert table["startup_share"].isna().all()


def test_a_start_up_that_the_recovery_has_already_is_replaced():
    job = analyze.FaultTolerance(recovery_min={"detection": 1, "NCCL init": 4}, replicas=1)
    assert with_startup(job, 30).recovery_min == {"detection": 1.0, "NCCL init": 0.5}


def test_wrong_input_is_refused():
    startup = analyze.startup_time([8_192])
    with pytest.raises(WorkbenchError, match="startup_s must be 0 or more"):
        with_startup(JOB, -1)
    with pytest.raises(WorkbenchError, match="failures_per_1000_node_days must be above 0"):
        analyze.startup_goodput(startup, JOB, failures_per_1000_node_days=0)
    with pytest.raises(ValueError, match="convention must be one of"):
        analyze.startup_goodput(startup, JOB, failures_per_1000_node_days=1, convention="daily")
    with pytest.raises(TableError, match="startup is not a valid 'startup_time' table"):
        analyze.startup_goodput(startup[["library"]], JOB, failures_per_1000_node_days=1)
