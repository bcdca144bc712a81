"""Embedding outputs: arrays as users dump them; nothing is unpickled, every misfit is named."""

import contextlib
import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import datasets, load
from workbench.errors import LoadError, WorkbenchError
from workbench.load._communication import embedding_outputs as loader

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def archive(path, members):
    """Write an archive whose members are arrays, or bytes as they are."""
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members:
            packed.writestr(name, content if isinstance(content, bytes) else saved(content))
    return path


@pytest.mark.oracle
def test_the_bundled_outputs_are_those_of_ten_tables():
    path = datasets.path("compressed-exchange") / "outputs.npz"
    outputs = load.embedding_outputs(path)
    with np.load(path, allow_pickle=False) as plain:
        assert list(outputs.arrays) == plain.files
        assert all((outputs.arrays[name] == plain[name]).all() for name in plain.files)
    assert repr(outputs) == "EmbeddingOutputs: 10 tables, 1,024 samples, 1.31 MB"


@pytest.mark.parametrize(
    "array", [ROWS, np.asfortranarray(ROWS), ROWS.astype(">f4")], ids=["C", "Fortran", "big-endian"]
)
def test_order_in_memory_and_of_bytes_change_nothing(array, tmp_path):
    np.savez(tmp_path / "dump.npz", users=array)
    read = load.embedding_outputs(tmp_path / "dump.npz").arrays["users"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, ROWS)


def test_one_array_of_several_tables_is_taken_apart_by_its_middle_axis(tmp_path):
    stacked = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.save(tmp_path / "dump.npy", stacked)
    arrays = load.embedding_outputs(tmp_path / "dump.npy").arrays
    assert list(arrays) == ["0", "1"]
    np.testing.assert_array_equal(arrays["1"], stacked[:, 1])


def test_tables_may_differ_in_width_and_their_names_are_no_paths(tmp_path):
    path = archive(tmp_path / "dump.npz", [("../../up.npy", ROWS), ("wide.npy", ROWS[:, :1])])
    assert list(load.embedding_outputs(path).arrays) == ["../../up", "wide"]
    assert [entry.name for entry in tmp_path.parent.glob("up*")] == []


BAD = ROWS.copy()
BAD[2, 1] = np.nan


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", ROWS), ("b.npy", BAD)], "table 'b' has 1 values .* row 2, column 1 is nan"),
        ([("a.npy", np.full_like(ROWS, np.inf))], "12 values .* row 0, column 0 is inf"),
        ([("a.npy", ROWS), ("b.npy", ROWS[:2])], "table 'b' has 2 samples, the first table 4"),
        ([("a.npy", ROWS.astype(np.float16))], "array 'a': dtype float16, needs float32"),
        ([("a.npy", ROWS[0])], r"table 'a' has shape \(3,\); needs samples x numbers"),
        ([("a.npy", ROWS[:0])], "shape .0, 3. takes 0 bytes"),
        ([("a.npy", np.array([{}], dtype=object))], "array 'a': dtype object, needs float32"),
        ([("archive/data.pkl", b"\x80\x02}.")], "'archive/data.pkl' is not an array"),
        ([("a.npy", b"no array")], "array 'a': the header cannot be read"),
        ([], "no tables at all|neither"),
    ],
)
def test_file_array_and_first_bad_value_are_named(members, message, tmp_path):
    path = archive(tmp_path / "dump.npz", members)
    with pytest.raises(LoadError, match=message) as caught:
        load.embedding_outputs(path)
    assert str(path) in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name_are_refused(tmp_path):
    path = archive(tmp_path / "dump.npz", [("a.npy", ROWS), ("a.npy", ROWS)])
    with pytest.raises(LoadError, match="2 arrays, 1 names"):
        load.embedding_outputs(path)


def test_an_array_of_one_table_needs_its_axis(tmp_path):
    np.save(tmp_path / "dump.npy", ROWS)
    with pytest.raises(LoadError, match="2 axes, needs samples x tables x numbers"):
        load.embedding_outputs(tmp_path / "dump.npy")


def test_what_a_header_claims_is_not_believed(tmp_path):
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 32)}"
    head += b" " * (117 - len(head)) + b"\n"
    path = tmp_path / "dump.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + b"\0" * 64)
    with pytest.raises(LoadError, match="takes 128,000,000,000,000 bytes, and 64 follow"):
        load.embedding_outputs(path)


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "_MOST_BYTES", 100)
    np.savez_compressed(tmp_path / "dump.npz", users=np.zeros((100, 100), np.float32))
    with pytest.raises(LoadError, match="40,128 bytes unpacked, at most 100"):
        load.embedding_outputs(tmp_path / "dump.npz")


def test_another_kind_of_file_is_told_how_to_save(tmp_path):
    path = tmp_path / "dump.pt"
    path.write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(
        LoadError, match=r"begins with .*neither an \.npz nor an \.npy file.*numpy\.savez"
    ):
        load.embedding_outputs(path)
    with pytest.raises(FileNotFoundError):
        load.embedding_outputs(tmp_path / "none.npz")


def whole():
    stream = io.BytesIO()
    np.savez_compressed(stream, users=ROWS, items=ROWS)
    return stream.getvalue()


WHOLE = whole()


@pytest.mark.filterwarnings("ignore:Reading")
@given(
    st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8), st.integers(0, len(WHOLE))
)
def test_a_damaged_file_raises_an_error_of_the_workbench_or_reads(tmp_path_factory, at, new, end):
    path = tmp_path_factory.mktemp("damaged") / "dump.npz"
    path.write_bytes((WHOLE[:at] + new + WHOLE[at + len(new) :])[:end])
    with contextlib.suppress(WorkbenchError):
        load.embedding_outputs(path)
