"""Columns as they lie in memory: what goes in comes out, or the file is refused."""

import json
import os
import struct
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.conftest import event
from workbench import load
from workbench.load._traces import kept_columns
from workbench.load._traces.kept_columns import checksum, read_columns, write_columns

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@st.composite
def frames(draw):
    rows = draw(st.integers(0, 40))

    def column(values, dtype):
        return pd.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype=dtype)

    longs = st.integers(-(1 << 63), (1 << 63) - 1)
    names = draw(st.lists(_NAMES, unique=True, max_size=5))
    codes = st.integers(-1, len(names) - 1)
    return pd.DataFrame(
        {
            "rank": column(st.integers(0, 9), "int32").to_numpy(),
            "start_ns": column(longs, "int64").to_numpy(),
            "name": pd.Categorical.from_codes(
                column(codes, "int8").to_numpy(), categories=pd.Index(names, dtype="str")
            ),
            "launch": column(st.none() | longs, "Int64"),
            "step": column(st.none() | st.integers(0, 9), "Int32"),
            "seq": column(st.none(), "Int64"),
            "share": column(st.none() | st.floats(allow_nan=False), "Float64"),
        },
        copy=False,
    )


@given(frame=frames())
def test_what_goes_in_comes_out(tmp_path_factory, frame):
    path = tmp_path_factory.mktemp("kept") / "x.columns"
    write_columns(frame, {"clock": "epoch"}, path)
    again, more = read_columns(path)
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    assert more == {"clock": "epoch"}


@pytest.fixture
def stored(tmp_path):
    frame = pd.DataFrame({
        "start_ns": np.arange(30_000), "name": pd.Categorical(["a", "b", None] * 10_000),
        "launch": pd.array([1, None] * 15_000, dtype="Int64"),
    })  # fmt: skip
    write_columns(frame, {}, tmp_path / "x.columns")
    return tmp_path / "x.columns", frame


def test_every_flipped_bit_is_noticed(stored):
    path, frame = stored
    raw = path.read_bytes()
    draw = np.random.default_rng(1)
    places = {*range(24), len(raw) - 1, *draw.integers(0, len(raw), 200).tolist()}
    for place in sorted(places):
        bad = bytearray(raw)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        try:
            again, _ = read_columns(path)
        except ValueError:
            continue
        # Only the bytes between columns mean nothing.
        pd.testing.assert_frame_equal(again, frame)
        assert raw[place] == 0


@pytest.mark.parametrize("length", [0, 7, 24, 100, 60_000, -1])
def test_a_file_that_is_cut_is_refused(stored, length):
    path, _ = stored
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"."):
        read_columns(path)


def with_header(path, change):
    """Change the header of a file as somebody would who makes its checksum fit again."""
    raw = path.read_bytes()
    _, length, _ = struct.unpack_from("<8sQQ", raw)
    header = json.loads(raw[24 : 24 + length])
    change(header)
    text = json.dumps(header).encode()
    # Columns are found behind the header, which may only become shorter here.
    text = text.ljust(length) if len(text) <= length else text
    path.write_bytes(struct.pack("<8sQQ", b"wbcolumn", len(text), zlib.crc32(text)) + text
                     + raw[24 + length :])  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(rows=1 << 60),
        lambda header: header.update(rows=-1),
        lambda header: header.update(rows="7"),
        lambda header: header.update(columns=[[]]),
        lambda header: header.pop("columns"),
        lambda header: header["columns"][0].update(dtype="object"),
        lambda header: header["columns"][0].update(dtype="O8"),
        lambda header: header["columns"][0].update(sums=[]),
        lambda header: header["columns"][1].update(categories=["a"]),
        lambda header: header["columns"][1].update(categories=["a", "a"]),
        lambda header: header["columns"][1].update(codes="int64"),
        lambda header: header["columns"][2].update(dtype="Object"),
    ],
)
def test_a_header_that_lies_is_refused(stored, change):
    path, _ = stored
    with_header(path, change)
    with pytest.raises(ValueError, match=r"."):
        read_columns(path)


def test_a_header_nested_without_end_is_refused(stored):
    path, _ = stored
    text = b"[" * 200_000
    path.write_bytes(struct.pack("<8sQQ", b"wbcolumn", len(text), zlib.crc32(text)) + text)
    with pytest.raises(ValueError, match=r"."):
        read_columns(path)


def test_the_checksum_sees_blocks_that_changed_places():
    blocks = np.arange(3 << 13)
    swapped = np.concatenate([blocks[1 << 13 : 2 << 13], blocks[: 1 << 13], blocks[2 << 13 :]])
    assert checksum(blocks) != checksum(swapped)


def test_writing_to_a_table_leaves_the_cache_as_it_is(trace_file, tmp_path):
    trace = trace_file([event("a", 1), event("b", 2)])
    first = load.traces(trace, cache=tmp_path / "cache").events
    changed = load.traces(trace, cache=tmp_path / "cache").events
    changed.loc[0, "start_ns"] = 7
    changed.loc[0, "name"] = "b"
    again = load.traces(trace, cache=tmp_path / "cache").events
    pd.testing.assert_frame_equal(again, first)


@pytest.mark.parametrize("is_old", [False, True])
def test_other_content_of_the_same_size_and_time_is_noticed(trace_file, tmp_path, is_old):
    trace, cache = trace_file([event("gemm", 1)]), tmp_path / "cache"
    if is_old:
        os.utime(trace, (1_000_000_000, 1_000_000_000))
    before = trace.stat()
    assert load.traces(trace, cache=cache).events["name"].tolist() == ["gemm"]
    with trace.open("r+b") as file:
        raw = file.read()
        file.seek(0)
        file.write(raw.replace(b"gemm", b"copy"))
    os.utime(trace, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert trace.stat().st_size == before.st_size
    assert trace.stat().st_mtime_ns == before.st_mtime_ns
    assert load.traces(trace, cache=cache).events["name"].tolist() == ["copy"]


def test_the_content_of_a_file_that_has_settled_is_hashed_once(trace_file, tmp_path, monkeypatch):
    trace, cache = trace_file([event("a", 1)]), tmp_path / "cache"
    load.traces(trace, cache=cache)
    assert not (cache / "seen").exists()
    monkeypatch.setattr(kept_columns, "_SETTLED_NS", -1)
    load.traces(trace, cache=cache)
    monkeypatch.setattr(kept_columns.hashlib, "file_digest", None)
    assert load.traces(trace, cache=cache).events["name"].tolist() == ["a"]
