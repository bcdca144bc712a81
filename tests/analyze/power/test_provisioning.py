"""Sites and limits: the published case first, then laws, then impossible sites."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import POWER_CURVE, PROVISIONING, PUBLISHED_GAINS

SITE = {"budget_w": 150e6, "pue_ratio": 1.0, "fixed_w": 0.0, "overhead_w": 357.14}


def curve(*points, **same):
    """Make a measured curve from (limit, speed) or (limit, speed, power)."""
    usual = {"gpu": "G", "job": "net", "configuration": "c", "configuration_count": 1,
             "basis": "measured", "is_extrapolated": False, "doubt": "", "source": "s"}  # fmt: skip
    rows = [
        usual | same | dict(zip(("limit_w", "speed_ratio", "power_w"), each, strict=False))
        for each in points
    ]
    frame = pd.DataFrame(rows).reindex(columns=list(POWER_CURVE.columns))
    return POWER_CURVE.check(POWER_CURVE.cast(frame))


GB200 = analyze.published_curve("gb200-meta")


def gain_at(limit_w, known=GB200, **site):
    table = analyze.provisioning(known, **SITE | site).set_index("limit_w")
    return table.loc[limit_w, "gain_ratio"]


@pytest.mark.oracle
def test_the_published_gain_implies_the_overhead_and_the_overhead_the_gain():
    implied = analyze.overhead_w_implied(
        1.09, speed_share=0.95, limit_w=1_000, reference_limit_w=1_200
    )
    assert implied == pytest.approx(357.14, abs=0.01)
    assert (1_200 + implied) / (1_000 + implied) * 0.95 == pytest.approx(1.09)
    assert gain_at(1_000, overhead_w=implied) == pytest.approx(0.09, abs=1e-4)


@pytest.mark.oracle
def test_the_published_site_has_1807_w_for_each_gpu():
    facts = analyze.provisioning_facts().set_index("quantity")
    site, count = facts.loc[["site budget", "GPUs of the site"], "value"]
    assert site / count == pytest.approx(facts.loc["all-in power per GPU", "value"], abs=0.5)
    assert facts.loc["power of all GPUs at the limit chosen", "value"] == 83_000 * 960
    assert facts.loc["power of all GPUs at the rated limit", "value"] == 83_000 * 1_200
    assert set(facts["trust"]) == {"printed", "reported", "calculated"}
    assert facts["source"].str.len().min() > 10


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("method", "gain"),
    [("linear", 0.1113), ("power", 0.1103), ("quadratic", 0.0971), ("cubic", 0.0801)],
)
def test_960_w_gains_8_to_11_percent_by_extrapolation(method, gain):
    more = analyze.extended_curve(GB200, 960, method=method)
    assert gain_at(960, more) == pytest.approx(gain, abs=1e-4)
    assert bool(more.set_index("limit_w").loc[960, "is_extrapolated"])


@pytest.mark.oracle
def test_the_published_gain_at_960_w_is_known_to_its_rounding_only():
    gains = PUBLISHED_GAINS.check(analyze.published_gains("GB200")).set_index("limit_w")
    row = gains.loc[960]
    assert row["gain_ratio"] == pytest.approx(1.9 / 1.7 - 1)
    assert row["low_gain_ratio"] == pytest.approx(1.85 / 1.75 - 1)
    assert row["high_gain_ratio"] == pytest.approx(1.95 / 1.65 - 1)
    assert row["trust"] == "calculated"
    assert gains.loc[1_000, "gain_ratio"] == pytest.approx(0.09)


@pytest.mark.oracle
def test_the_assumed_pue_feeds_the_published_number_of_gpus():
    fact = analyze.provisioning_facts().set_index("quantity")["value"]
    more = analyze.extended_curve(GB200, 960)
    table = analyze.provisioning(
        more, budget_w=fact["site budget"], pue_ratio=fact["PUE assumed"],
        fixed_w=fact["network share of the site"] * fact["site budget"],
        overhead_w=fact["non-GPU power per GPU that +9 % implies"],
    ).set_index("limit_w")  # fmt: skip
    assert table.loc[960, "gpu_count"] == pytest.approx(83_000, rel=0.002)


def test_numbers_of_gpus_are_whole_and_the_formula_is_followed():
    table = analyze.provisioning(
        curve((100, 0.8), (200, 1)), budget_w=10_000, pue_ratio=1.25, fixed_w=500, overhead_w=50
    )
    # (10,000 / 1.25 - 500) / 150 and / 250
    assert table["gpu_count"].tolist() == [50, 30]
    assert table["throughput_ratio"].tolist() == [40, 30]
    assert table["gain_ratio"].tolist() == pytest.approx([1 / 3, 0])
    assert table["site_w"].tolist() == [10_000, 10_000]
    assert table["energy_ratio"].tolist() == pytest.approx([0.75, 1])
    assert table["is_best"].tolist() == [True, False]


sites = st.fixed_dictionaries(
    {
        "budget_w": st.floats(1e5, 1e9),
        "pue_ratio": st.floats(1, 2),
        "fixed_w": st.floats(0, 3e4),
        "overhead_w": st.floats(0, 2_000),
    }
)


@pytest.mark.slow
@given(sites, st.floats(0.5, 1))
def test_the_budget_is_kept_and_one_gpu_more_would_break_it(site, speed):
    table = PROVISIONING.check(analyze.provisioning(curve((700, speed), (1_000, 1)), **site))
    assert (table["site_w"] <= site["budget_w"] * (1 + 1e-6)).all()
    more = table["site_w"] + site["pue_ratio"] * (table["limit_w"] + site["overhead_w"])
    assert (more > site["budget_w"] * (1 - 1e-6)).all()


@pytest.mark.slow
@given(sites)
def test_a_lower_limit_never_feeds_fewer_gpus(site):
    table = analyze.provisioning(curve((500, 0.7), (700, 0.9), (1_000, 1)), **site)
    assert table["gpu_count"].is_monotonic_decreasing


@given(st.floats(0.5, 0.999), st.floats(0, 5_000), st.floats(0.5, 0.95))
def test_the_implied_overhead_inverts_the_gain(speed, overhead, ratio):
    gain = (1_000 + overhead) / (1_000 * ratio + overhead) * speed
    assume(gain - speed > 1e-6)
    implied = analyze.overhead_w_implied(
        gain, speed_share=speed, limit_w=1_000 * ratio, reference_limit_w=1_000
    )
    assert implied == pytest.approx(overhead, rel=1e-5, abs=1e-5)


def test_the_reference_can_be_another_limit():
    known = curve((100, 0.8), (200, 1))
    site = {"budget_w": 1e6, "pue_ratio": 1, "fixed_w": 0, "overhead_w": 0}
    table = analyze.provisioning(known, **site, reference_limit_w=100)
    assert table["gain_ratio"].tolist() == pytest.approx([0, -0.375])
    with pytest.raises(WorkbenchError, match=r"no limit of 150 W .*it has 100, 200"):
        analyze.provisioning(known, **site, reference_limit_w=150)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fixed_w": 200e6}, r"leaves 150,000,000 W for all IT: nothing is left for GPUs"),
        ({"budget_w": 150}, r"not one can be fed; budget_w is in W, not MW"),
        ({"budget_w": -1}, "budget_w must be above 0"),
        ({"budget_w": float("nan")}, "budget_w must be above 0"),
        ({"pue_ratio": 0.9}, "pue_ratio must be 1 or more"),
        ({"fixed_w": -1}, "fixed_w must be 0 or more"),
        ({"overhead_w": -1}, "overhead_w must be 0 or more"),
        ({"budget_w": 1_400}, "feeds not one GPU at the reference limit of 1200 W"),
    ],
)
def test_impossible_sites_are_refused_in_words(change, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.provisioning(GB200, **SITE | change)


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(WorkbenchError, match="would feed any number of GPUs"):
        analyze.provisioning(curve((0, 0.1), (100, 1)), **SITE | {"overhead_w": 0})


def test_a_limit_that_feeds_no_gpu_does_no_work_at_no_energy():
    known = curve((100, 0.5), (1_000, 1))
    site = {"budget_w": 500, "pue_ratio": 1, "fixed_w": 0, "overhead_w": 0}
    table = analyze.provisioning(known, **site, reference_limit_w=100)
    assert table["gpu_count"].tolist() == [5, 0]
    assert np.isnan(table["energy_ratio"].iloc[1])


@pytest.mark.parametrize(
    ("gain", "speed", "message"),
    [
        (1.3, 0.95, r"a gain of 1.3 is not possible.*at most 1.14 \(no overhead\)"),
        (0.9, 0.95, r"above 0.95 \(no GPU added\)"),
        (1.09, 0, "speed_share must be above 0"),
    ],
)
def test_a_gain_that_no_overhead_gives_is_refused(gain, speed, message):
    with pytest.raises(WorkbenchError, match=message):
        analyze.overhead_w_implied(gain, speed_share=speed, limit_w=1_000, reference_limit_w=1_200)


def test_limits_in_the_wrong_order_are_refused():
    with pytest.raises(WorkbenchError, match="limit_w=1200 must be below reference_limit_w=1000"):
        analyze.overhead_w_implied(1.09, speed_share=0.9, limit_w=1_200, reference_limit_w=1_000)


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(WorkbenchError, match=r"'gb300'; there are \['gb200-meta'\]"):
        analyze.published_curve("gb300")
    with pytest.raises(WorkbenchError, match=r"for 'H100'; there are \['GB200'\]"):
        analyze.published_gains("H100")


def test_published_speeds_that_were_only_reported_say_so():
    assert set(GB200["doubt"]) == {"reported, not printed in the source itself"}
    assert GB200["source"].str.contains("arXiv:2605.24461").all()
