"""The planner of training across regions: move a control, read the screen."""

import itertools
import time

import pytest

from workbench import datasets, explore, load


@pytest.fixture(scope="module")
def planner():
    regions = load.regions(datasets.path("local-training") / "regions.csv")
    return explore.local_training_rate(regions, source="own regions", synthetic=True)


def test_the_planner_starts_at_the_regions_as_they_are(planner, title):
    assert planner.message.value == ""
    assert title(planner).startswith("HALoS is fastest, 40.3 min; 1.69 times as long")
    assert "own regions" in str(planner.figure().layout.annotations)
    assert "SYNTHETIC DATA" in planner.figure().layout.title.subtitle.text


def test_faster_links_take_the_gain_away(planner, title):
    planner.controls["link"].value = 16.0
    assert "1.05 times as long with Async-Local-SGD" in title(planner)
    planner.controls["link"].value = 1.0
    planner.controls["local_steps"].value = 512.0
    assert "1.05 times as long with Async-Local-SGD" in title(planner)
    planner.controls["speeds"].value = True
    assert "times as long with DiLoCo" in title(planner)


def test_views_show_the_table_of_factors(planner, title):
    for name, control in (("link", 1.0), ("local_steps", 32.0), ("speeds", False)):
        planner.controls[name].value = control
    planner.controls["view"].value = "link factor"
    assert title(planner).startswith("Async-Local-SGD takes 3.09 times as long")
    planner.controls["view"].value = "local steps"
    assert "times as long as HALoS at local steps 4" in title(planner)
    planner.controls["view"].value = "rate"


def test_every_move_is_quick(planner):
    taken = []
    for view, link, size in itertools.product(
        ("rate", "link factor", "local steps"), (0.1, 16.0), (0.25, 4.0)
    ):
        start = time.process_time()
        planner.draw(
            view=view, link=link, speeds=False, local_steps=8.0, halos_steps=4.0, size=size
        )
        taken.append(time.process_time() - start)
    assert sorted(taken)[len(taken) // 2] < 0.1
