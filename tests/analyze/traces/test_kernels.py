"""Kernels by name and kind: sums against pandas, then what no rule knows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze
from workbench._shared.kernel_kinds import KINDS
from workbench.errors import LoadError
from workbench.tables import EVENTS, KERNELS

kernel = st.fixed_dictionaries(
    {
        "start_ns": st.integers(0, 99),
        "dur_ns": st.integers(0, 9),
        "name": st.sampled_from(["gemm", "mystery", "Memcpy DtoH"]),
        "kind": st.sampled_from(KINDS),
        "rank": st.integers(0, 1),
        "step": st.sampled_from([None, 3, 4]),
    }
)


@given(st.lists(kernel, max_size=20), st.booleans())
def test_statistics_are_those_of_pandas(make_events, kernels, by_step):
    events = make_events(*kernels)
    table = KERNELS.check(analyze.kernels(events, by_step=by_step))
    keys = ["rank", *(["step"] if by_step else []), "name", "kind"]
    events["step"] = events["step"].fillna(-1)
    table["step"] = table["step"].fillna(-1)
    by_key = events.astype({"name": str, "kind": str}).groupby(keys)["dur_ns"]
    expected = by_key.agg(["size", "sum", "mean", "min", "max", "std"]).sort_index()
    found = table.astype({"name": str, "kind": str}).set_index(keys).sort_index()
    assert found.index.tolist() == expected.index.tolist()
    columns = ["kernel_count", "total_ns", "mean_ns", "min_ns", "max_ns", "std_ns"]
    for ours, theirs in zip(columns, expected.columns, strict=True):
        left, right = (s.astype("float64").to_numpy() for s in (found[ours], expected[theirs]))
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@given(st.lists(kernel, min_size=1, max_size=20))
def test_shares_of_a_rank_add_up_to_one(make_events, kernels):
    events = make_events(*kernels)
    for table in (analyze.kernels(events), analyze.kernel_kinds(events)):
        for _, shares in table.groupby("rank")["time_share"]:
            assert shares.isna().all() or shares.sum() == pytest.approx(1)


def test_the_longest_total_comes_first_within_each_rank(make_events):
    events = make_events(
        {"start_ns": 0, "dur_ns": 5, "name": "short", "kind": "compute"},
        {"start_ns": 5, "dur_ns": 9, "name": "long", "kind": "compute"},
        {"start_ns": 0, "dur_ns": 99, "name": "short", "kind": "compute", "rank": 1},
    )
    assert analyze.kernels(events)["name"].tolist() == ["long", "short", "short"]


def test_a_single_run_has_no_deviation(make_events):
    events = make_events({"start_ns": 0, "dur_ns": 5, "kind": "compute"})
    assert analyze.kernels(events)["std_ns"].isna().all()


def test_says_which_rule_decided_and_what_none_knows(make_events):
    events = make_events(
        {"start_ns": 0, "dur_ns": 10, "name": "ncclDevKernel_AllReduce", "kind": "communication"},
        {"start_ns": 10, "dur_ns": 30, "name": "mystery", "kind": "compute"},
        {"start_ns": 40, "dur_ns": 10, "name": "mystery", "kind": "compute"},
        {"start_ns": 50, "dur_ns": 50, "name": "Memset (Device)", "category": "gpu_memset"},
        {"start_ns": 99, "dur_ns": 100, "name": "gemm", "kind": "other"},
    )
    table = analyze.kernel_kinds(events).set_index("rule")
    assert table["kind"].to_dict() == {
        "loader": "other",
        "category": "memory",
        "default": "compute",
        "nccl": "communication",
    }
    assert table["is_unclassified"].to_dict() == {
        "loader": False,
        "category": False,
        "default": True,
        "nccl": False,
    }
    assert table.loc["default", "kernel_count"] == 2
    assert table.loc["default", "time_share"] == pytest.approx(0.2)
    unknown = analyze.unclassified_kernels(events)
    assert unknown["name"].tolist() == ["mystery"]
    assert unknown["total_ns"].tolist() == [40]
    assert unknown["time_share"].tolist() == [0.2]


def test_own_rules_tell_the_kinds_anew(make_events):
    rules = pd.DataFrame({"kind": ["communication"], "rule": ["mine"], "pattern": ["^mys"]})
    events = make_events({"start_ns": 0, "dur_ns": 10, "name": "mystery", "kind": "compute"})
    table = analyze.kernel_kinds(events, rules=rules)
    assert (table["kind"].tolist(), table["rule"].tolist()) == (["communication"], ["mine"])
    assert analyze.unclassified_kernels(events, rules=rules).empty
    with pytest.raises(LoadError, match="kind 'magic' is not one of"):
        analyze.kernel_kinds(events, rules=rules.assign(kind="magic"))


def test_the_longest_unclassified_names_come_first_and_few(make_events):
    rows = [
        {"start_ns": n, "dur_ns": n, "name": f"mystery {n}", "kind": "compute"} for n in range(20)
    ]
    table = analyze.unclassified_kernels(make_events(*rows), limit=3)
    assert table["name"].tolist() == ["mystery 19", "mystery 18", "mystery 17"]


def test_without_gpu_work_the_tables_are_empty(make_events):
    for events in (make_events({"start_ns": 0}), EVENTS.empty()):
        assert analyze.kernels(events).empty
        assert analyze.kernel_kinds(events).empty
        assert analyze.unclassified_kernels(events).empty


@pytest.mark.oracle
def test_the_amd_trace_is_understood(real_events):
    file = "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    table = analyze.kernel_kinds(real_events("kineto-hta", file))
    assert table["kernel_count"].sum() == 16
    assert table.set_index("rule").loc["category", "kernel_count"] == 2
    assert not table["is_unclassified"].any()
