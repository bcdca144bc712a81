"""Choose a schedule and read the bubble."""

import pytest

from workbench import explore


def test_starts_with_the_bubble_of_the_textbook(title):
    explorer = explore.pipeline_schedule(source="a job")
    assert explorer.message.value == ""
    assert title(explorer) == "1f1b: 4 stages, pipeline bubble 27 % of the step"
    assert "a job" in explorer.figure().layout.annotations[-1].text


def test_a_longer_part_for_the_weights_fills_more_of_the_bubble(title):
    explorer = explore.pipeline_schedule()
    explorer.controls["schedule"].value = "zero_bubble"
    assert title(explorer) == "zero_bubble: 4 stages, pipeline bubble 11 % of the step"
    explorer.controls["weight_share"].value = 0.3
    assert title(explorer) == "zero_bubble: 4 stages, pipeline bubble 18 % of the step"


def test_what_is_not_possible_is_said_above_the_last_figure(title):
    explorer = explore.pipeline_schedule()
    explorer.controls["micro_batches"].value = 4.0
    before = title(explorer)
    explorer.controls["schedule"].value = "dualpipe_v"
    assert "as many micro-batches as there are chunks" in explorer.message.value
    assert title(explorer) == before


@pytest.mark.parametrize("gain", [0.0, 0.3])
def test_all_schedules_side_by_side(gain, title):
    explorer = explore.pipeline_schedule()
    explorer.controls["overlap_share"].value = gain
    explorer.controls["schedule"].value = "all, side by side"
    assert explorer.message.value == ""
    assert title(explorer).startswith("dualpipe_v takes" if gain else "zbv takes")


def test_every_control_has_a_label_and_answers_while_it_moves():
    for control in explore.pipeline_schedule().controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
