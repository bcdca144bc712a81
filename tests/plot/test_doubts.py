"""A doubt that changes what a title says stands in the title."""

import re

import pandas as pd
import pytest

from tests.plot.test_every_figure import ROWS, TABLE_OF
from workbench import plot, tables
from workbench.tables import FAILURE_RATES

SAYS_SO = re.compile(
    "[Ii]n doubt|not sure|unreliable|is unknown|cannot be (?:told|identified)|refused"
)
# Columns of doubts, and what they hold where there is none and where there is one.
DOUBTS = {"doubt": ("", "made up"), "is_sure": (True, False), "is_usable": (True, False)}
# What the title says does not rest on what is in doubt there.
FREE = {
    "collectives": "who was last is doubted, and the title is about bandwidth",
}
OF_A_TABLE = ("failure_rates", "lemon_nodes", "cause_shares")


def table_of(noun):
    return getattr(tables, TABLE_OF.get(noun, noun).upper())


def doubts_of(noun):
    return [column for column in DOUBTS if column in table_of(noun).columns]


DOUBTED = [noun for noun in ROWS if doubts_of(noun) and noun not in FREE]


@pytest.fixture
def rows(build):
    """Make the table of a noun with some columns set to one value."""

    def make(noun, **columns):
        made = [ROWS[noun](n % 4, n) for n in range(8)]
        keys = [name for name in ROWS[noun](0, 0) if name not in table_of(noun).columns]
        table = build(table_of(noun), [row | columns for row in made])
        return pd.concat([pd.DataFrame(made, columns=keys), table], axis=1)

    return make


def title(figure):
    assert figure.layout.meta["claim"].split()[0] in str(figure.layout.title.text)
    return str(figure.layout.title.text).replace("<br>", " ")


@pytest.mark.parametrize("noun", DOUBTED)
def test_a_table_in_doubt_says_so_in_its_title_and_a_sure_one_does_not(noun, rows):
    clock = {"clock": "one"} if noun == "clocks" else {}
    said = []
    for at in (0, 1):
        table = rows(noun, **{name: DOUBTS[name][at] for name in doubts_of(noun)}, **clock)
        if noun == "graph_ablation":
            table.loc[0, "without"] = ""  # the whole graph, with which others are compared
        said.append(title(getattr(plot, noun)(table)))
    sure, unsure = said
    assert not SAYS_SO.search(sure), sure
    assert SAYS_SO.search(unsure), unsure


@pytest.mark.parametrize("noun", OF_A_TABLE)
def test_a_doubt_of_the_whole_table_is_in_the_title(noun, rows):
    table = rows(noun)
    assert not SAYS_SO.search(title(getattr(plot, noun)(table)))
    table.attrs["doubts"] = ["every node listed has failed"]
    assert title(getattr(plot, noun)(table)).startswith("In doubt: ")


def test_a_bold_note_is_a_doubt_of_the_title(rows):
    meters = rows("energy", energy_j=None, covered_share=1.0)
    meters["energy_j"] = [100.0] * 7 + [None]
    figure = plot.energy(meters)
    assert "1 without any energy known" in figure.layout.title.subtitle.text
    assert title(figure).startswith("In doubt: ")


HOUR = {
    "group": "gpu", "failure_count": 3, "node_count": 2, "exposure_node_days": 1 / 12,
    "per_1000_node_days": 36_000.0, "low_per_1000_node_days": 7_424.0,
    "high_per_1000_node_days": 105_207.0, "mtbf_h": 1 / 3, "low_mtbf_h": 0.11,
    "high_mtbf_h": 1.6,
}  # fmt: skip


def test_a_rate_of_three_failures_in_an_hour_tells_how_little_it_rests_on(build):
    said = title(plot.failure_rates(build(FAILURE_RATES, [HOUR])))
    assert "3 in 2 node-hours, too short for a rate" in said
    assert "36,000" not in said
    days = HOUR | {"exposure_node_days": 2.0}
    said = title(plot.failure_rates(build(FAILURE_RATES, [days])))
    assert "3 in 2 node-days, 36,000 failures per 1,000 node-days (7,424 to 105,207)" in said


def test_a_group_that_leads_by_chance_is_not_said_to_fail_most(build):
    rival = HOUR | {"group": "network", "failure_count": 2, "per_1000_node_days": 24_000.0}
    far = rival | {"high_per_1000_node_days": 7_000.0, "per_1000_node_days": 1.0}
    near, apart = (plot.failure_rates(build(FAILURE_RATES, [HOUR, each])) for each in (rival, far))
    assert title(near).startswith("gpu fails most often, perhaps by chance: 3 in")
    assert title(apart).startswith("gpu fails most often: 3 in")
