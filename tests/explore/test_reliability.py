"""The explorer of lemon nodes: move a control, read the screen."""

import numpy as np
import pandas as pd
import pytest

from workbench import explore
from workbench.tables import FAILURES, NODE_SPANS

DAY = 86_400_000_000_000


@pytest.fixture(scope="module")
def log():
    """Make 400 nodes, watched for 100 days; the first four fail ten times as often."""
    draws = np.random.default_rng(4)
    count = draws.poisson(np.r_[[9.0] * 4, [0.9] * 396])
    names = np.array([f"n{at}" for at in range(400)])
    failures = pd.DataFrame(dict.fromkeys(FAILURES.columns), index=range(count.sum()))
    texts = ("kind", "cause", "other_codes", "text", "source", "assumed")
    failures = failures.assign(
        node=np.repeat(names, count),
        start_ns=np.sort(draws.integers(0, 100 * DAY, count.sum())),
        clock="epoch", category="gpu", severity="fatal", line=1, line_count=1, rank_count=0, devices="", ranks="",
        **dict.fromkeys(texts, ""),
    )  # fmt: skip
    spans = pd.DataFrame({"node": names, "first_ns": 0, "last_ns": 100 * DAY, "gpu_count": 8})
    spans = spans.assign(clock="epoch", failure_count=count)
    return FAILURES.cast(failures), NODE_SPANS.cast(spans)


def test_lemons_vanish_in_the_first_week(log, title):
    explorer = explore.lemon_nodes(*log, source="drawn", synthetic=True)
    assert title(explorer).startswith("4 of 400 nodes fail too often to be chance; 100 days")
    explorer.controls["days"].value = 7
    assert "; 7 days find about" in title(explorer)
    assert not title(explorer).startswith("4 of")
    assert explorer.message.value == ""
    explorer.controls["view"].value = "recall"
    assert "of the lemons" in title(explorer)
    explorer.controls["false_discovery"].value = 0.2
    assert "SYNTHETIC DATA" in explorer.figure().layout.title.subtitle.text


def test_lemons_without_times_can_be_seen_for_the_whole_only(log, title):
    failures, nodes = log
    timeless = failures.assign(clock="none", start_ns=pd.array([None] * len(failures), "Int64"))
    explorer = explore.lemon_nodes(timeless, nodes)
    before = title(explorer)
    assert before.startswith("4 of 400")
    explorer.controls["days"].value = 30
    assert "none of the" in explorer.message.value
    assert title(explorer) == before


def test_every_control_has_a_label_and_states_are_few(log):
    explorer = explore.lemon_nodes(*log)
    assert all(control.description for control in explorer.controls.values())
    sizes = [len(control.options) for control in explorer.controls.values()]
    assert np.prod(sizes) <= 200
