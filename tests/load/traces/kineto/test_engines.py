"""The two parsers give the same tables, whatever the bytes; and nothing but LoadError is raised."""

import json
import os
import random
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus, mutations
from tests.load.conftest import event
from workbench import load
from workbench._shared.compiled import check_source
from workbench.errors import LoadError
from workbench.load._files.archive import sources
from workbench.load._traces import kineto as kineto_format
from workbench.load._traces.kineto.blocks import ARRAY_END, Block
from workbench.load._traces.kineto.rank import slots
from workbench.load._traces.kineto.reader import kineto

pytestmark = pytest.mark.usefixtures("compiled_scanner")
NASTY = [
    "a", "aten::add", "C:\\Temp\\x.py(3): f", "é中\U0001f600", 'q"uote', "\\", "\\\\", '},{"ph":"X"',
    "\n\t", "", " ", "x" * 7, "x" * 8, "x" * 9, "y" * 300, '"' * 8, "\\" * 7 + "z", "],", "traceEvents",
    "void cutlass<{1,2}, [3]>", "\u2028", "\x7f", "null", "NaN", "ncclDevKernel", "ProfilerStep#3", "stream 7",
]  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=20))
integers = st.one_of(st.integers(-10, 10), st.integers(-(2**63), 2**64), st.integers(0, 10**30))
numbers = st.one_of(integers, st.floats(allow_nan=False, allow_infinity=False))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
times = st.one_of(
    st.integers(0, 2**52), st.decimals(0, 10**15, places=3).map(float), st.floats(0, 1e12), values
)
keys = st.sampled_from(
    [
        "stream",
        "correlation",
        "External id",
        "device",
        "bytes",
        "dtype",
        "Collective name",
        "Input Dims",
        "Seq",
    ]
)
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXXiMsfBEC")},
    optional={
        "cat": st.one_of(
            st.sampled_from(["kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "cuda_sync"]),
            texts,
            st.none(),
        ),
        "name": texts,
        "pid": st.one_of(st.integers(-5, 10**9), texts),
        "tid": st.one_of(st.integers(-5, 10**9), texts),
        "ts": times,
        "dur": times,
        "id": st.integers(),
        "bp": st.just("e"),
        "args": st.one_of(st.dictionaries(st.one_of(keys, texts), values, max_size=6), values),
        "zzz": values,
    },
)
spacings = st.sampled_from(
    [(", ", ": ", None), (",", ":", None), (",", ": ", 2), (" , ", " : ", 11)]
)
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


def outcome(path, engine):
    try:
        (source,) = sources(path)
        return kineto(source, engine=engine, args=("Input Dims",))
    except LoadError as error:
        return str(error)


def assert_alike(path):
    slow, fast = outcome(path, "python"), outcome(path, "compiled")
    if isinstance(slow, str) or isinstance(fast, str):
        assert slow == fast
        return
    for one, other in zip(slow, fast, strict=True):
        pd.testing.assert_frame_equal(one.events, other.events)
        pd.testing.assert_frame_equal(one.quality, other.quality)
        assert one.metadata == other.metadata


@quick
@given(st.lists(events, max_size=12), spacings, st.booleans(), st.data())
def test_any_valid_file_gives_the_same_tables(tmp_path, rows, spacing, ascii_only, data):
    comma, colon, indent = spacing
    text = json.dumps(rows, separators=(comma, colon), indent=indent, ensure_ascii=ascii_only)
    key = data.draw(st.sampled_from(["before", "after"]))
    other = f'"distributedInfo": {{"world_size": 2}}, "{key}": {json.dumps(data.draw(values))}'
    path = tmp_path / "t.json"
    body = (
        f'{{{other}, "traceEvents": {text}}}'
        if key == "before"
        else f'{{"traceEvents": {text}, {other}}}'
    )
    path.write_bytes(body.encode("utf-8", "surrogatepass"))
    assert_alike(path)
    assert not isinstance(outcome(path, "compiled"), str)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_cut_and_inserted_bytes_never_crash_a_parser(tmp_path, seed):
    chance = random.Random(seed)
    rows = [
        {"ph": "X", "cat": "kernel", "name": chance.choice(NASTY), "pid": 0, "tid": 7, "ts": i * 1.5,
         "dur": 1, "args": {"stream": 7, "correlation": i, "grid": [1, 2], "x": {"y": chance.choice(NASTY)}}}
        for i in range(30)
    ]  # fmt: skip
    raw = bytearray(json.dumps({"traceEvents": rows, "distributedInfo": {"rank": 0}}).encode())
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw))
        what = chance.random()
        if what < 0.4:
            raw[at] = chance.choice(b'"\\{}[],:\0\n\xff 0x')
        elif what < 0.7:
            del raw[at : at + chance.randint(1, 40)]
        else:
            raw[at:at] = bytes(chance.choices(b'"\\{}[],:\0\n\xff0', k=chance.randint(1, 5)))
    path = tmp_path / "t.json"
    path.write_bytes(raw)
    assert_alike(path)


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize("name", ["kineto-hta", "kineto-h100", "kineto-dlrm-8rank"])
def test_real_files_give_the_same_tables(real_data, name):
    for path in sorted(real_data(name).rglob("*.gz")):
        if "_et." in path.name or path.stat().st_size > 150_000:
            continue
        slow, fast = load.traces(path, engine="python"), load.traces(path, engine="compiled")
        for table in slow.__dataclass_fields__:
            pd.testing.assert_frame_equal(getattr(slow, table), getattr(fast, table))


@pytest.mark.long
def test_room_for_texts_grows_as_needed(trace_file):
    rows = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"op {i}" * (i % 40),
            "pid": i,
            "tid": None,
            "ts": i,
            "dur": 1,
        }
        for i in range(2000)
    ]
    assert_alike(trace_file(rows))


@pytest.mark.parametrize("path_taken", ["auto", "python"])
def test_without_the_compiled_scanner_python_reads(trace_file, monkeypatch, path_taken):
    path = trace_file([event("a", 1), event("b", 2)])
    expected = load.traces(path)
    without_scanner(monkeypatch)
    found = load.traces(path, engine=path_taken)
    for table in expected.__dataclass_fields__:
        pd.testing.assert_frame_equal(getattr(expected, table), getattr(found, table))


@pytest.mark.parametrize(
    "name", ["workbench.load._traces.kineto._scanner", "workbench.analyze._lib._sweep"]
)
def test_a_module_compiled_from_another_source_is_not_taken(name, compiled, tmp_path):
    digest = compiled(name).SOURCE_DIGEST
    source = tmp_path / "_module.c"
    check_source(source, digest)  # an installation may hold no source
    check_source(Path(*name.split(".")).with_suffix(".c"), digest)
    source.write_bytes(b"int main(void) { return 0; }")
    with pytest.raises(ImportError, match="has changed since it was compiled"):
        check_source(source, digest)


def test_asking_for_what_is_not_built_says_how_to_get_it(trace_file, monkeypatch):
    without_scanner(monkeypatch)
    with pytest.raises(
        ValueError,
        match="not built here, or from another source; install again where there are a C comp",
    ):
        load.traces(trace_file([event("a", 1)]), engine="compiled")


def scanner_of(module, rows=4):
    block = Block(slots(()), rows=rows)
    names = [
        (name.encode(), int(kind))
        for name, kind in zip(block.slots.names, block.slots.types, strict=True)
    ]
    return module.Scanner(names, block.arrays()), block


def test_input_may_end_at_any_byte(compiled_scanner):
    rows = [event("a\\n", 1.5, stream=7, x=[{"y": -1e3}, "é"], dtype="f"), event("b", 2)]
    data = json.dumps(rows, ensure_ascii=False).encode()
    for end in range(1, len(data) + 1):
        scanner, _ = scanner_of(compiled_scanner)
        # No byte behind the padding is the program's own, which a sanitizer would tell.
        position, status = scanner.scan(memoryview(data[:end] + bytes(64)), 1, end)
        assert position <= end
        assert (status == ARRAY_END, scanner.rows == 2) == (end == len(data), end >= len(data) - 1)


@pytest.mark.parametrize(
    ("data", "start", "length"),
    [
        (b"{}" + bytes(63), 0, 2), (b"{}" + bytes(63) + b"x", 0, 2), (bytes(64), 1, 0),
        (bytes(70), -1, 6), (bytes(10), 0, 0), (bytes(70), 0, 2**62),
    ],
)  # fmt: skip
def test_the_scanner_refuses_what_lies_outside_its_input(compiled_scanner, data, start, length):
    scanner, _ = scanner_of(compiled_scanner)
    with pytest.raises(ValueError, match="zeros behind it"):
        scanner.scan(memoryview(data), start, length)


def test_the_scanner_refuses_arrays_and_rows_that_do_not_fit(compiled_scanner):
    scanner, block = scanner_of(compiled_scanner)
    scanner.rows = 5
    with pytest.raises(ValueError, match="room for rows"):
        scanner.scan(memoryview(bytes(64)), 0, 0)
    names = [(b"stream", 0)]
    for at in range(len(block.arrays())):
        arrays = list(block.arrays())
        arrays[at] = arrays[at][..., :-1].copy()
        with pytest.raises(ValueError, match=r"array \d+ of the block"):
            compiled_scanner.Scanner(names, tuple(arrays))
    for bad in ([(b"a", 0), (b"a", 0)], [(b"a", 3)]):
        with pytest.raises(ValueError, match="distinct names and known types"):
            compiled_scanner.Scanner(bad, block.arrays())


def without_scanner(monkeypatch):
    monkeypatch.delitem(sys.modules, f"{kineto_format.__name__}._engine_compiled", raising=False)
    monkeypatch.setitem(sys.modules, f"{kineto_format.__name__}._scanner", None)


def mutated_files(count, folder):
    """Give damaged copies of the beginnings of every real and shipped trace."""
    seeds = [seed for seed in corpus.seeds() if seed.door == "traces" and is_event_list(seed.data)]
    for number in range(count):
        seed = seeds[number % len(seeds)]
        chance = random.Random(number)
        path = folder / f"{number}.json"
        path.write_bytes(mutations.mutated(chance, seed.data, is_json=True).data)
        yield path
        path.unlink()


def is_event_list(data):
    return b'"traceEvents"' in data or data.lstrip()[:1] == b"["


@pytest.mark.slow
def test_damaged_copies_of_real_files_give_the_same_tables(tmp_path, real_data):
    real_data("kineto-hta")
    for path in mutated_files(int(os.environ.get("MUTATED", "150")), tmp_path):
        assert_alike(path)
