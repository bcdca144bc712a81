"""The explorer of a compressed exchange: every control changes what the title says."""

import time

import pytest

from data import make
from workbench import datasets, explore, load


@pytest.fixture(scope="module")
def explorer():
    outputs = load.embedding_outputs(datasets.path("compressed-exchange") / "outputs.npz")
    return explore.compression_speedup(outputs)


def test_it_starts_where_one_core_does_not_pay(explorer, title):
    assert explorer.message.value == ""
    assert title(explorer).startswith("At 12.5 GB/s a ratio of 9.")
    assert "does not pay" in title(explorer)
    assert "closed form" in str(explorer.figure().layout.annotations)


@pytest.mark.parametrize(
    ("name", "value"),
    [("bound", 0.3), ("destinations", 128.0), ("link", 0.5), ("codec", 64.0), ("share", 0.3)],
)
def test_every_control_is_answered_in_the_title(explorer, title, name, value):
    before, start = title(explorer), explorer.controls[name].value
    explorer.controls[name].value = value
    assert explorer.message.value == ""
    assert title(explorer) != before
    explorer.controls[name].value = start
    assert title(explorer) == before


def test_a_slow_link_or_a_fast_codec_pays(explorer, title):
    for name, value in (("link", 0.25), ("codec", 256.0)):
        start = explorer.controls[name].value
        explorer.controls[name].value = value
        assert "makes a step" in title(explorer)
        explorer.controls[name].value = start


def test_a_small_batch_offers_no_more_destinations_than_it_has_samples():
    explorer = explore.compression_speedup(make.embedding_outputs({"users": 9}, row_count=5))
    assert [value for _, value in explorer.controls["destinations"].options] == [1, 2, 4]


def test_a_move_is_answered_at_once(explorer):
    spent = []
    for link in (0.5, 1.0, 3.0):
        begin = time.process_time()
        explorer.draw(**explorer.values() | {"link": link})
        spent.append(time.process_time() - begin)
    assert min(spent) < 0.3
