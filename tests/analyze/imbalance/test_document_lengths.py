"""Shares of tokens and attention, and streams drawn from them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import analyze, load
from workbench.errors import WorkbenchError
from workbench.tables import DOCUMENT_LENGTHS, LENGTH_SHARES


def table(lengths):
    return pd.DataFrame({"length_tokens": np.asarray(lengths, dtype=np.int64)})


@pytest.mark.oracle
@pytest.mark.parametrize(("below_k", "share"), [(8, 0.776), (16, 0.805), (64, 0.872)])
def test_most_tokens_are_in_short_documents(real_data, below_k, share):
    lengths = load.document_lengths(real_data("lengths-documents") / "dist_wlbllm.json")
    shares = analyze.length_shares(lengths)
    row = shares[shares["length_tokens"] < below_k * 1024].iloc[-1]
    assert row["token_share"] == pytest.approx(share, abs=0.001)


@pytest.mark.oracle
def test_the_longest_hundredth_holds_most_attention(real_data):
    lengths = load.document_lengths(real_data("lengths-documents") / "dist_wlbllm.json")
    shares = analyze.length_shares(lengths)
    rest = shares[shares["longer_share"] > 0.01].iloc[-1]
    assert 1 - rest["token_share"] == pytest.approx(0.178, abs=0.002)
    assert 1 - rest["square_share"] == pytest.approx(0.79, abs=0.005)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_shares_rise_to_one_and_attention_lags_behind_tokens(lengths):
    shares = LENGTH_SHARES.check(analyze.length_shares(table(lengths)))
    assert shares["longer_share"].iloc[0] == 1
    assert shares[["token_share", "square_share"]].iloc[-1].tolist() == pytest.approx([1, 1])
    assert (shares["square_share"] <= shares["token_share"] + 1e-12).all()
    assert shares["token_share"].is_monotonic_increasing


def test_no_documents_have_no_shares():
    assert analyze.length_shares(DOCUMENT_LENGTHS.empty()).empty


def test_a_stream_is_as_long_as_asked_and_always_the_same():
    known = table([10, 20, 1_000])
    drawn = analyze.sample_documents(known, token_count=50_000, seed=5)
    tokens = drawn["length_tokens"]
    assert tokens.sum() >= 50_000 > tokens.iloc[:-1].sum()
    assert drawn.equals(analyze.sample_documents(known, token_count=50_000, seed=5))


def test_long_documents_can_be_drawn_more_often():
    known = table([10] * 990 + [1_000] * 10)
    plain, more = (
        analyze.sample_documents(known, token_count=10**6, long_ratio=ratio) for ratio in (1.0, 3.0)
    )
    frequent = [(each["length_tokens"] > 100).mean() for each in (plain, more)]
    assert frequent[1] > 1.2 * frequent[0]


def test_nothing_can_be_drawn_from_nothing():
    with pytest.raises(WorkbenchError, match="from 0 documents"):
        analyze.sample_documents(DOCUMENT_LENGTHS.empty(), token_count=10)
