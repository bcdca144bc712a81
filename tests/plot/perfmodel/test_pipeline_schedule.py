"""Pictures of pipeline schedules: what they say, and what they leave out."""

import pandas as pd
import pytest

from workbench import analyze, plot
from workbench.analyze import PassTimes

TIMES = PassTimes(1e6, 2e6, 1e6, 0.0, 2.5e6)


def laid_out(kind, stages, micro_batches):
    schedule = analyze.pipeline_schedule(kind, stages, micro_batches)
    return analyze.schedule_times(schedule, TIMES)


def test_every_pass_is_a_bar_with_its_letter_and_micro_batch():
    figure = plot.pipeline_schedule(laid_out("zero_bubble", 4, 8))
    assert [trace.name[0] for trace in figure.data] == ["F", "I", "W"]
    assert sum(len(trace.x) for trace in figure.data) == 4 * 8 * 3
    assert figure.data[0].text[0] == "F0"
    assert figure.layout.title.text == "zero_bubble: 4 stages, pipeline bubble 11 % of the step"
    assert figure.layout.xaxis.title.text == "time [ms]"


def test_a_bar_too_narrow_for_its_letters_has_none():
    figure = plot.pipeline_schedule(laid_out("1f1b", 8, 32))
    written = {trace.name[0]: list(map(bool, trace.text)) for trace in figure.data}
    # A backward pass takes 2 ms of 117, which is room for letters; a forward pass takes 1 ms.
    assert (any(written["F"]), all(written["B"])) == (False, True)
    assert all(trace.hovertemplate and len(trace.customdata) == 256 for trace in figure.data)
    alone = plot.pipeline_schedule(laid_out("gpipe", 2, 512))
    assert not any(any(trace.text) for trace in alone.data)
    assert "letter" not in alone.layout.title.subtitle.text


@pytest.mark.parametrize("kind", ["1f1b", "dualpipe_v", "zbv"])
def test_the_title_states_the_bubble_of_the_analysis(kind):
    times = laid_out(kind, 4, 16)
    share = analyze.schedule_summary(times)["bubble_share"].iloc[0]
    words = f"{100 * share:.{0 if share >= 0.1 else 1}f} % of the step"
    assert words in plot.pipeline_schedule(times).layout.title.text


def test_passes_that_overlap_share_a_lane():
    figure = plot.pipeline_schedule(laid_out("dualpipe_v", 2, 6))
    widths = {width for trace in figure.data for width in trace.width}
    assert widths == {0.43, 0.86}
    assert "half height: two passes at once" in figure.layout.title.subtitle.text


def test_two_schedules_stand_above_each_other():
    two_tables = pd.concat([laid_out(kind, 2, 4) for kind in ("gpipe", "zbv")], ignore_index=True)
    figure = plot.pipeline_schedule(two_tables.astype({"schedule": "category"}))
    ticks = list(figure.layout.yaxis.ticktext)
    assert ticks == ["<b>gpipe</b>, stage 0", "stage 1", "<b>zbv</b>, stage 0", "stage 1"]
    assert "; zbv: " in figure.layout.title.text


def test_what_is_not_drawn_is_said():
    figure = plot.pipeline_schedule(laid_out("1f1b", 60, 64))
    title_text = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert "12 stages not shown" in title_text
    assert "the first 4,000 of 6,144 passes" in title_text


def test_the_fastest_schedule_is_on_top_and_in_the_title():
    table = analyze.schedule_comparison(TIMES, stages=8, micro_batches=32)
    figure = plot.schedule_comparison(table.sample(frac=1, random_state=2))
    assert figure.layout.yaxis.ticktext[0] == table["schedule"].iloc[0]
    title = figure.layout.title.text.replace("<br>", " ")
    assert title.startswith(f"{table['schedule'].iloc[0]} takes ")
    more = table["step_ns"].iloc[-1] / table["step_ns"].iloc[0] - 1
    assert title.endswith(f"takes {100 * more:.0f} % more")
    assert figure.layout.annotations[0].text.startswith("bubble ")
