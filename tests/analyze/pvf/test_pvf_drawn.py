"""A factor is that of the bits its faults were drawn from, and is named so."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims._interval_coverage import interval_coverage, truth_sample
from workbench import analyze, datasets, load, plot
from workbench.errors import InjectionError
from workbench.tables import ExhaustiveInjections, Injections

BITS = st.one_of(
    st.none(), st.lists(st.integers(0, 31), min_size=1, max_size=6, unique=True),
    st.tuples(st.integers(0, 31), st.integers(0, 31)).map(lambda ends: range(min(ends), max(ends) + 1)),
)  # fmt: skip


@pytest.fixture(scope="module")
def shipped() -> ExhaustiveInjections:
    """Give every fault of the two MLPs of the shipped DLRM."""
    whole = load.exhaustive_injections(datasets.path("pvf-truth") / "dlrm.parquet")
    people = whole.parameters[whole.parameters["component"].isin(["top", "bottom"])]
    sites = whole.sites[whole.sites["param"].isin(people["param"])]
    sites = sites.assign(param=sites["param"].cat.remove_unused_categories())
    return dataclasses.replace(
        whole, parameters=people.reset_index(drop=True), sites=sites.reset_index(drop=True)
    )


def restricted(truth, params, bits):
    """Keep the faults of some tensors and bits; the model stays the same."""
    keep = truth.sites["param"].isin(list(params)).to_numpy(copy=True)
    if bits is not None:
        keep &= truth.sites["bit"].isin(list(bits)).to_numpy()
    return dataclasses.replace(truth, sites=truth.sites[keep].reset_index(drop=True))


def exact(truth):
    """Give the factor and the bits of every component, straight from the sites."""
    home = truth.parameters.set_index("param")["component"].astype(object)
    wrong = (truth.sites["sdc_count"] + truth.sites["due_count"]).astype(float)
    groups = wrong.groupby(truth.sites["param"].astype(object).map(home))
    return pd.DataFrame({"pvf": groups.mean() / 1000, "bits": groups.size()})


def title(figure):
    return figure.layout.title.text


@pytest.mark.long
@given(st.data())
def test_a_factor_is_that_of_what_its_label_says(shipped, data):
    tensors = shipped.parameters["param"].tolist()
    params = data.draw(st.one_of(st.just(tensors), st.sets(st.sampled_from(tensors), min_size=1)))
    drawn = restricted(shipped, params, data.draw(BITS))
    size = data.draw(st.integers(1, 400).map(lambda n: min(n, len(drawn.sites))))
    sample = truth_sample(drawn, size, seed=data.draw(st.integers(0, 99)))
    table = analyze.pvf(sample, average="bits", confidence_level=1 - 1e-9)
    truth, whole = exact(drawn), exact(shipped)
    # A few sites of odd tensors can fit a layer of the same size, until each tensor is hit.
    is_seen = set(params) in ({*tensors}, {*sample.faults["param"].astype(str)})
    for row in table.itertuples():
        if not is_seen and not row.is_sure:
            continue
        is_whole = truth["bits"][row.component] == whole["bits"][row.component]
        if row.group == row.component:
            assert is_whole
            assert row.bit_count == whole["bits"][row.component]
        elif not np.isnan(row.bit_count):
            assert row.bit_count == truth["bits"][row.component]
        assert (row.drawn_from == "") == (row.group == row.component)
        # Few sites with events are doubted: their interval need not hold.
        if row.is_sure or row.interval in ("exact", "rule of three"):
            assert row.low <= truth["pvf"][row.component] <= row.high


@pytest.mark.long
@settings(max_examples=15)
@given(st.integers(0, 31), st.integers(40, 400), st.integers(0, 99))
def test_faults_picked_out_of_a_sample_are_no_sample_of_the_whole(shipped, bit, size, seed):
    sample = truth_sample(shipped, 32 * size, seed=seed)
    faults = sample.faults[sample.faults["bit"] == bit].reset_index(drop=True)
    outcomes = sample.outcomes[sample.outcomes["exp_id"].isin(faults["exp_id"])]
    picked = dataclasses.replace(sample, faults=faults, outcomes=outcomes.reset_index(drop=True))
    assert set(analyze.pvf(sample, average="bits")["group"]) == {"bottom", "top"}
    assert not {"bottom", "top"} & set(analyze.pvf(picked, average="bits")["group"])
    # Outcomes alone may be picked, too.
    picked = dataclasses.replace(sample, outcomes=outcomes.reset_index(drop=True))
    assert not {"bottom", "top"} & set(analyze.pvf(picked, average="bits")["group"])


def test_the_first_experiments_of_a_design_are_a_sample_of_the_whole(shipped):
    sample = truth_sample(shipped, 1000, seed=1)
    first = dataclasses.replace(
        sample, faults=sample.faults.iloc[:400], outcomes=sample.outcomes.iloc[:400]
    )
    assert analyze.pvf(first, average="bits")["group"].tolist() == ["bottom", "top"]


def some(shipped, params=None, bits=None, size=400, **options):
    drawn = restricted(shipped, params or shipped.parameters["param"].tolist(), bits)
    return truth_sample(drawn, size, seed=3, **options)


TOP_0 = ["top.0.weight", "top.0.bias"]


@pytest.mark.parametrize(
    ("params", "bits", "by", "expected"),
    [
        (None, [30], "component", ["bit 30 of bottom", "bit 30 of top"]),
        (TOP_0, None, "component", ["top.0 of top"]),
        (TOP_0, [3, 29, 30], "component", ["bits 3, 29 to 30 of top.0 of top"]),
        (TOP_0, None, "layer", ["top.0"]),
        (TOP_0, None, (), ["top.0"]),
        (None, [30], (), ["bit 30 of the model"]),
        (None, [30], "bit_role", ["bit 30 of exp"]),
        (None, [30], "tool", ["workbench, bit 30"]),
        (None, [30], "stratum", ["stratum not known, bit 30"]),
        (TOP_0, [30], "bit", ["bit 30 of top.0"]),
        (None, [30], ("component", "bit"), ["bottom, bit 30", "top, bit 30"]),
        (None, [30], ("component", "direction"), ["bit 30 of bottom, direction not known",
                                                  "bit 30 of top, direction not known"]),
    ],
)  # fmt: skip
def test_a_part_is_named_by_what_was_drawn_from(shipped, params, bits, by, expected):
    table = analyze.pvf(some(shipped, params, bits), average="bits", by=by)
    assert table["group"].tolist() == expected


def test_strata_that_were_left_out_are_not_part_of_the_name(shipped):
    sample = some(shipped, bits=range(23, 31), by=("component", "bit"))
    table = analyze.pvf(sample, average="bits")
    assert table["group"].tolist() == ["bits 23 to 30 of bottom", "bits 23 to 30 of top"]
    assert table["bit_count"].tolist() == (exact(shipped)["bits"] / 4).tolist()


def test_a_truth_of_some_bits_is_exact_for_these(shipped):
    table = analyze.pvf(restricted(shipped, TOP_0, [30]), average="bits")
    assert table["group"].tolist() == ["bit 30 of top.0 of top"]
    assert table["interval"].tolist() == ["exact"]
    found = interval_coverage(restricted(shipped, TOP_0, [30]), site_count=20, repeat_count=2)
    assert set(found["group"]) == {"bit 30 of top.0 of top"}


@pytest.mark.long
def test_every_view_names_the_part(shipped):
    sample = some(shipped, bits=[30])
    first = "bit 30 of bottom"
    assert analyze.outcome_shares(sample)["group"].iloc[0] == first
    assert analyze.injection_sample_sizes(sample)["group"].iloc[0] == first
    running = analyze.pvf_running(sample, component="top")
    assert set(running["group"]) == {"bit 30 of top"}
    assert "bit 30 of top" in title(plot.pvf_running(running))
    assert "bit 30 of top" in title(plot.pvf(analyze.pvf(sample, average="bits")))
    layers = analyze.pvf_by_bit(some(shipped, TOP_0, size=5000), rows="component")
    assert "Bit 30 of top.0 of top is worst" in title(plot.pvf_by_bit(layers))
    same = dataclasses.replace(
        sample, campaign=sample.campaign.assign(campaign_id="m", mitigation="clamp"),
        faults=sample.faults.assign(campaign_id="m"),
        outcomes=sample.outcomes.assign(campaign_id="m"),
        parameters=sample.parameters.assign(campaign_id="m"),
    )  # fmt: skip
    assert analyze.pvf_mitigation(sample, [same])["group"].iloc[0] == first
    whole = some(shipped, size=100_000)
    with pytest.raises(InjectionError, match=r"drawn from bit 30 of .*, the one without from"):
        analyze.pvf_mitigation(whole, [same])


def test_views_of_the_whole_refuse_a_part(shipped):
    sample = some(shipped, bits=[30])
    with pytest.raises(InjectionError, match="hold 27,601 bits, the model 883,232: inject"):
        analyze.pvf_exposure(sample)
    for unit in ("elements", "bits", "tensors"):
        with pytest.raises(InjectionError, match="drawn from bit 30 of bottom: what protection"):
            analyze.pvf_protection(sample, unit=unit)
    table = analyze.pvf_protection(some(shipped, TOP_0), unit="bits")
    assert set(table["group"]) == {"top.0 of top"} | {"top.0"}


def test_parts_that_overlap_are_not_averaged(shipped):
    whole, part = some(shipped), some(shipped, bits=[30], size=300)
    with pytest.raises(InjectionError, match=r"'bottom' mixes faults drawn from parts .* overlap"):
        analyze.pvf([whole, part], average="bits")
    other = some(shipped, bits=[b for b in range(32) if b != 30], size=310)
    both = analyze.pvf([other, part], average="bits")
    assert both["group"].tolist() == ["bottom", "top"]


def test_without_weights_the_bits_that_were_hit_tell(make_injections):
    rows = [
        {"component": "top", "param": "p", "elem": n, "bit": 30, "dtype": "fp32", "sdc_count": 9}
        for n in range(20)
    ]
    table = analyze.pvf(make_injections(*rows), average="bits")
    assert table["group"].tolist() == ["bit 30 of top"]
    every = [row | {"bit": n % 32} for n, row in enumerate(rows)]
    assert analyze.pvf(make_injections(*every), average="bits")["group"].tolist() == ["top"]


def test_strata_of_elements_add_up_to_the_whole(make_injections):
    shape = {"component": "top", "layer": "top.0", "param": "p", "dtype": "fp32"}
    people = [shape | {"element_count": 100, "bit_count": 3200}]
    rows = [
        shape | {"elem": n, "bit": n % 32, "sdc_count": 1, "stratum": "looked up" if n < 40 else "rest",
                 "inclusion_weight": 1000 / 40 if n < 40 else 2200 / 60}
        for n in range(100)
    ]  # fmt: skip
    table = analyze.pvf(
        make_injections(*rows, parameters=people, design="stratified"), average="bits"
    )
    assert table[["group", "bit_count"]].to_numpy().tolist() == [["top", 3200.0]]


def test_draws_that_tell_components_only_are_matched_by_their_weights(make_injections):
    shape = {"layer": "x", "dtype": "fp32", "element_count": 100, "bit_count": 3200}
    people = [shape | {"component": name, "param": f"{name}.0"} for name in ("top", "bottom")]
    people[1] |= {"element_count": 300, "bit_count": 9600}

    def label(bits):
        rows = [{"component": "top", "inclusion_weight": bits / 20, "sdc_count": 1}] * 20
        table = analyze.pvf(make_injections(*rows, parameters=people), average="bits")
        return table["group"].tolist()

    assert label(3200) == ["top"]
    assert label(100) == ["part of top"]


def test_bundles_stay_as_they_are(shipped):
    sample = some(shipped, bits=[30])
    before = {name: table.copy() for name, table in vars(sample).items()}
    analyze.pvf(sample, average="bits")
    assert isinstance(sample, Injections)
    for name, table in before.items():
        pd.testing.assert_frame_equal(getattr(sample, name), table)
