"""Figures about failures: what their titles and notes say of real and of made-up tables."""

import pytest

from workbench import analyze, datasets, load, plot
from workbench.tables import FAILURES, NODE_SPANS

DAY = 86_400_000_000_000


def title(figure):
    return figure.layout.title.text.replace("<br>", " ")


def note(figure):
    return figure.layout.title.subtitle.text.replace("<br>", " ")


@pytest.fixture
def log(build):
    """Make failures, on one node unless they say otherwise, and the nodes watched for 30 days."""

    def make(*rows, nodes=200):
        usual = {"clock": "epoch", "category": "gpu", "severity": "fatal", "node": "n0"}
        failures = build(FAILURES, [usual | row for row in rows])
        spans = [
            {"node": f"n{at}", "first_ns": 0, "last_ns": 30 * DAY, "clock": "epoch"}
            for at in range(nodes)
        ]
        return failures, build(NODE_SPANS, spans)

    return make


@pytest.mark.oracle
def test_the_title_holds_the_printed_share_of_llama_3_against_the_counts():
    table = load.cause_counts(datasets.path("published") / "causes_llama3.csv")
    figure = plot.cause_shares(analyze.cause_shares(table))
    assert title(figure) == (
        "Faulty GPU is behind 35 % of the 419 failures, printed as 30 %; "
        "the first 5 of 18 causes are behind 81 %"
    )
    assert "1 of 18 printed shares does not follow from the counts" in note(figure)
    by_category = plot.cause_shares(analyze.cause_shares(table, by="category"))
    assert "gpu is behind 64 % of the 419 failures, printed as 59 %" in title(by_category)


def test_what_was_not_counted_is_said_under_every_title(log):
    failures, nodes = log({"cause": "a", "start_ns": DAY}, {"cause": "b", "severity": "info"})
    for figure in (
        plot.cause_shares(analyze.cause_shares(failures)),
        plot.failure_rates(analyze.failure_rates(failures, nodes=nodes)),
        plot.lemon_nodes(analyze.lemon_nodes(failures, nodes=nodes)),
    ):
        assert "not counted: 1 info" in note(figure)


def test_nothing_but_info_is_explained(log):
    failures, _ = log({"cause": "b", "severity": "info", "start_ns": DAY})
    figure = plot.cause_shares(analyze.cause_shares(failures))
    assert "not counted: 1 info" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_one_node_tells_nothing_of_lemons(log):
    failures, nodes = log({"start_ns": DAY}, {"start_ns": 2 * DAY}, nodes=1)
    figure = plot.lemon_nodes(analyze.lemon_nodes(failures, nodes=nodes))
    assert title(figure).endswith("too few nodes to judge lemons")


def test_doubts_about_the_exposure_are_said_in_bold(log):
    failures, nodes = log({"start_ns": DAY}, nodes=1)
    nodes["failure_count"] = 1
    for figure in (
        plot.failure_rates(analyze.failure_rates(failures, nodes=nodes)),
        plot.lemon_nodes(analyze.lemon_nodes(failures, nodes=nodes)),
    ):
        assert "<b>every node listed has failed" in note(figure)


def test_rates_say_the_time_between_failures_or_the_highest_rate(log):
    rate = analyze.failure_rate(419, node_count=2048, days=54)
    said = "2,048 nodes fail every 3.09 h: 419 in 110,592 node-days, 3.79 failures per 1,000 "
    assert title(plot.failure_rates(rate)) == f"{said}node-days (3.43 to 4.17)"
    none = analyze.failure_rate(0, node_count=10, days=30)
    assert title(plot.failure_rates(none)) == "No failure in 300 node-days: at most 12.3 per 1,000"
    failures, nodes = log({"category": "gpu"}, {"category": "gpu"}, {"category": "host"})
    rates = analyze.failure_rates(failures, nodes=nodes, by="category")
    assert title(plot.failure_rates(rates)).startswith(
        "gpu fails most often, perhaps by chance: 2 in"
    )


def test_lemons_never_come_without_what_so_short_a_log_finds(log):
    hour = 3_600_000_000_000
    rows = [{"start_ns": at * hour} for at in range(9)]
    rows += [{"node": f"n{at}", "start_ns": at * hour} for at in range(1, 90)]
    failures, nodes = log(*rows)
    figure = plot.lemon_nodes(analyze.lemon_nodes(failures, nodes=nodes))
    assert title(figure).startswith("1 of 200 nodes fails too often to be chance; 30 days find")
    assert "1.2 % of the nodes have 15 % of the failures" in note(figure)
    assert "175 nodes not drawn, none of them flagged" in note(figure)
    quiet = plot.lemon_nodes(analyze.lemon_nodes(log({})[0], nodes=nodes))
    assert title(quiet) == (
        "None of 200 nodes fails too often to be chance; 30 days find < 0.1 % of lemons"
    )


@pytest.mark.oracle
def test_recall_by_length_of_observation():
    figure = plot.lemon_recall(analyze.lemon_recall(12_288, 6.51, days=[14, 90]))
    assert title(figure) == "14 days find 2.9 % of the lemons, 90 days find 85 %"
