"""Timers of Megatron-LM logs, in the three forms that it prints, and among other lines."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import load
from workbench.errors import LoadError, WorkbenchError

ITERATION = (
    " [2026-03-01 10:00:{:02d}] iteration {:8d}/     100 | consumed samples:          160 | "
    "elapsed time per iteration (ms): 412.7 | learning rate: 1.0E-05 | lm loss: 9.1 |"
)


def dotted(name):
    """Pad a name as Megatron-LM does."""
    return (name + " ").ljust(48, ".")


def by_rank(times):
    """Write a block with a time for every rank, zeros left out."""
    lines = ["times across ranks (ms):"]
    for name, ranks in times.items():
        lines.append(f"  {name}:")
        lines += [f"     rank {rank:2d}: {ms:.2f}" for rank, ms in ranks.items()]
    return lines


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(table):
    return [
        tuple(None if value is None or value != value else value for value in row)
        for row in table.astype(object).where(table.notna(), None).itertuples(index=False)
    ]


def test_times_by_rank_are_read_with_the_iteration_before_them(tmp_path):
    log = [
        *by_rank({"model-and-optimizer-setup": {0: 1345.37}}),
        ITERATION.format(7, 10),
        *by_rank({"forward-compute": {0: 120.5, 1: 118.25}, "forward-recv": {1: 3.5}}),
        ITERATION.format(9, 20),
        *by_rank({"forward-compute": {0: 121.0, 1: 119.0}}),
    ]
    assert rows(load.megatron_timers(write(tmp_path / "log.txt", log))) == [
        (0, None, "model-and-optimizer-setup", "rank", 0, 1_345_370_000),
        (1, 10, "forward-compute", "rank", 0, 120_500_000),
        (1, 10, "forward-compute", "rank", 1, 118_250_000),
        (1, 10, "forward-recv", "rank", 1, 3_500_000),
        (2, 20, "forward-compute", "rank", 0, 121_000_000),
        (2, 20, "forward-compute", "rank", 1, 119_000_000),
    ]


def test_extremes_name_no_rank(tmp_path):
    log = [
        ITERATION.format(7, 10),
        "(min, max) time across ranks (ms):",
        f"    {dotted('forward-backward')}: (8384.83, 8385.57)",
        " [ t 1/1, p 1/1 ] (min, max) time across ranks (ms): save-checkpoint ....: (2.5, 3.5)",
        "max time across ranks (ms):",
        f"    {dotted('optimizer')}: 55.61",
    ]
    assert rows(load.megatron_timers(write(tmp_path / "log.txt", log))) == [
        (0, 10, "forward-backward", "min", None, 8_384_830_000),
        (0, 10, "forward-backward", "max", None, 8_385_570_000),
        (1, 10, "save-checkpoint", "min", None, 2_500_000),
        (1, 10, "save-checkpoint", "max", None, 3_500_000),
        (2, 10, "optimizer", "max", None, 55_610_000),
    ]


def test_lines_of_other_programs_within_a_block_hide_nothing(tmp_path):
    block = by_rank({"forward-compute": {0: 1.0, 1: 2.0}})
    noise = ["[rank3]:[W1] NCCL_DEBUG rank 3: 4", "  warning: slow disk", "rank 0 of 4: 7.0 GB"]
    log = [ITERATION.format(7, 10), *[line for at, entry in enumerate(block)
                                      for line in (entry, noise[at % 3])]]  # fmt: skip
    found = load.megatron_timers(write(tmp_path / "log.txt", log))
    assert found["dur_ns"].tolist() == [1_000_000, 2_000_000]


@pytest.mark.parametrize("task", ["15: ", "[default7]:", "[rank7]: "])
def test_the_task_that_launchers_put_before_lines_does_not_matter(tmp_path, task):
    block = [ITERATION.format(7, 10), *by_rank({"optimizer": {0: 1.0, 12: 2.0}})]
    bare = load.megatron_timers(write(tmp_path / "a.txt", block))
    labelled = load.megatron_timers(write(tmp_path / "b.txt", [task + line for line in block]))
    assert labelled.equals(bare)
    assert labelled["rank"].tolist() == [0, 12]


def test_a_last_line_that_may_be_cut_is_dropped_and_counted(tmp_path):
    lines = [ITERATION.format(7, 10), *by_rank({"optimizer": {0: 100.0, 1: 123.45}})]
    file = tmp_path / "log.txt"
    file.write_text("\n".join(lines)[:-3])  # 123.45 would be read as 123
    found = load.megatron_timers(file)
    assert found["rank"].tolist() == [0]
    assert sum(found.attrs["left_out"].values()) == 1


def test_a_compressed_log_is_the_same(tmp_path):
    lines = "\n".join([ITERATION.format(7, 10), *by_rank({"optimizer": {0: 1.0}})]) + "\n"
    (tmp_path / "log.gz").write_bytes(gzip.compress(lines.encode()))
    assert len(load.megatron_timers(tmp_path / "log.gz")) == 1


def test_a_log_without_timers_says_how_to_get_them(tmp_path):
    file = write(tmp_path / "log.txt", [ITERATION.format(7, 10), "  hidden_size ......: 4096"])
    with pytest.raises(LoadError, match=r"log.txt: no timers.*--timing-log-option all"):
        load.megatron_timers(file)


def test_two_times_of_one_rank_in_a_block_are_refused(tmp_path):
    log = [*by_rank({"optimizer": {0: 1.0}}), "     rank  0: 2.00"]
    with pytest.raises(LoadError, match=r"line 4: timer 'optimizer' has a second time for rank 0"):
        load.megatron_timers(write(tmp_path / "log.txt", log))


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        load.megatron_timers(tmp_path / "absent.txt")


NAMES = st.sampled_from(["forward-compute", "backward-send-forward-recv", "optimizer", "x"])
TIMES = st.floats(0.01, 1e6).map(lambda ms: round(ms, 2))
BLOCKS = st.lists(
    st.dictionaries(NAMES, st.dictionaries(st.integers(0, 2_000), TIMES, min_size=1), min_size=1),
    min_size=1, max_size=4,
)  # fmt: skip


@given(blocks=BLOCKS)
def test_whatever_is_printed_is_read(tmp_path_factory, blocks):
    lines = [line for n, block in enumerate(blocks)
             for line in (ITERATION.format(n, n), *by_rank(block))]  # fmt: skip
    found = load.megatron_timers(write(tmp_path_factory.mktemp("logs") / "log.txt", lines))
    printed = [
        (number, name, rank, round(ms * 1e6))
        for number, block in enumerate(blocks)
        for name, ranks in block.items()
        for rank, ms in ranks.items()
    ]
    read = found[["position", "timer", "rank", "dur_ns"]].itertuples(index=False, name=None)
    assert [(*row[:3], row[3]) for row in read] == printed


@pytest.mark.parametrize("time", ["9" * 400, "9" * 400 + ".5", "99999999999999999999.0"])
def test_a_time_that_no_table_holds_is_refused_with_its_row(tmp_path, time):
    block = "(min, max) time across ranks (ms):\n    forward ....: (1.5, {})\n"
    path = tmp_path / "timers.log"
    path.write_text(block.format("2.5") + block.format(time))
    with pytest.raises(WorkbenchError, match=r"'dur_ns' of table 'megatron_timers' holds .* row 3"):
        load.megatron_timers(path)


def test_a_packed_log_whose_sum_is_wrong_says_so(tmp_path):
    block = "(min, max) time across ranks (ms):\n    forward ....: (1.5, 2.5)\n"
    packed = bytearray(gzip.compress(block.encode() * 9))
    packed[-8] ^= 1
    path = tmp_path / "timers.log.gz"
    path.write_bytes(packed)
    assert load.megatron_timers(path).attrs["left_out"]


def test_a_count_of_more_digits_than_python_reads_is_refused_by_the_name_of_the_file(tmp_path):
    path = tmp_path / "timers.log"
    path.write_text(f" iteration {'9' * 5000}/ 9 |\n(min, max) time across ranks (ms):\n")
    with pytest.raises(LoadError, match=r"timers\.log: cannot be read as timers"):
        load.megatron_timers(path)
