"""Steps of a trace requested other layouts: laws first, then what is refused or doubted."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims._layout_what_if import layout_what_if
from claims._tables import LAYOUT_WHAT_IF
from workbench import analyze
from workbench.analyze import Layout, ModelShape
from workbench.errors import PerformanceModelError, WorkbenchError
from workbench.tables import CONFIGURATIONS, STEP_BREAKDOWN

MS = 1_000_000
PARTS = ["compute", "communication", "bubble", "other", "idle"]
BASES = [f"{component}_basis" for component in PARTS]
SIZES = {"tensor": 2, "pipeline": 2, "data": 4, "global_batch": 64, "sharding": "zero1"}


def steps(*rows, ranks=1):
    """Make steps of (compute, overlap, exposed communication, copies, idle) in ms."""
    built = [
        {
            "rank": rank, "step": number, "dur_ns": (row[0] + sum(row[2:])) * MS,
            "compute_ns": row[0] * MS, "overlap_ns": row[1] * MS,
            "exposed_communication_ns": row[2] * MS, "exposed_memory_ns": row[3] * MS,
            "exposed_other_ns": 0, "idle_ns": row[4] * MS,
        }
        for number, row in enumerate(rows) for rank in range(ranks)
    ]  # fmt: skip
    return STEP_BREAKDOWN.check(STEP_BREAKDOWN.cast(pd.DataFrame(built)))


def job(layers=24, hidden=4_096, gpu="H100", **sizes):
    # A tiny vocabulary, so that nearly everything is layers.
    shape = ModelShape(layers=layers, hidden=hidden, heads=32, vocabulary=8)
    return analyze.configurations(shape, Layout(**{**SIZES, **sizes}), gpu=gpu)


ONE = steps((1_000, 100, 200, 10, 300))
row = st.tuples(*(st.integers(low, high) for low, high in ((5, 2_000), (0, 5), (0, 900), (0, 9))))


@pytest.mark.long
@given(
    rows=st.lists(st.tuples(row, st.integers(0, 900)), min_size=1, max_size=12),
    sizes=st.sampled_from([{}, {"pipeline": 1, "data": 8}, {"tensor": 1, "data": 8}]),
    scale=st.sampled_from([1, 2]),
)
def test_the_same_configuration_gives_the_measured_steps(rows, sizes, scale):
    measured = steps(*((*components, idle) for components, idle in rows), ranks=scale)
    now = job(**sizes)
    predicted = layout_what_if(measured, now, now).iloc[0]
    assert predicted["dur_ns"] == predicted["measured_ns"] == int(measured["dur_ns"].median())
    assert predicted[BASES].tolist() == ["measured"] * 5
    assert predicted["throughput_ratio"] == 1
    assert predicted["change"] == "as in the trace"
    assert predicted["step_count"] == len(rows)
    assert predicted[[f"{component}_ns" for component in PARTS]].sum() == predicted["dur_ns"]


@pytest.mark.long
@given(
    tensor=st.sampled_from([1, 2, 8]), pipeline=st.sampled_from([1, 4]),
    context=st.sampled_from([1, 2]), recompute=st.sampled_from(["none", "full"]),
    sharding=st.sampled_from(["none", "fsdp"]), gpu=st.sampled_from(["H100", "A100"]),
)  # fmt: skip
def test_parts_add_up_and_what_is_hidden_is_within_compute(gpu, **sizes):
    wanted = job(gpu=gpu, **sizes)
    table = layout_what_if(ONE, job(), wanted)
    predicted = LAYOUT_WHAT_IF.check(table).iloc[0]
    assert predicted[[f"{component}_ns" for component in PARTS]].sum() == predicted["dur_ns"]
    assert predicted["overlap_ns"] <= predicted["compute_ns"]
    assert predicted["mfu_share"] <= predicted["hfu_share"] <= 1


def test_twice_the_layers_take_twice_the_compute():
    predicted = layout_what_if(ONE, job(), job(layers=48)).iloc[0]
    assert predicted["compute_ns"] == pytest.approx(2_000 * MS, rel=1e-3)
    assert predicted["compute_basis"] == "scaled"
    assert predicted["communication_basis"] == "scaled"


def test_more_tensor_parallelism_has_less_compute_and_more_communication():
    # One replica, one stage: all communication is that of tensor parallelism.
    alone = {"pipeline": 1, "data": 1}
    wanted = pd.concat([job(tensor=item, **alone) for item in (2, 4, 8)])
    measured = steps((1_000, 0, 100, 0, 0))
    predicted = layout_what_if(measured, job(tensor=2, **alone), wanted)
    assert predicted["compute_ns"].is_monotonic_decreasing
    assert predicted["communication_ns"].is_monotonic_increasing
    assert predicted["communication_basis"].tolist() == ["measured", "scaled", "scaled"]
    predicted = layout_what_if(measured, job(tensor=1), job(tensor=2)).iloc[0]
    assert predicted["communication_basis"] == "modelled"
    assert "is modelled, not hidden: tensor" in predicted["doubt"]


def test_a_pipeline_that_the_trace_has_not_is_modelled_in_proportion_to_compute():
    now = job(pipeline=1, data=8)
    predicted, twice = (
        layout_what_if(steps((ms, 0, 0, 0, 0)), now, job()).iloc[0] for ms in (500, 1_000)
    )
    assert predicted["bubble_basis"] == "modelled"
    assert twice["bubble_ns"] == pytest.approx(2 * predicted["bubble_ns"], abs=2)
    share = predicted["bubble_ns"] / predicted["compute_ns"]
    assert share == pytest.approx(1 / 16, rel=0.5)  # (p - 1) / m
    assert "no pipeline in the trace: its bubble is modelled" in predicted["doubt"]


def test_the_bubble_is_no_longer_than_what_waits():
    predicted = layout_what_if(steps((1_000, 0, 3, 0, 4)), job(), job()).iloc[0]
    assert predicted["bubble_ns"] == 7 * MS
    assert predicted["idle_ns"] == predicted["communication_ns"] == 0
    assert "one rank only: the closed form separates the bubble" in predicted["doubt"]


def test_the_hidden_share_of_communication_stays():
    # Stays exposed: no pipeline, no bubble.
    now, then = job(pipeline=1), job(pipeline=1, sharding="fsdp")
    predicted = layout_what_if(steps((1_000, 90, 10, 0, 0)), now, then).iloc[0]
    share = predicted["overlap_ns"] / (predicted["overlap_ns"] + predicted["communication_ns"])
    assert share == pytest.approx(0.9) or predicted["overlap_ns"] == predicted["compute_ns"]
    assert predicted["communication_basis"] == "scaled"


def test_host_time_stays_unless_layers_or_micro_batches_change():
    now = job(pipeline=1)
    assumed = layout_what_if(steps((1_000, 0, 0, 0, 300)), now, job(pipeline=1, layers=48))
    assert 300 * MS < assumed["idle_ns"].iloc[0] <= 600 * MS
    same = layout_what_if(steps((1_000, 0, 0, 0, 300)), now, now)
    assert same["idle_ns"].iloc[0] == 300 * MS


def test_twice_the_replicas_train_nearly_twice_as_fast():
    predicted = layout_what_if(ONE, job(), job(data=8, global_batch=128)).iloc[0]
    assert 1.5 < predicted["throughput_ratio"] <= 2
    assert predicted["change"] == "GPUs 16 → 32, DP 4 → 8, batch 64 → 128"
    assert "32 GPUs, the trace has 16" in predicted["doubt"]


def test_nine_steps_have_an_interval_and_eight_have_none():
    rows = [(1_000 + number, 0, 100, 0, 0) for number in range(9)]
    predicted = layout_what_if(steps(*rows), job(), job()).iloc[0]
    assert (predicted["low_ns"], predicted["high_ns"]) == (1_100 * MS, 1_108 * MS)
    eight = layout_what_if(steps(*rows[:8]), job(), job()).iloc[0]
    assert pd.isna(eight["low_ns"])
    assert "8 steps are too few for an interval that holds 80% of them" in eight["doubt"]
    half = layout_what_if(steps(*rows[:3]), job(), job(), confidence_level=0.5).iloc[0]
    assert (half["low_ns"], half["high_ns"]) == (1_100 * MS, 1_102 * MS)


def test_another_gpu_and_assumed_constants_are_in_doubt():
    predicted = layout_what_if(ONE, job(), job(gpu="A100")).iloc[0]
    assert "GPU A100, the trace is of H100" in predicted["doubt"]
    assert "constants assumed" in predicted["doubt"]
    assert predicted["compute_ns"] > 1_000 * MS


def test_communication_without_a_reason_keeps_its_time():
    now = job(tensor=1, pipeline=1, data=1)
    predicted = layout_what_if(steps((1_000, 0, 50, 0, 0)), now, job(data=8, pipeline=1)).iloc[0]
    assert predicted["communication_ns"] > 50 * MS
    assert "the trace has some: it stays" in predicted["doubt"]


def test_a_calibrated_model_is_used():
    now = job()
    measured = now.assign(dur_ns=int(ONE["dur_ns"].iloc[0]), source="a trace", doubt="")
    model = analyze.calibrated_to(analyze.assumed_model(), measured)
    predicted = layout_what_if(ONE, now, job(tensor=4, data=2), model=model).iloc[0]
    assert "the model alone takes" not in predicted["doubt"]
    assert "calibrated on 1 row only" in predicted["doubt"]


def test_nothing_asked_has_no_answer():
    assert layout_what_if(ONE, job(), CONFIGURATIONS.empty()).empty


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"gpu_count": 99}, r"wanted, row 0: TP2 x CP1 x PP2 x DP4 is 16 GPUs, not 99"),
        ({"micro_batch_count": 5}, "does not divide by 4 replicas x 5 sequences"),
        ({"tensor_parallel": 3}, "32 heads do not divide by 3 tensor-parallel ranks"),
        ({"layer_count": 1}, "1 layers are fewer than 2 stages"),
        ({"context_parallel": 3}, "do not divide by 3 ranks"),
    ],
)
def test_what_no_job_can_be_is_refused(wrong, match):
    with pytest.raises(PerformanceModelError, match=match):
        layout_what_if(ONE, job(), job().assign(**wrong))


def test_a_trace_has_steps_and_one_configuration():
    with pytest.raises(PerformanceModelError, match="there is no step to scale"):
        layout_what_if(STEP_BREAKDOWN.empty(), job(), job())
    with pytest.raises(PerformanceModelError, match="now has 2 rows"):
        layout_what_if(ONE, pd.concat([job(), job()]), job())
    with pytest.raises(WorkbenchError, match="confidence_level"):
        layout_what_if(ONE, job(), job(), confidence_level=80)
