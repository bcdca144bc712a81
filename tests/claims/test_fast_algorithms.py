"""Coefficients of fast multiplication, and tensor contractions as matrix products."""

import pytest

from claims._fast_algorithms import fast_algorithms, tensor_contractions
from workbench.errors import LoadError

PLAIN = "# 1 x 1 x 2\n1 1\n#\n1 0\n0 1\n#\n1 0\n0 1\n"


@pytest.mark.oracle
def test_the_public_files_are_read_with_their_shapes(real_data):
    table = fast_algorithms(real_data("fast-matmul"))
    assert table["algorithm"].nunique() == 31
    parts = table.groupby("algorithm")[["m_part_count", "k_part_count", "n_part_count"]].first()
    for name, sizes in parts.iterrows():
        digits = [int(letter) for letter in name.split("-")[0] if letter.isdigit()]
        assert sizes.tolist() == (digits or [2, 2, 2]), name


def test_fractions_are_numbers_and_zeros_have_no_row(tmp_path):
    path = tmp_path / "own"
    path.write_text(PLAIN.replace("1 1\n", "1/2 -1\n", 1))
    table = fast_algorithms(path)
    assert table["coefficient_ratio"].tolist() == [0.5, -1.0, 1.0, 1.0, 1.0, 1.0]
    assert table["operand"].tolist() == ["A", "A", "B", "B", "C", "C"]
    assert set(table["n_part_count"]) == {2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN.replace("1 0", "1 x", 1), "line 4: '1 x' is not a row of numbers"),
        (PLAIN.replace("1 0", f"1 {10**400}/3", 1), "line 4: .* is not a row of numbers"),
        (PLAIN.replace("1 0", "1/0 0", 1), "line 4: '1/0 0' is not a row of numbers"),
        (PLAIN.rsplit("#", 1)[0], "2 matrices of"),
        (PLAIN + "1 0\n", "three of m k, k n and m n rows"),
        (PLAIN.replace("1 0\n", "1 0 0\n", 1), r"\[2, 3\] columns"),
        ("", "is empty or contains nothing readable"),
    ],
)
def test_other_files_are_refused(text, message, tmp_path):
    path = tmp_path / "own"
    path.write_text(text)
    with pytest.raises(LoadError, match=message):
        fast_algorithms(path)


def test_a_folder_without_coefficients_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(LoadError, match="no file of coefficients"):
        fast_algorithms(tmp_path)


@pytest.mark.oracle
def test_contractions_are_folded_as_by_hand(real_data):
    table = tensor_contractions(real_data("tensor-contractions") / "tcb.txt")
    sides = table[["m_count", "n_count", "k_count"]].to_numpy().tolist()
    assert sides[0] == sides[1] == [230_400, 480, 480]
    assert sides[2] == [5_136, 5_120, 5_136]
    assert sides[3:] == [[5_184] * 3] * 3
    assert len(tensor_contractions(real_data("tensor-contractions") / "shape.txt")) == 11


@pytest.mark.parametrize(
    "line",
    [
        "nothing of the kind",
        "abc ad db & a:2;b:2;d:2;",
        "ab ac cb & a:8;b:8;",
        "abz acz cbz & a:8;b:8;c:8;z:8;",
        "ab ac cbq & a:8;b:8;c:8;q:2;",
    ],
)
def test_a_line_that_is_no_contraction_is_named(line, tmp_path):
    path = tmp_path / "own.txt"
    path.write_text(f"ab ac cb & a:8;b:9;c:10;\n\n{line}\n")
    with pytest.raises(LoadError, match=r"line 3: .* is not a contraction"):
        tensor_contractions(path)
