"""The straggler explorer: every view of a job, step by step."""

import pytest

from data import make
from workbench import explore, load
from workbench.explore.static import static_html
from workbench.tables import JOB_OPERATIONS

VIEWS = (
    "verdict", "worker", "stage", "dp_rank", "operation", "schedule", "micro-batches",
    "measures", "steps",
)  # fmt: skip


@pytest.fixture(scope="module")
def operations(imbalance_demo):
    return load.job_operations(imbalance_demo / "synthetic_job.parquet")


@pytest.fixture(scope="module")
def explorer(operations):
    return explore.job_slowdown(operations, source="demo", synthetic=True)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_and_labelled(explorer, view):
    explorer.controls["view"].value = view
    assert explorer.message.value == ""
    assert explorer.title()
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text


def test_starts_with_the_verdict(operations):
    explorer = explore.job_slowdown(operations)
    assert explorer.title().startswith("The job is 1.")
    assert "a few workers are slow" in explorer.title()


def test_the_schedule_follows_the_step(explorer):
    explorer.controls["view"].value = "schedule"
    explorer.controls["step"].value = 2
    assert explorer.title().startswith("Step 2 of rank")
    explorer.controls["step"].value = "all"
    assert explorer.title().startswith("Step ")


def test_every_control_has_a_label(explorer):
    assert [control.description for control in explorer.controls.values()] == ["view", "step"]


def test_all_states_fit_on_a_page_however_many_steps_there_are():
    job = make.pipeline_job(seed=1, shape=(2, 2, 2, 40)).operations
    explorer = explore.job_slowdown(job)
    offered = [label for label, _ in explorer.controls["step"].options]
    assert offered[1] == "0"
    assert offered[-1] == "39"
    assert len(offered) * len(VIEWS) <= 200


@pytest.mark.slow
def test_the_page_without_a_kernel_holds_every_state(operations):
    assert "Rank 6 on stage 2" in static_html(explore.job_slowdown(operations))


def test_what_is_not_whole_is_left_out_and_told(operations):
    cut = operations.drop(index=operations.index[-3:]).reset_index(drop=True)
    explorer = explore.job_slowdown(cut)
    assert explorer.message.value == ""
    text = explorer.figure().layout.title.subtitle.text.replace("<br>", " ")
    assert "of 6 steps (5) that lack" in text


def test_a_job_without_operations_is_explained_not_raised():
    explorer = explore.job_slowdown(JOB_OPERATIONS.empty())
    assert "no operations to replay" in explorer.message.value
