"""Tables of causes and counts, such as papers print."""

import pytest

from workbench import load
from workbench.errors import LoadError


@pytest.fixture
def file_of(tmp_path):
    def write(text):
        path = tmp_path / "causes.csv"
        path.write_text(text)
        return path

    return write


def test_causes_are_read_with_or_without_category_and_print(file_of):
    table = load.cause_counts(file_of("cause,failure_count\nGPU,3\nNIC,0\n"))
    assert table["failure_count"].tolist() == [3, 0]
    assert table[["category", "printed_share"]].isna().all(axis=None)
    text = "cause,category,failure_count,printed_share,source\nGPU,gpu,3,0.6,a\nNIC,,2,,b\n"
    table = load.cause_counts(file_of(text))
    assert table["printed_share"].tolist()[0] == 0.6
    assert table.iloc[1][["category", "printed_share"]].isna().all()


def test_columns_may_have_other_names(file_of):
    path = file_of("what,n\nGPU,3\n")
    table = load.cause_counts(path, columns={"cause": "what", "failure_count": "n"})
    assert table["cause"].tolist() == ["GPU"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cause,n\nGPU,3\n", r"no column \['failure_count'\]"),
        ("cause,failure_count\nGPU,3.5\n", "are not a whole number from 0, the first is '3.5'"),
        ("cause,failure_count\nGPU,-1\n", "are not a whole number from 0"),
        ("cause,failure_count\nGPU,1\nGPU,2\n", "row 1: 'GPU' occurs again"),
        ("cause,failure_count\nGPU,1\n,2\n", "row 1: no cause is named"),
        (
            "cause,failure_count,printed_share\nGPU,1,\nNIC,1,30.1\n",
            "row 1: printed_share is 30.1, which is above 1",
        ),
        ("cause,failure_count,printed_share\nGPU,1,few\n", "are not a finite number from 0"),
    ],
)
def test_what_is_no_table_of_causes_is_refused(file_of, text, message):
    with pytest.raises(LoadError, match=message):
        load.cause_counts(file_of(text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        load.cause_counts(tmp_path / "none.csv")
