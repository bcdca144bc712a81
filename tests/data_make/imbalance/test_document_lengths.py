"""Generated document lengths keep what they promise."""

import numpy as np
import pytest

from data import make
from workbench.errors import WorkbenchError


def test_the_same_seed_gives_the_same_lengths_and_another_does_not():
    one, same, other = (make.document_lengths(500, seed=seed) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_the_truth_is_written_beside_the_lengths_and_holds():
    lengths = make.document_lengths(50_000, seed=3, median_tokens=2_000, long_share=0.05)
    tokens = lengths["length_tokens"].to_numpy()
    assert lengths.attrs["truth"]["long_share"] == 0.05
    assert np.mean(tokens > 8_000) == pytest.approx(0.05, abs=0.012)
    assert np.median(tokens) == pytest.approx(2_000, rel=0.1)
    assert tokens.max() <= 128 * 1024


def test_impossible_arguments_are_refused():
    with pytest.raises(WorkbenchError, match="above four medians"):
        make.document_lengths(10, median_tokens=50_000)
