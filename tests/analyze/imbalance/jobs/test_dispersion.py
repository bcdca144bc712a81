"""Usual measures of imbalance, beside the truth: as printed, and as the causes would have it."""

import numpy as np
import pytest

from data import make
from workbench import analyze, load

SHAPE = (8, 4, 8, 6)


def measured(causes, shape=SHAPE):
    operations = make.pipeline_job(causes, seed=4, shape=shape).operations
    return analyze.job_dispersion(operations).set_index("measure")


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["SE", "ST"])
def test_real_jobs_have_the_printed_dispersion(real_data, published, name):
    operations = load.job_operations(real_data("stragglers-bytedance") / f"trace-{name}.parquet")
    table = analyze.job_dispersion(operations).set_index("measure")["value_ratio"]
    printed = published("job_dispersion")
    for row in printed[printed["job"] == name].to_dict("records"):
        assert table[row["measure"]] == pytest.approx(row["value"], abs=row["tolerance"])


@pytest.mark.oracle
def test_the_wait_in_collectives_hides_most_of_what_a_real_job_loses(real_data):
    operations = load.job_operations(real_data("stragglers-bytedance") / "trace-SE.parquet")
    lost = analyze.job_dispersion(operations).set_index("measure")["lost_share"]
    assert lost["what-if waste"] == pytest.approx(0.35, abs=0.005)
    assert lost["waiting in data-parallel collectives"] < 0.05


def test_an_equal_job_has_little_to_say():
    table = measured({})
    ratios = table.loc[
        [name for name in table.index if name.startswith("compute of")], "value_ratio"
    ]
    assert (ratios < 1.03).all()
    assert table.loc["score relative to the best rank", "value_ratio"] > 0.95


def test_means_over_steps_hide_what_is_random_but_not_what_stays():
    random, persistent = measured({"sequence lengths": 0.6}), measured({"slow worker": 2.0})
    names = ["compute of a worker, mean step", "compute of a worker, each step"]
    hidden, seen = (table.loc[names, "value_ratio"].to_numpy() for table in (random, persistent))
    assert hidden[1] > hidden[0] + 0.1
    assert seen[0] == pytest.approx(seen[1], rel=0.02)
    assert persistent.loc["score relative to the best rank", "value_ratio"] == pytest.approx(
        0.5, abs=0.03
    )
    assert persistent.loc["score relative to its own best step", "value_ratio"] > 0.9


def test_a_measure_of_max_over_mean_is_exact():
    operations = make.pipeline_job({"last stage": 1.5}, seed=4, shape=SHAPE).operations
    value = analyze.job_dispersion(operations).set_index("measure")["value_ratio"]
    assert value["compute of a stage"] == pytest.approx(1.5 / (4.5 / 4), rel=0.01)


def test_shares_are_those_of_the_recorded_step():
    operations = make.pipeline_job(seed=4, shape=SHAPE).operations
    value = analyze.job_dispersion(operations).set_index("measure")["value_ratio"]
    steps = analyze.job_steps(operations)["actual_ns"].sum()
    computed = operations.loc[operations["micro_batch"].notna(), "dur_ns"].sum()
    assert value["computing"] == pytest.approx(computed / (32 * steps))


def test_every_measure_says_what_it_hides():
    table = measured({})
    assert table[["formula", "hides"]].map(lambda text: len(text.split()) > 2).all(axis=None)
    lost = table["lost_share"].dropna().to_numpy(dtype=np.float64)
    assert ((lost >= 0) & (lost <= 1)).all()
