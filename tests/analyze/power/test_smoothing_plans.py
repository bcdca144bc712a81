"""Plans side by side are the summaries of each, beside the power as it was."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze
from workbench.analyze import SmoothingPlan
from workbench.errors import WorkbenchError

PLANS = {"floor": SmoothingPlan(floor_share=0.9), "store": SmoothingPlan(storage_tau_s=10)}


@pytest.fixture
def totals():
    time = np.arange(300) * 1_000_000_000
    power = 1000 + 200 * np.sign(np.sin(np.arange(300) / 3))
    frame = pd.DataFrame({"time_ns": time, "power_w": power})
    return frame.assign(entity_count=1, expected_count=1, covered_share=1.0)


def test_each_plan_has_the_row_that_it_has_alone(totals):
    table = analyze.smoothing_plans(totals, PLANS).set_index("plan")
    for name, plan in PLANS.items():
        alone = analyze.smoothing_summary(analyze.power_smoothing(totals, plan))
        after = alone.set_index("version").loc["after"]
        assert table.loc[name, "swing_w"] == after["swing_w"]
        assert table.loc[name, "energy_ratio"] == after["energy_ratio"]


def test_the_power_as_measured_comes_first_and_plans_in_their_order(totals):
    table = analyze.smoothing_plans(totals, PLANS)
    assert table["plan"].tolist() == ["as measured", "floor", "store"]
    assert table["energy_ratio"].iloc[0] == 1


def test_every_version_is_checked_against_the_specification(totals):
    spec = analyze.GridSpec("mine", ramp_up_w_per_s=100, ramp_down_w_per_s=100, ramp_window_s=1)
    table = analyze.smoothing_plans(totals, PLANS, spec=spec).set_index("plan")
    assert table.loc["as measured", "verdict"] == "fail"
    assert table.loc["store", "verdict"] != "fail"


def test_no_plan_is_refused(totals):
    with pytest.raises(WorkbenchError, match="no plan to compare"):
        analyze.smoothing_plans(totals, {})
