"""Histograms of reuse are read whole, and what is cut off or does not add up is named."""

import pytest

from claims.registry import published
from workbench import load
from workbench.errors import LoadError

SMALL = """
tiny_t3_bs8.pt
Locality stats after processing 2 batches of size 8
Avg # of indices: 40
Avg # of unique cols: 10
Avg col size: 4.0
Histogram of col sizes:
(0, 4]: 0.800
(4+: 0.200
[0, 4]
['0.000', '0.800', '1.000']
Ratio of index distribution at different column sizes:
(0, 4]: 0.400
(4+: 0.600
[0, 4]
"""


@pytest.fixture
def file_of(tmp_path):
    def write(text):
        path = tmp_path / "locality_stats.txt"
        path.write_text(text)
        return path

    return write


@pytest.mark.oracle
@pytest.mark.parametrize(("year", "batches"), [("2021", 17), ("2022", 16)])
def test_real_histograms_hold_the_printed_numbers(real_data, year, batches):
    table = load.reuse_histogram(real_data("dlrm-locality") / year / "locality_stats.txt")
    assert table["batch"].nunique() == batches
    assert len(table) == 17 * batches
    rows = [row for row in published("sharding_dlrm_reuse") if row["year"] == year]
    assert rows
    for row in rows:
        found = table[table["batch"] == row["batch"]]
        if row["above_count"]:
            found = found[found["above_count"] == int(row["above_count"])]
        assert found[row["quantity"]].iloc[0] == float(row["value"]), row


@pytest.mark.oracle
def test_real_shares_of_rows_and_of_look_ups_fit_each_other(real_data):
    for year in ("2021", "2022"):
        table = load.reuse_histogram(real_data("dlrm-locality") / year / "locality_stats.txt")
        known = table[(table["row_share"] >= 0.01) & table["upto_count"].notna()]
        reuse = known["lookup_share"] * known["lookup_count"]
        reuse /= known["row_share"] * known["unique_count"]
        # Both shares are rounded to three digits: 5 % of 0.01
        assert (reuse >= 0.95 * known["above_count"]).all()
        assert (reuse <= 1.05 * known["upto_count"].astype("float64")).all()


def test_a_small_file_is_read_whole(file_of):
    table = load.reuse_histogram(file_of(SMALL))
    assert table["sample_count"].tolist() == [16, 16]
    assert table["upto_count"].isna().tolist() == [False, True]
    assert table["row_share"].tolist() == [0.8, 0.2]
    assert table["lookup_share"].tolist() == [0.4, 0.6]
    assert table[["lookup_count", "unique_count", "reuse_ratio"]].iloc[0].tolist() == [40, 10, 4]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (SMALL, "", "is empty"),
        ("Avg col size: 4.0\n", "", r"line 2: batch 'tiny_t3_bs8.pt' does not say \['reuse_ratio"),
        ("Avg col size: 4.0", "Avg col size: many", "line 6: 'Avg col size: many' is not part of"),
        ("(4+: 0.600\n", "", "other bins for rows than for look-ups"),
        ("(4+: 0.600", "(4+: 0.500", "its lookup_shares add up to 0.900, not to 1"),
        ("tiny_t3_bs8.pt\n", "", "line 2: 'Locality stats"),
        ("(4+:", "(2+:", "line 2: batch 'tiny_t3_bs8.pt': its bins overlap, or leave something"),
        ("(4+:", "(9+:", "line 2: batch 'tiny_t3_bs8.pt': its bins overlap, or leave something"),
        ("(4+: 0.200", "(4+: 0.2\n(4+: 0.2", r"line 10: '\(4\+: 0.2' is not part of"),
        (SMALL, SMALL + SMALL, "line 2: batch 'tiny_t3_bs8.pt' occurs twice"),
    ],
    ids=[
        "empty",
        "no total",
        "no number",
        "cut off",
        "does not add up",
        "no batch",
        "overlap",
        "hole",
        "bin twice",
        "batch twice",
    ],
)
def test_what_is_missing_or_wrong_is_named(file_of, before, after, message):
    with pytest.raises(LoadError, match=message):
        load.reuse_histogram(file_of(SMALL.replace(before, after)))


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(LoadError, match="is UTF-16 text"):
        load.reuse_histogram(tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError):
        load.reuse_histogram(tmp_path / "nowhere.txt")
