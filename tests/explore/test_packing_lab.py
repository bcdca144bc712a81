"""The explorers of the packing lab: move a control, read the screen."""

import pytest

from data import make
from workbench import explore
from workbench.errors import WorkbenchError
from workbench.explore.static import static_html

NOUNS = ("context_sharding", "length_shares", "packing_balance", "training_speed")


@pytest.fixture(scope="module")
def lengths():
    return {
        "one": make.document_lengths(4_000, seed=1),
        "<b>two</b>": make.document_lengths(4_000, seed=2, long_share=0.2),
    }


@pytest.fixture(scope="module", params=NOUNS)
def explorer(request, lengths):
    return getattr(explore, request.param)(lengths, source="demo", synthetic=True)


def test_starts_without_a_complaint_and_says_that_it_is_synthetic(explorer):
    assert explorer.message.value == ""
    assert explorer.title()
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text
    assert "demo" in str(explorer.figure().layout.annotations)


@pytest.mark.long
def test_every_control_has_a_label_answers_while_it_moves_and_changes_the_figure(explorer):
    for control in explorer.controls.values():
        assert control.description
        assert getattr(control, "continuous_update", True)
        before, start = explorer.figure().to_json(), control.value
        values = [each[1] if isinstance(each, tuple) else each for each in control.options]
        drawn = set()
        for each in values:
            control.value = each
            assert explorer.message.value == ""
            drawn.add(explorer.figure().to_json())
        assert len(drawn) > 1
        control.value = start
        assert explorer.figure().to_json() == before


def test_one_table_needs_no_name(lengths):
    explorer = explore.length_shares(lengths["one"])
    assert explorer.controls["documents"].options == ("documents",)
    with pytest.raises(WorkbenchError, match="no lengths to explore"):
        explore.length_shares({})


@pytest.mark.oracle
def test_the_lab_starts_at_the_published_case(real_data):
    from workbench import load

    lengths = load.document_lengths(real_data("lengths-documents") / "dist_wlbllm.json")
    explorer = explore.packing_balance(lengths)
    assert "queues from 32K/64K" in explorer.title()
    figure = explorer.draw(**explorer.values())
    drawn = dict(zip(figure.layout.yaxis.ticktext, figure.data[0].x, strict=True))
    assert drawn["plain"] == pytest.approx(1.44, abs=0.07)
    explorer.controls["queues"].value = "1/16 (too low for long tails)"
    explorer.controls["view"].value = "queues"
    assert explorer.title().startswith("Every queue empties")


def test_a_queue_that_overflows_is_called_so(lengths):
    explorer = explore.packing_balance(lengths)
    explorer.controls["documents"].value = "<b>two</b>"
    explorer.controls["view"].value = "queues"
    explorer.controls["queues"].value = "1/16 (too low for long tails)"
    assert (
        explorer.title()
        == "1 queue of 1 receive more than can leave: the delay grows without bound"
    )


def test_interleaving_that_does_not_fit_is_explained(lengths):
    explorer = explore.training_speed(lengths["one"])
    explorer.controls["view"].value = "step"
    explorer.controls["stages"].value = 8
    explorer.controls["chunks"].value = 2
    assert explorer.message.value == ""
    assert "stage 7" in explorer.figure().layout.yaxis.ticktext


@pytest.mark.slow
@pytest.mark.parametrize("noun", ["length_shares", "context_sharding"])
def test_small_explorers_work_without_a_kernel(noun, lengths):
    page = static_html(getattr(explore, noun)(lengths["one"]))
    assert page.count("data-wb") >= 3
    assert "Not possible" not in page
