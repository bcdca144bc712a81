"""Figures of communication at scale: their titles say what the tables do."""

import numpy as np
import pandas as pd
import pytest

from workbench import analyze, plot
from workbench.tables import EXPERT_LOADS, PLACE_BANDWIDTH, SLOW_LINKS

JOB = analyze.FaultTolerance(recovery_min=5, stall_min=0, replicas=1)


def title(figure):
    return str(figure.layout.title.text).replace("<br>", " ")


def subtitle(figure):
    return str(figure.layout.title.subtitle.text).replace("<br>", " ")


def test_the_fastest_algorithm_is_ringed_and_named():
    table = analyze.collective_scaling(
        [8, 1_024, 98_304], [64_000_000], algorithms=["ring", "tree"]
    )
    figure = plot.collective_scaling(table)
    assert title(figure) == (
        "all-reduce of 64 MB, 98,304 ranks: 1.66 ms by tree, 69 % of it transfer"
    )
    assert subtitle(figure) == "model, not measured"
    assert [trace.name for trace in figure.data] == ["ring", "tree", "fastest"]
    assert figure.data[-1].x.tolist() == [8, 1_024, 98_304]
    assert figure.data[0].y[-1] > 1_000 * figure.data[1].y[-1]


def test_one_number_of_ranks_is_drawn_by_size():
    table = analyze.collective_scaling([256], [1_000, 10**9], collective="all-to-all")
    figure = plot.collective_scaling(table)
    assert figure.layout.xaxis.title.text == "size [bytes]"
    assert title(figure).startswith("all-to-all of 1 GB, 256 ranks: ")


def test_start_up_costs_are_stated_for_the_slowest_and_the_fastest_library():
    startup = analyze.startup_time([8_192, 98_304])
    table = analyze.startup_goodput(
        startup, JOB, failures_per_1000_node_days=6.5, convention="interval"
    )
    figure = plot.startup_goodput(table)
    assert title(figure) == (
        "Starting NCCL on 98,304 GPUs (4.42 min) costs 24 % of the GPU time, NCCLX 2.2 %"
    )
    assert "filled: published" in subtitle(figure)


def test_beyond_the_published_sizes_the_title_is_in_doubt_and_gaps_are_counted():
    startup = analyze.startup_time([200_000])
    table = analyze.startup_goodput(
        startup, JOB, failures_per_1000_node_days=6.5, convention="interval"
    )
    figure = plot.startup_goodput(table)
    assert title(figure).startswith("In doubt: Starting NCCLX")
    assert "2 cases without an answer" in subtitle(figure)


def test_a_slow_link_is_named_and_what_it_slows_is_not_cleared(build):
    rows = [
        {"node": 0, "rail": 2, "group_count": 2, "slow_count": 2, "best_ratio": 0.5, "suspect": "link"},
        {"node": 1, "rail": 2, "group_count": 1, "slow_count": 1, "best_ratio": 0.5, "suspect": ""},
        {"node": 3, "rail": None, "group_count": 2, "slow_count": 1, "best_ratio": 1.0, "suspect": ""},
    ]  # fmt: skip
    figure = plot.slow_links(build(SLOW_LINKS, rows))
    assert title(figure) == "Slow: node 0, rail 2 (link); at most 50 % of the bandwidth of peers"
    assert [trace.name for trace in figure.data] == [
        "suspect", "slow through a suspect", "cleared by a fast group",
    ]  # fmt: skip
    assert list(figure.layout.yaxis.ticktext) == [
        "node 0, rail 2",
        "node 1, rail 2",
        "node 3, inside",
    ]
    free = plot.slow_links(build(SLOW_LINKS, rows[2:]))
    assert title(free).startswith("No link is suspected")


def test_padding_tells_traffic_and_the_busiest_rank_apart():
    loads = pd.DataFrame({"layer": 0, "expert": range(4), "load_count": [5.0, 1, 1, 1]})
    figure = plot.all_to_all_padding(analyze.all_to_all_padding(EXPERT_LOADS.cast(loads)))
    assert title(figure).startswith(
        "Exact sizes save 60 % to 60 % of the padded traffic, at most 0 %"
    )
    assert [trace.y.tolist() for trace in figure.data] == [[60.0], [0.0]]


def test_the_curve_of_speed_ups_leaves_out_what_no_speed_up_reaches():
    table = analyze.communication_speedup(np.linspace(0.1, 0.5, 5))
    figure = plot.communication_speedup(table)
    assert figure.data[0].x == pytest.approx([20, 30, 40, 50])
    assert title(figure) == (
        "A step 12 % shorter takes communication 2.50 times as fast where 20 % is exposed, "
        "1.32 times as fast where 50 % is exposed"
    )
    none = plot.communication_speedup(analyze.communication_speedup([0.05]))
    assert title(none) == "No speed-up is enough"


def pairs(*ratios):
    ends = [("a", "b"), ("a", "c"), ("b", "c")]
    return [
        {
            "node": node, "other_node": other, "scope": "between nodes", "group_count": 1,
            "least_node_count": 2, "best_gb_per_s": 40 * ratio, "best_ratio": ratio, "doubt": "",
        }
        for (node, other), ratio in zip(ends, ratios, strict=True)
    ]  # fmt: skip


def test_a_node_is_named_only_if_its_best_pair_is_slow(build):
    slow = plot.place_bandwidth(build(PLACE_BANDWIDTH, pairs(0.5, 1.0, 0.5)))
    assert title(slow) == "Collectives with b reach at most 20 GB/s, 50 % of the best"
    assert slow.data[0].z[0][1] == 50 == slow.data[0].z[1][0]
    # A slow pair of nodes that are fast with a third is not a slow node.
    fine = plot.place_bandwidth(build(PLACE_BANDWIDTH, pairs(0.5, 1.0, 1.0)))
    assert title(fine).startswith("No node is slow with all others: pairs of nodes reach at least")


def test_a_link_has_the_name_of_its_node_where_places_are_given(build):
    row = {"node": 0, "node_name": "gpu-7", "rail": 2, "group_count": 2, "slow_count": 2,
           "best_ratio": 0.5, "suspect": "link"}  # fmt: skip
    assert title(plot.slow_links(build(SLOW_LINKS, [row]))).startswith("Slow: gpu-7, rail 2 (link)")
