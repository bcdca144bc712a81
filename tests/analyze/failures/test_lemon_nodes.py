"""Lemons: a published simulation first, then laws, then what is refused."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench import analyze
from workbench.errors import WorkbenchError
from workbench.tables import FAILURES, LEMON_NODES, LEMON_RECALL

NODES, PER_1000 = 12_288, 1000 * 80 / 12_288  # one failure every 18 minutes


def log_of(counts):
    """Make a log without times in which node 0 failed counts[0] times, and so on."""
    node = np.repeat([f"node{at}" for at in range(len(counts))], counts)
    rows = pd.DataFrame(dict.fromkeys(FAILURES.columns), index=range(len(node)))
    rows["node"] = node
    texts = ("kind", "cause", "other_codes", "text", "source", "assumed")
    rows = rows.assign(clock="none", category="gpu", severity="fatal", line=1, line_count=1)
    rows = rows.assign(devices="", ranks="", rank_count=0)
    return FAILURES.cast(rows.assign(**dict.fromkeys(texts, "")))


def names(count):
    return [f"node{at}" for at in range(count)]


@pytest.mark.oracle
@pytest.mark.parametrize(("days", "recall"), [(14, 0.03), (30, 0.23), (54, 0.43), (90, 0.86)])
def test_few_lemons_are_found_in_a_short_log(days, recall):
    row = LEMON_RECALL.check(analyze.lemon_recall(NODES, PER_1000, days=[days])).iloc[0]
    assert row["recall_share"] == pytest.approx(recall, abs=0.06)
    assert 0.97 < row["precision_share"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("days", [30, 90])
def test_the_expected_recall_is_that_of_drawn_logs(days):
    draws = np.random.default_rng(11)
    lemons = round(0.012 * NODES)
    mean = NODES * PER_1000 / 1000 * days
    found = []
    for _ in range(5):
        bad = draws.poisson(0.15 * mean / lemons, lemons)
        good = draws.poisson(0.85 * mean / (NODES - lemons), NODES - lemons)
        table = analyze.lemon_nodes(log_of(np.r_[bad, good]), nodes=names(NODES), days=days)
        flagged = table.loc[table["is_lemon"], "node"].str.slice(4).astype(int)
        found.append((flagged < lemons).sum() / lemons)
    expected = analyze.lemon_recall(NODES, PER_1000, days=[days])["recall_share"].item()
    assert np.mean(found) == pytest.approx(expected, abs=0.05)
    assert table["recall_share"].iloc[0] == pytest.approx(expected, abs=0.05)


def test_one_bad_node_among_many_is_flagged_and_ranked_first():
    counts = [12] + [1] * 100 + [0] * 99
    table = LEMON_NODES.check(analyze.lemon_nodes(log_of(counts), nodes=names(200), days=90))
    assert table["node"].iloc[0] == "node0"
    assert table["is_lemon"].tolist() == [True] + [False] * 199
    assert table["dispersion_ratio"].iloc[0] == pytest.approx(np.var(counts, ddof=1) / 0.56)
    rate = table.set_index("node")["shrunk_per_1000_node_days"]
    assert 1000 * 0.56 / 90 < rate["node0"] < 1000 * 12 / 90, "drawn towards all the others"


def test_chance_alone_is_not_blamed_on_anybody():
    counts = np.random.default_rng(5).poisson(0.7, 3_000)
    table = analyze.lemon_nodes(log_of(counts), nodes=names(3_000), days=90)
    assert table["is_lemon"].sum() == 0
    assert table["dispersion_ratio"].iloc[0] == pytest.approx(1, abs=0.1)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40), st.floats(0.5, 400))
def test_expected_counts_add_up_and_p_values_are_poisson(counts, days):
    table = analyze.lemon_nodes(log_of(counts), nodes=names(len(counts)), days=days)
    assert table["expected_count"].sum() == pytest.approx(sum(counts))
    assert table["failure_count"].sum() == sum(counts)
    assert table["p_value_share"].to_numpy() == pytest.approx(
        stats.poisson.sf(table["failure_count"] - 1, table["expected_count"])
    )
    assert (table["adjusted_p_value_share"] >= table["p_value_share"] - 1e-12).all()
    if any(counts):
        order = table.sort_values("failure_count", ascending=False)["shrunk_per_1000_node_days"]
        assert (order.diff().dropna() <= 1e-9).all(), "with equal exposure the order is the same"


def test_a_node_watched_longer_may_fail_more_often():
    from workbench.tables import NODE_SPANS

    day = 86_400_000_000_000
    nodes = pd.DataFrame({"node": names(50), "first_ns": 0, "last_ns": 10 * day, "gpu_count": None})
    nodes = NODE_SPANS.cast(nodes.assign(clock="epoch", failure_count=0))
    failures = log_of([8] + [1] * 20 + [0] * 29)
    short = analyze.lemon_nodes(failures, nodes=nodes).set_index("node")
    nodes.loc[0, "last_ns"] = 200 * day
    long = analyze.lemon_nodes(failures, nodes=nodes).set_index("node")
    assert short["is_lemon"]["node0"]
    assert not long["is_lemon"]["node0"]


def test_without_failures_nobody_is_a_lemon_and_nothing_would_be_found():
    table = LEMON_NODES.check(analyze.lemon_nodes(log_of([0]), nodes=300, days=9))
    assert not table["is_lemon"].any()
    assert (table["recall_share"] == 0).all()
    assert table["dispersion_ratio"].isna().all()
    one = analyze.lemon_nodes(log_of([4]), nodes=["node0"], days=9)
    assert not one["is_lemon"].any()
    assert one["recall_share"].isna().all(), "1.2 % of one node is not a lemon"


def test_nodes_that_are_only_counted_are_counted():
    table = analyze.lemon_nodes(log_of([9, 1]), nodes=100, days=9)
    assert len(table) == 100
    assert table["expected_count"].sum() == pytest.approx(10)
    assert table["node"].is_unique


def test_failures_without_a_node_are_said():
    failures = log_of([2, 1])
    failures.loc[0, "node"] = None
    table = analyze.lemon_nodes(failures, nodes=["node0", "node1"], days=3)
    assert table["failure_count"].sum() == 2
    assert table.attrs["left_out"] == {"no node": 1}


def test_few_failures_flag_nobody_however_long_the_list():
    table = analyze.lemon_recall(100, 0.001, days=[1, 2])
    assert table["recall_share"].tolist() == [0, 0] or (table["recall_share"] < 1e-3).all()
    assert LEMON_RECALL.check(table) is table


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyze.lemon_recall(40, 1), "of 40 nodes that is less than one"),
        (lambda: analyze.lemon_recall(0, 1), "node_count must be 1 or more"),
        (
            lambda: analyze.lemon_recall(1, 0),
            "per_1000_node_days must be above 0 and finite, not 0",
        ),
        (lambda: analyze.lemon_recall(100, 1, days=[0]), "days must be above 0 and finite, not 0"),
        (lambda: analyze.lemon_recall(1, 1, false_discovery_share=5), "false_discovery_share must"),
        (lambda: analyze.Lemons(node_share=0), "node_share must be between 0 and 1"),
        (lambda: analyze.Lemons(0.5, 0.2), "they would be the better ones"),
        (
            lambda: analyze.lemon_nodes(log_of([1]), nodes=1),
            "observation time of the nodes is unknown",
        ),
        (lambda: analyze.lemon_nodes(log_of([1]), nodes=["b"], days=1), "not among the 1 nodes"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(WorkbenchError, match=message):
        call()


def test_twelve_thousand_nodes_answer_at_once():
    counts = np.random.default_rng(3).poisson(0.3, NODES)
    failures = log_of(counts)
    begin = time.process_time()
    analyze.lemon_nodes(failures, nodes=NODES, days=54)
    assert time.process_time() - begin < 0.5
