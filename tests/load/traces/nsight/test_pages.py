"""Columns from the pages of a database: what SQL reads, or nothing."""

import sqlite3
from collections import defaultdict
from contextlib import closing
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.load._traces.kineto.blocks import MISSING
from workbench.load._traces.nsight.pages import Wanted, columns_of

INTEGERS = st.one_of(
    st.none(), st.integers(0, 1), st.integers(-200, 200), st.integers(-(1 << 63) + 1, (1 << 63) - 1)
)
TEXTS = st.one_of(
    st.none(),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
)
PLAIN = 'CREATE TABLE t (a INT, b TEXT, c, "d" INTEGER)'


def written(folder, rows, create=PLAIN, page_bytes=512):
    path = folder / "a.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page_bytes}")
        database.execute(create)
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        database.commit()
    return path


def by_pages(path):
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()
    lookup = defaultdict()
    lookup.default_factory = lookup.__len__
    read = columns_of(path, root, Wanted([0, 2, 3], {1: lookup.__getitem__}))
    if read is None:
        return None
    values = list(lookup)
    texts = [values[code] for code in read[1]]
    return list(zip(read[0].tolist(), texts, read[2].tolist(), read[3].tolist(), strict=True))


def by_sql(path):
    with closing(sqlite3.connect(path)) as database:
        database.text_factory = bytes
        columns = [f'ifnull("{name}", {MISSING})' for name in "acd"]
        return database.execute(f"SELECT {columns[0]}, b, {columns[1]}, {columns[2]} FROM t").fetchall()  # fmt: skip


@given(st.lists(st.tuples(INTEGERS, TEXTS, INTEGERS, INTEGERS), max_size=60))
def test_pages_hold_what_sql_reads(tmp_path_factory, rows):
    path = written(tmp_path_factory.mktemp("plain"), rows)
    assert by_pages(path) == by_sql(path)


@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
def test_a_table_of_several_levels_keeps_its_order_after_deletes_and_inserts(tmp_path, page_bytes):
    rows = [(n, f"text {n % 7}", -n, n << 40) for n in range(20_000)]
    path = written(tmp_path, rows, page_bytes=page_bytes)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM t WHERE rowid % 3 = 1 OR rowid BETWEEN 500 AND 4000")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows[:900])
        database.commit()
    assert by_pages(path) == by_sql(path)


@pytest.mark.parametrize(
    "row",
    [
        (1.5, "x", 1, 1), (1, "x", "text", 1), (1, b"blob", 1, 1), (1, "x" * 500, 1, 1),
        (1, "a\0b", 1, 1), (1, 5.0, b"", 1),
    ],
)  # fmt: skip
def test_a_value_that_is_not_plain_leaves_the_table_to_sql(tmp_path, row):
    create = PLAIN.replace("b TEXT", "b")
    assert by_pages(written(tmp_path, [(1, "x", 2, 3), row], create)) is None


def test_a_column_that_rows_do_not_have_yet_leaves_the_table_to_sql(tmp_path):
    path = written(tmp_path, [(1, "x", 2, 3)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE t DROP COLUMN d")
        database.execute("ALTER TABLE t ADD COLUMN d DEFAULT 9")
    assert by_pages(path) is None
    assert by_sql(path) == [(1, b"x", 2, 9)]


@pytest.mark.long
def test_damaged_pages_give_nothing_or_numbers_and_no_crash(tmp_path):
    path = written(tmp_path, [(n, f"text {n}", n << 30, None) for n in range(300)])
    whole = path.read_bytes()
    for number in range(400):
        rng, damaged = Random(number), bytearray(whole)
        for _ in range(rng.choice((1, 3, 30))):
            # The schema stays readable.
            damaged[rng.randrange(512, len(damaged))] = rng.choice((0, 1, 5, 13, 127, 128, 255))
        path.write_bytes(bytes(damaged[: rng.choice((len(damaged), len(damaged) - 700))]))
        read = columns_of(path, 2, Wanted([0, 2], {}))
        assert read is None or read[0].dtype == np.int64
