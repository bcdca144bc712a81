"""A table of one's own that ends in the middle of a row is refused, or says what it lacks."""

from functools import partial

import pandas as pd
import pytest

from claims import _kernel_times
from claims._iterations import iterations
from claims._kernel_times import gemm_times
from workbench import load
from workbench.errors import LoadError
from workbench.tables import HARMLESS

ITERATIONS = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
    + "".join(f"8,64,1,4096,32,32,2048,4,2,1,{4096 + row}.5\n" for row in range(3))
)
CAUSES = "cause,category,failure_count\nFaulty GPU,gpu,148\nNetwork switch,network,35\n"
TABLES = (
    "table,row_count,dim_count,pooling_ratio,element_bytes\na,1000,64,1.5,4\nb,2000,128,20,16\n"
)
GEMMS = "gpu,dtype,m,n,k,time_us\nH100,half,64,64,64,4096.5\nH100,half,128,64,64,8192.5\n"
COLLECTIVES = (
    "gpu,collective,rank_count,size_bytes,time_us\n"
    "H100,all-reduce,8,1024,40.5\nH100,all-reduce,8,2048,81.5\n"
)


READERS = {
    "iterations": (iterations, ITERATIONS, "dur_ns"),
    "causes": (load.cause_counts, CAUSES, "failure_count"),
    "embedding tables": (load.embedding_tables, TABLES, "element_bytes"),
    "matrix products": (partial(gemm_times, dtypes=["half"]), GEMMS, "dur_ns"),
    "collectives": (_kernel_times.collective_times, COLLECTIVES, "dur_ns"),
}


def is_told(table):
    noted = pd.DataFrame(table.attrs.get("quality", {}), columns=["finding"])["finding"]
    return bool(table.attrs.get("left_out")) or bool({*noted} - {*HARMLESS})


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_a_cut_in_a_row_never_makes_another_number_and_is_told_or_refused(name, tmp_path):
    read, text, column = READERS[name]
    path = tmp_path / "table.csv"
    path.write_text(text)
    whole = read(path)
    assert not is_told(whole)
    known, silent = set(whole[column]), []
    for end in range(text.index("\n") + 2, len(text)):
        path.write_text(text[:end])
        if text[end - 1] == "\n":
            continue
        try:
            table = read(path)
        except LoadError:
            continue
        if not is_told(table) or not set(table[column].dropna()) <= known:
            silent.append(text[:end][-30:])
    assert silent == []


@pytest.mark.parametrize(
    "name", [name for name in READERS if name not in ("iterations", "collectives")]
)
def test_a_number_at_the_end_of_a_small_table_is_refused_with_its_line(name, tmp_path):
    read, text, _ = READERS[name]
    path = tmp_path / "table.csv"
    path.write_text(text[:-1])
    line = text.count("\n")
    with pytest.raises(LoadError, match=rf"table\.csv, line {line}: the last row has no line end"):
        read(path)
    path.write_text(text[:-1] + "\r\n")
    assert len(read(path))


def test_iterations_without_a_line_end_lack_their_last_row_and_say_so(tmp_path):
    path = tmp_path / "iterations.csv"
    path.write_text(ITERATIONS[:-4])  # 4098.5 ms became 409
    table = iterations(path)
    assert (table["dur_ns"] / 1e6).tolist() == [4096.5, 4097.5]
    assert list(table.attrs["left_out"].values()) == [1]


@pytest.mark.parametrize("ending", ['"a note, quoted"', "a note", ""])
def test_a_row_whose_numbers_cannot_be_cut_is_kept_and_told(ending, tmp_path):
    path = tmp_path / "tables.csv"
    path.write_text(
        TABLES.replace("bytes\na", "bytes,note\na").replace("4\nb", "4,\nb")[:-1] + f",{ending}"
    )
    table = load.embedding_tables(path)
    assert table["element_bytes"].tolist() == [4, 16]
    assert table.attrs["left_out"] == {
        "the rest, if there is one, of a file that ends without a line end": 1
    }


def test_a_row_that_lacks_cells_after_a_closed_quote_is_refused(tmp_path):
    path = tmp_path / "causes.csv"
    path.write_text('cause,failure_count\nGPU,148\n"switch"')
    with pytest.raises(LoadError, match="line 3: the last row has no line end"):
        load.cause_counts(path)


def test_a_table_of_failures_without_a_line_end_lacks_its_last_row_and_says_so(tmp_path):
    path = tmp_path / "failures.csv"
    text = "time,cause\n2025-03-01T10:00:00Z,power supply\n2025-03-02T10:00:00Z,power supply\n"
    path.write_text(text)
    assert "truncated" not in set(load.failure_table(path).quality["finding"])
    path.write_text(text[:-1])
    log = load.failure_table(path)
    assert len(log.failures) == 1
    assert "truncated" in set(log.quality["finding"])


def test_a_sweep_of_which_only_a_part_of_the_header_is_left_is_refused(tmp_path):
    path = tmp_path / "A40+resnet18+gpu0.csv"
    path.write_text("start_time,window_name,elapsed_time,gpu0_energy,gp")
    with pytest.raises(LoadError, match="line 1: a last line without a line end"):
        load.power_sweeps(path)


@pytest.mark.parametrize("text", ["id,length\n1,512\n2,10", "length,id\n512,1\n1024,2"])
def test_quality_calls_a_last_row_without_a_line_end_truncated(text, tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text(text)
    quality = load.quality(path)
    assert quality.loc[quality["finding"] == "truncated", "count"].tolist() == [1]


@pytest.mark.parametrize("of", [list, tuple, iter])
def test_quality_takes_a_list_of_paths_as_the_other_doors_do(of, tmp_path):
    paths = [tmp_path / f"lengths{number}.csv" for number in range(2)]
    for path in paths:
        path.write_text("length\n512\n1024\n")
    log = tmp_path / "kern.log"
    log.write_text(
        "2025-03-01T10:00:00.000000+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x\n"
    )
    one_by_one = {tuple(row) for path in [*paths, log] for row in load.quality(path).to_numpy()}
    assert {tuple(row) for row in load.quality(of([*paths, log])).to_numpy()} == one_by_one


def test_quality_of_a_list_names_the_files_where_a_kind_cannot_be_read(tmp_path):
    lengths, power = tmp_path / "lengths.csv", tmp_path / "power.csv"
    lengths.write_text("length\n512\n")
    power.write_text("timestamp, index, power.draw [W]\n2026/03/02 10:00:00.000, 0, 600 W\n")
    quality = load.quality([lengths, power])
    lost = quality[quality["what"].str.contains("no file could be read of the")].iloc[0]
    assert lost["source"] == f"{lengths}, {power}"
