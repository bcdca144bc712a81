"""Figures of a compressed exchange: the title states ratio and break-even, and what is in doubt."""

import math

import numpy as np
import pytest

from data import make
from workbench import analyze, plot
from workbench.tables import COMPRESSION, COMPRESSION_SPEEDUP, EmbeddingOutputs


def title(figure):
    return str(figure.layout.title.text).replace("<br>", " ")


def note(figure):
    return str(figure.layout.title.subtitle.text).replace("<br>", " ")


@pytest.fixture(scope="module")
def outputs():
    return make.embedding_outputs({"users": 500, "regions": 20}, row_count=256)


def test_the_title_names_both_ends_and_lines_are_the_stages(outputs):
    table = analyze.compression(outputs, bounds=[0.02], destinations=[1, 64])
    figure = plot.compression(table, synthetic=True)
    assert title(figure).startswith(
        "With a bound of 0.02 for all tables the exchange is compressed"
    )
    total = analyze.compression(outputs, bounds=[0.02], destinations=[1, 64], by_table=False)
    zstd = total.loc[total["stage"] == "zstd", "ratio"].tolist()
    np.testing.assert_allclose(figure.data[-1].y, zstd)
    assert title(figure).endswith(f"for 1 destination and {zstd[1]:.2f} for 64")
    assert figure.data[0].name == "distinct rows, lossless"
    assert len(figure.data) == 4


def test_several_bounds_are_lines_after_the_last_stage(outputs):
    table = analyze.compression(outputs, bounds=[0.01, 0.05], destinations=[1, 8])
    figure = plot.compression(table)
    assert [line.name for line in figure.data] == ["0.01 for all tables", "0.05 for all tables"]
    assert "bound of 0.01 for all tables" in title(figure)


def test_a_lost_table_is_a_doubt_with_its_name_and_of_another_bound_a_note(outputs):
    table = analyze.compression(outputs, bounds=[0.5], destinations=[1, 8])
    figure = plot.compression(table)
    assert title(figure).startswith("In doubt: ")
    assert "<b>users, regions: errors are nearly as large" in note(figure)
    total = analyze.compression(outputs, bounds=[0.02, 0.5], destinations=[1], by_table=False)
    figure = plot.compression(total)
    assert not title(figure).startswith("In doubt")
    assert "1 further bound too wide for some tables" in note(figure)


def test_one_number_of_destinations_is_one_ratio(outputs):
    table = analyze.compression(outputs, destinations=[8], by_table=False)
    assert title(plot.compression(table)).endswith(" for 8 destinations")


def test_the_title_says_where_compression_pays():
    table = analyze.compression_speedup(
        [12.0], link_gb_per_s=[0.25, 1, 12.5], compress_gb_per_s=[2, math.inf]
    )
    figure = plot.compression_speedup(table, at_gb_per_s=0.25)
    assert title(figure) == (
        "At 0.25 GB/s a ratio of 12 makes a step 1.82 times as fast (60 % is exchange); "
        "compression pays up to 1.38 GB/s"
    )
    assert [line.name for line in figure.data] == ["codec 2 GB/s", "codec that costs nothing"]
    assert title(plot.compression_speedup(table)) == (
        "At 12.5 GB/s a ratio of 12 does not pay: a step takes 5.45 times as long (60 % is "
        "exchange); compression pays up to 1.38 GB/s"
    )
    assert "model" in note(figure)


@pytest.mark.parametrize(
    ("ratio", "ending"), [(2.0, "compression pays on any link"), (0.5, "pays on no link")]
)
def test_a_codec_that_costs_nothing_pays_always_or_never(ratio, ending):
    table = analyze.compression_speedup([ratio], compress_gb_per_s=[math.inf])
    assert title(plot.compression_speedup(table)).endswith(ending)


def test_shares_and_ratios_are_named_in_the_legend():
    table = analyze.compression_speedup(
        [2.0, 12.34], communication_shares=[0.3, 0.6], link_gb_per_s=[1, 2]
    )
    names = [line.name for line in plot.compression_speedup(table).data]
    assert names == [
        "ratio 2, 30 % of the step", "ratio 2, 60 % of the step",
        "ratio 12.3, 30 % of the step", "ratio 12.3, 60 % of the step",
    ]  # fmt: skip


def test_nothing_to_show_is_said_in_words():
    assert title(plot.compression(COMPRESSION.empty())) == "No exchange to compress"
    assert title(plot.compression_speedup(COMPRESSION_SPEEDUP.empty())) == "No speed-up to show"


def test_one_value_can_be_drawn():
    table = analyze.compression(
        EmbeddingOutputs({"users": np.ones((1, 1), np.float32)}), destinations=[1]
    )
    assert title(plot.compression(table)).endswith("for 1 destination")
