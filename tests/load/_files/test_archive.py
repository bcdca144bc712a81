"""Opening trace files: the same bytes whatever the packing, no harm from hostile input."""

import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import os
import pickle
import random
import struct
import tarfile
import zipfile
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import LoadError
from workbench.load._files import stream as _stream
from workbench.load._files.archive import sources, streams, survey

JSON = b'{"traceEvents": [' + b",".join(b'{"ph": "X", "ts": %d}' % i for i in range(5000)) + b"]}"
NOISE = b"[{}" + random.Random(7).randbytes(200_000) + b"]"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def tar_of(members, packing=""):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{packing}") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def zip_of(members, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def read(source):
    with source.open() as stream:
        return stream.read()


def read_with_state(path):
    (source,) = sources(path)
    with source.open() as stream:
        content = stream.read()
        return content, stream.truncated_at, stream.notes


def remarks(path):
    return {r.source.rsplit("!", 1)[-1].rsplit("/", 1)[-1]: r for r in survey(path).remarks}


# --- the same bytes whatever the packing --------------------------------------------------


def zstd(content, packing="zstd"):
    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, packing) as packed:
        packed.write(content)
    return file.getvalue().to_pybytes()


def lz4(content):
    return zstd(content, "lz4")


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd, "lz4": lz4}
PACKED = {
    **{f"packed.json.{ending}": pack(JSON) for ending, pack in PACK.items()},
    **{
        f"streams.json.{ending}": pack(JSON[:1000]) + pack(JSON[1000:])
        for ending, pack in PACK.items()
    },
    **{f"inside_{ending}.tar": tar_of({"a.json": pack(JSON)}) for ending, pack in PACK.items()},
    **{f"one.tar.{ending}": pack(tar_of({"a.json": JSON})) for ending, pack in PACK.items()},
    "plain.json": JSON,
    "packed.json.gz": gzip.compress(JSON),
    "packed_twice.json.gz": gzip.compress(gzip.compress(JSON)),
    "no_gz_in_its_name.json": gzip.compress(JSON),
    "several_members.json.gz": gzip.compress(JSON[:1000]) + gzip.compress(JSON[1000:]),
    "one.tar": tar_of({"run/rank0.json": JSON}),
    "one.tar.gz": tar_of({"run/rank0.json": JSON}, "gz"),
    "one.tgz": tar_of({"run/rank0.json.gz": gzip.compress(JSON)}, "gz"),
    "no_tar_in_its_name.json": tar_of({"run/rank0.json": JSON}, "gz"),
    "stored.zip": zip_of({"rank0.json": JSON}, zipfile.ZIP_STORED),
    "deflated.zip": zip_of({"rank0.json": JSON}),
    "packed_inside.zip": zip_of({"rank0.json.gz": gzip.compress(JSON)}),
}


@pytest.mark.parametrize("name", PACKED)
def test_gives_the_same_bytes_whatever_the_packing(name, tmp_path):
    content, truncated_at, notes = read_with_state(write(tmp_path / name, PACKED[name]))
    assert content == JSON
    assert truncated_at is None
    assert notes == []


@pytest.mark.parametrize("name", ["one.tgz", "deflated.zip", "packed.json.gz"])
def test_a_source_can_be_sent_to_another_process(name, tmp_path):
    (source,) = sources(write(tmp_path / name, PACKED[name]))
    assert read(pickle.loads(pickle.dumps(source))) == JSON  # noqa: S301 - made here


@given(sizes=st.lists(st.integers(0, 70_000), min_size=1, max_size=12))
def test_small_and_large_reads_give_the_same_bytes(sizes, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("reads") / "a.json.gz", gzip.compress(NOISE))
    seen = bytearray()
    with sources(path)[0].open() as stream:
        for at, size in enumerate(itertools.cycle([*sizes, 1000])):
            if at % 3 == 0:
                assert stream.tell() == len(seen)
                piece = stream.read(size)
            elif at % 3 == 1:
                buffer = bytearray(size)
                piece = buffer[: stream.readinto(buffer)]
            else:
                piece = stream.read1(size)
            assert len(piece) <= size
            seen += piece
            if not stream.has_more():
                break
    assert seen == NOISE


def test_readinto_fills_the_buffer_up_to_the_end(tmp_path):
    path = write(tmp_path / "a.json.gz", gzip.compress(NOISE))
    buffer = bytearray(len(NOISE) - 5)
    with sources(path)[0].open() as stream:
        assert stream.readinto(memoryview(buffer)) == len(NOISE) - 5
        assert stream.readinto(memoryview(buffer)) == 5


@pytest.mark.parametrize("packing", ["", "gz"])
def test_members_of_one_archive_can_be_read_in_one_pass(packing, tmp_path, monkeypatch):
    members = {f"rank{i}.json": b'{"rank": %d}' % i + b" " * 3000 * i for i in range(6)}
    found = sources(write(tmp_path / "a.tar", tar_of(members, packing)))
    opened = []
    inflate = _stream.inflate

    def counted(feed, health):
        opened.append(health)
        return (yield from inflate(feed, health))

    monkeypatch.setattr(_stream, "inflate", counted)
    assert [stream.read() for _, stream in streams(found)] == list(members.values())
    assert len(opened) == (packing == "gz")
    backwards = [stream.read() for _, stream in streams(reversed(found))]
    assert backwards == list(members.values())[::-1]
    partly = [stream.read(3) for _, stream in streams(found)]
    assert partly == [b'{"r'] * 6


def test_sizes_are_those_of_the_content(tmp_path):
    for name, content in PACKED.items():
        (source,) = sources(write(tmp_path / name, content))
        is_estimate = name.endswith((".bz2", ".xz", ".zst", ".lz4", ".tgz")) or any(
            word in name for word in ("inside", "twice", "several", "streams")
        )
        if not is_estimate or ".tar." in name:
            assert source.size_bytes == len(JSON), name
        assert source.size_bytes > 0


def test_gzip_headers_may_hold_names_comments_and_more(tmp_path):
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = body.compress(JSON) + body.flush()
    header = b"\x1f\x8b\x08" + bytes([2 | 4 | 8 | 16]) + b"\0\0\0\0\0\xff"
    header += b"\x03\0abc" + b"x" * 70_000 + b"\0" + b"a comment\0" + b"\0\0"
    trailer = struct.pack("<II", zlib.crc32(JSON), len(JSON))
    content, _, notes = read_with_state(write(tmp_path / "a.gz", header + packed + trailer))
    assert content == JSON
    assert notes == []


# --- directories and lists ----------------------------------------------------------------


def test_a_directory_is_searched_to_any_depth_in_order_of_name(tmp_path):
    for name in (
        "b/rank1.json",
        "b/c/rank2.json.gz",
        "a/rank0.json",
        "d.et",
        "e.pt.trace.json.tmp",
    ):
        content = gzip.compress(JSON) if name.endswith("gz") else JSON
        write(tmp_path / name, content)
    write(tmp_path / "z.tar.gz", PACKED["one.tar.gz"])
    found = survey(tmp_path)
    labels = [s.label.removeprefix(f"{tmp_path}/") for s in found.sources]
    assert labels == [
        "d.et", "e.pt.trace.json.tmp", "z.tar.gz!run/rank0.json", "a/rank0.json",
        "b/rank1.json", "b/c/rank2.json.gz",
    ]  # fmt: skip
    assert found.remarks == []


def test_what_is_passed_over_is_told(tmp_path):
    write(tmp_path / "rank0.json", JSON)
    write(tmp_path / "trace.4711", JSON)
    write(tmp_path / "README.md", b"# Traces")
    write(tmp_path / "boot.log", b"[    0.1] not JSON")
    write(tmp_path / "work.ipynb", b'{"cells": []}')
    write(tmp_path / "._rank0.json", JSON)
    write(tmp_path / "rank1.json", b"")
    write(tmp_path / "rank2.json.zst", b"\x28\xb5\x2f\xfd1234567")
    write(tmp_path / "rank3.zip", PACKED["deflated.zip"][:-30])
    os.mkfifo(tmp_path / "pipe.json")
    assert [s.path.name for s in sources(tmp_path)] == ["rank0.json", "trace.4711"]
    told = {name: (r.finding, r.what) for name, r in remarks(tmp_path).items()}
    assert told["README.md"] == ("skipped by design", "does not look like a trace")
    assert told["boot.log"] == ("skipped by design", "does not look like a trace")
    assert told["work.ipynb"] == ("skipped by design", "does not look like a trace")
    assert told["._rank0.json"] == ("skipped by design", "hidden file")
    assert told["rank1.json"] == ("dropped", "is empty; get the file again")
    assert told["rank2.json.zst"][0] == "dropped"
    assert "zstd" in told["rank2.json.zst"][1]
    assert told["rank3.zip"][0] == "dropped"
    assert told["pipe.json"] == ("dropped", "is not a regular file")
    assert len(told) == 8


def test_a_file_given_twice_is_taken_once(tmp_path):
    path = write(tmp_path / "rank0.json", JSON)
    found = survey([path, str(tmp_path)])
    assert [s.path for s in found.sources] == [path]
    assert [(r.finding, r.what) for r in found.remarks] == [
        ("skipped by design", "was given before")
    ]


def test_a_named_file_is_taken_whatever_its_name(tmp_path):
    path = write(tmp_path / "notes.md", b"# not a trace")
    assert [s.path for s in sources(path)] == [path]


def test_a_missing_path_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such file or directory"):
        sources(tmp_path / "nowhere")


def test_nothing_found_is_an_error_that_lists_what_was_seen(tmp_path):
    write(tmp_path / "README.md", b"# Traces")
    with pytest.raises(LoadError, match=r"no trace file found\n  - .*README.md: does not look"):
        sources(tmp_path)
    with pytest.raises(LoadError, match="an empty list: no trace file found"):
        sources([])


# --- damage ---------------------------------------------------------------------------------


@given(cut=st.integers(min_value=20, max_value=len(gzip.compress(NOISE)) - 9))
def test_a_truncated_gzip_gives_what_is_readable(cut, tmp_path_factory):
    packed = gzip.compress(NOISE, mtime=0)[:cut]
    path = write(tmp_path_factory.mktemp("cut") / "a.json.gz", packed)
    expected = zlib.decompressobj(31).decompress(packed)
    if not expected:
        with pytest.raises(LoadError, match="contains nothing readable"):
            read_with_state(path)
        return
    content, truncated_at, notes = read_with_state(path)
    assert content == expected
    assert truncated_at == len(expected)
    assert "end in the middle" in notes[0]


@given(where=st.floats(0.001, 0.999), bit=st.integers(0, 7))
def test_a_flipped_bit_never_passes_unnoticed(where, bit, tmp_path_factory):
    packed = bytearray(gzip.compress(JSON, mtime=0))
    packed[10 + int(where * (len(packed) - 10))] ^= 1 << bit
    path = write(tmp_path_factory.mktemp("flip") / "a.json.gz", packed)
    try:
        content, truncated_at, notes = read_with_state(path)
    except LoadError:
        return
    assert notes
    if truncated_at is not None:
        assert truncated_at == len(content)


def test_data_before_damage_are_given_to_the_last_byte(tmp_path):
    packed = bytearray(gzip.compress(NOISE, 0, mtime=0))  # stored blocks: bytes as they are
    first = int.from_bytes(packed[11:13], "little")
    assert first < len(NOISE)
    packed[15 + first + 1] ^= 0xFF  # the length of the second block
    content, truncated_at, notes = read_with_state(write(tmp_path / "a.gz", packed))
    assert content == NOISE[:first]
    assert truncated_at == first
    assert "damaged near packed byte" in notes[0]


def test_a_wrong_checksum_is_noted_and_later_members_are_read(tmp_path):
    first = bytearray(gzip.compress(b"[1,"))
    first[-8] ^= 1
    content, truncated_at, notes = read_with_state(
        write(tmp_path / "a.gz", first + gzip.compress(b"2]"))
    )
    assert content == b"[1,2]"
    assert truncated_at is None
    assert notes == ["a gzip checksum does not match: the content may be damaged"]


def test_padding_and_a_foreign_tail_are_ignored_and_noted(tmp_path):
    packed = gzip.compress(JSON) + b"\0" * 100_000
    content, _, notes = read_with_state(write(tmp_path / "a.json.gz", packed))
    assert content == JSON
    assert notes == ["100,000 NUL bytes of padding after gzip data were ignored"]
    content, _, notes = read_with_state(write(tmp_path / "b.json.gz", packed + b"tail"))
    assert content == JSON
    assert notes[1] == "4 bytes after the end of the gzip data were ignored"
    both = packed + gzip.compress(b" ")
    assert read_with_state(write(tmp_path / "c.json.gz", both))[0] == JSON + b" "


def test_many_small_gzip_members_are_read(tmp_path):
    packed = b"".join(gzip.compress(b"%d," % i, 1) for i in range(20_000))
    content, _, notes = read_with_state(write(tmp_path / "a.json.gz", packed))
    assert content == b"".join(b"%d," % i for i in range(20_000))
    assert notes == []


@pytest.mark.parametrize(
    "content",
    [b"", gzip.compress(b"", mtime=0), gzip.compress(JSON, mtime=0)[:12]],
    ids=["empty", "gzip of nothing", "gzip cut in its head"],
)
def test_an_empty_file_is_an_error(content, tmp_path):
    with pytest.raises(LoadError, match=r"a\.json.*empty.*get the file again"):
        read_with_state(write(tmp_path / "a.json", content))


@pytest.mark.parametrize(
    ("content", "packing"),
    [
        (b"Rar!\x1a\x07", "rar"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
    ],
)  # fmt: skip
def test_other_packings_are_refused_by_name(content, packing, tmp_path):
    with pytest.raises(LoadError, match=f"packed with {packing}, which cannot be read"):
        read_with_state(write(tmp_path / "a.json", content + b"1234567"))


@pytest.mark.parametrize("packing", ["", "gz"])
def test_a_truncated_tar_gives_the_members_before(packing, tmp_path):
    members = {f"rank{i}.json": NOISE[: 50_000 + i] for i in range(4)}
    whole = tar_of(members, packing)
    found = survey(write(tmp_path / "a.tar", whole[: int(len(whole) * 0.6)]))
    contents = [stream.read() for _, stream in streams(found.sources)]
    assert [s.member for s in found.sources] == ["rank0.json", "rank1.json", "rank2.json"]
    assert contents[:2] == list(members.values())[:2]
    assert members["rank2.json"].startswith(contents[2])
    with found.sources[2].open() as stream:
        stream.read()
        assert stream.truncated_at == len(contents[2]) < 50_002
        assert any("too early" in note for note in stream.notes)
    assert [r.finding for r in found.remarks] == ["truncated"]
    assert "after 3 members" in found.remarks[0].what


def test_a_damaged_tar_header_is_told(tmp_path):
    whole = bytearray(tar_of({"rank0.json": JSON, "rank1.json": JSON, "rank2.json": JSON}))
    whole[whole.index(b"rank1.json") + 3] ^= 0xFF
    found = survey(write(tmp_path / "a.tar", whole))
    assert [s.member for s in found.sources] == ["rank0.json"]
    assert found.remarks[0].what == "the archive has a damaged header after 1 member"


def test_a_truncated_zip_says_what_to_do(tmp_path):
    path = write(tmp_path / "a.zip", PACKED["deflated.zip"][:-30])
    with pytest.raises(LoadError, match=r"a\.zip: the zip archive has no readable directory"):
        sources(path)


def test_a_zip_member_with_wrong_content_is_noted(tmp_path):
    whole = bytearray(zip_of({"rank0.json": JSON}, zipfile.ZIP_STORED))
    whole[500] ^= 1
    _, _, notes = read_with_state(write(tmp_path / "a.zip", whole))
    assert notes == ["the zip checksum does not match: the content may be damaged"]


# --- hostile archives -----------------------------------------------------------------------


def test_members_that_lead_out_of_an_archive_are_refused(tmp_path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("/etc/rank0.json", "../rank1.json", "a/../../rank2.json", "fine.json"):
            info = tarfile.TarInfo(name)
            info.size = len(JSON)
            archive.addfile(info, io.BytesIO(JSON))
        for name, kind in (
            ("link.json", tarfile.SYMTYPE), ("hard.json", tarfile.LNKTYPE),
            ("device.json", tarfile.CHRTYPE), ("pipe.json", tarfile.FIFOTYPE),
        ):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    found = survey(write(tmp_path / "a.tar", file.getvalue()))
    assert [s.member for s in found.sources] == ["fine.json"]
    assert {r.finding for r in found.remarks} == {"dropped"}
    assert [r.what for r in found.remarks[:3]] == ["has a path that leads out of the archive"] * 3
    assert [r.what.split(",")[0] for r in found.remarks[3:5]] == [
        "is a symbolic link",
        "is a hard link",
    ]
    assert len(found.remarks) == 7
    assert list(tmp_path.iterdir()) == [tmp_path / "a.tar"]


def test_zip_members_that_cannot_be_trusted_are_refused(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("fine.json", JSON)
        archive.writestr("../up.json", JSON)
        archive.writestr("C:/windows.json", JSON)
        archive.writestr("lzma.json", JSON, zipfile.ZIP_LZMA)
        link = zipfile.ZipInfo("link.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        locked = zipfile.ZipInfo("locked.json")
        archive.writestr(locked, JSON)
    content = bytearray(file.getvalue())
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(b"locked.json"))
    content[at + 8] |= 1  # the flag for encryption
    found = survey(write(tmp_path / "a.zip", content))
    assert [s.member for s in found.sources] == ["fine.json"]
    told = {r.source.rsplit("!")[-1]: r.what for r in found.remarks}
    assert "leads out" in told["../up.json"]
    assert "leads out" in told["C:/windows.json"]
    assert "zip method 14" in told["lzma.json"]
    assert "symbolic link" in told["link.json"]
    assert "encrypted" in told["locked.json"]


def test_names_cannot_smuggle_control_characters(tmp_path):
    path = write(tmp_path / "a.tar", tar_of({"rank\x1b[31m0\n.json": JSON}))
    assert sources(path)[0].member == r"rank\x1b[31m0\n.json"


def test_the_last_of_several_members_with_one_name_counts(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for content in (b"[1]", b"[2]"):
            info = tarfile.TarInfo("rank0.json")
            info.size = 3
            archive.addfile(info, io.BytesIO(content))
    found = survey(path)
    assert [read(s) for s in found.sources] == [b"[2]"]
    assert found.remarks[0].what == "is replaced by a later member of the same name"


@pytest.mark.parametrize("pack", [gzip.compress, lambda c: tar_of({"a.json": c}, "gz"),
                                  lambda c: zip_of({"a.json": c}),
                                  lambda c: zip_of({"a.json.gz": gzip.compress(c)})])  # fmt: skip
def test_a_decompression_bomb_is_refused_unless_trusted(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(_stream, "_ALWAYS_ALLOWED_BYTES", 1 << 20)
    path = write(tmp_path / "a.json", pack(b"[" + b" " * (20 << 20) + b"]"))
    with pytest.raises(LoadError, match=r"unpacks to more than .*expansion_limit=None"):
        read(sources(path)[0])
    assert len(read(sources(path, expansion_limit=None)[0])) == (20 << 20) + 2


def test_a_header_that_claims_gigabytes_costs_no_memory(tmp_path):
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    whole = tar_of({"rank0.json": JSON})
    end = 512 + len(JSON) + -len(JSON) % 512
    content = whole[:end] + info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 10240
    found = survey(write(tmp_path / "a.tar", content))
    assert [s.member for s in found.sources] == ["rank0.json"]
    assert "a header claims 8,589,934,592 bytes" in found.remarks[0].what


def test_a_header_that_points_backwards_ends_the_archive(tmp_path):
    info = tarfile.TarInfo("evil.json")
    info.size = -1024
    header = info.tobuf(tarfile.GNU_FORMAT)
    content = header + header + b"\0" * 10240
    with pytest.raises(LoadError, match="no trace file found"):
        sources(write(tmp_path / "a.tar", content))


HOSTILE = {
    "a.tar": tar_of({"rank0.json": JSON[:3000], "rank1.json": JSON[:9000]}),
    "a.tar.gz": tar_of({"rank0.json": JSON[:3000], "rank1.json": JSON[:9000]}, "gz"),
    "a.zip": zip_of({"rank0.json": JSON[:3000], "rank1.json.gz": gzip.compress(JSON)}),
    "a.json.gz": gzip.compress(JSON),
}


@pytest.mark.parametrize("name", HOSTILE)
@given(data=st.data())
def test_no_damage_raises_anything_but_a_load_error(name, data, tmp_path_factory):
    content = bytearray(HOSTILE[name])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(1, len(content)))]
    path = write(tmp_path_factory.mktemp("hostile") / name, content)
    try:
        for _, stream in streams(sources(path)):
            assert len(stream.read()) <= 10 * len(JSON)
    except LoadError as error:
        message = str(error)
        if name not in message:
            raise


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_cut_in_any_packing_gives_what_is_readable_and_tells(ending, share, tmp_path):
    packed = PACK[ending](NOISE)
    (source,) = sources(write(tmp_path / "a.json", packed[: int(len(packed) * share)]))
    try:
        stream = source.open()
    except LoadError:
        return  # nothing of it can be read
    with stream:
        content = stream.read()
        assert NOISE.startswith(content)
        assert stream.truncated_at == len(content)
        assert "data" in stream.notes[0]


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "lz4"])  # Arrow's zstd has no checksum
def test_a_changed_byte_in_any_packing_never_passes_unnoticed(ending, tmp_path):
    packed = bytearray(PACK[ending](JSON))
    packed[len(packed) // 2] ^= 0x10
    path = write(tmp_path / "a.json", bytes(packed))
    with contextlib.suppress(LoadError), sources(path)[0].open() as stream:
        content = stream.read()
        assert stream.is_damaged or content == JSON


@pytest.mark.parametrize("ending", PACK)
def test_a_bomb_in_any_packing_is_refused(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(_stream, "_ALWAYS_ALLOWED_BYTES", 1 << 20)
    path = write(tmp_path / "a.json", PACK[ending](b"[" + b" " * (20 << 20) + b"]"))
    monkeypatch.setattr("workbench.load._files.archive.EXPANSION_LIMIT", 1.0)
    with pytest.raises(LoadError, match="unpacks to more than"):
        read(sources(path, expansion_limit=1.0)[0])


def test_a_text_that_begins_like_bzip2_is_text(tmp_path):
    assert read(sources(write(tmp_path / "a.json", b"BZh9 is a name"))[0]) == b"BZh9 is a name"
