"""Measured iteration times: the public files first, then every refusal."""

import pytest

from claims._iterations import iterations
from workbench.errors import LoadError
from workbench.tables import ITERATIONS

HEAD = "gpu_count,global_batch_count,micro_batch_count,hidden,head_count,layer_count,"
HEAD += "sequence_tokens,tensor_parallel,data_parallel,pipeline_parallel,iteration_ms"
ROW = "8,16,2,1024,16,24,2048,2,2,2,372.160408"


@pytest.fixture
def write(tmp_path):
    def make(*lines, head=HEAD):
        path = tmp_path / "times.csv"
        path.write_text("\n".join([head, *lines]) + "\n")
        return path

    return make


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "rows", "least", "most"),
    [
        ("ground_truth_multi.csv", 109, 3_566_500_000, 66_632_500_000),
        ("ground_truth_single.csv", 1_440, 58_148_534, 1_949_864_466),
    ],
)
def test_reads_both_files_of_vtrain_byte_order_mark_and_all(real_data, name, rows, least, most):
    table = ITERATIONS.check(iterations(real_data("iterations-vtrain") / name))
    assert len(table) == rows
    assert (table["dur_ns"].min(), table["dur_ns"].max()) == (least, most)
    assert table["doubt"].isin(["", "measured more than once"]).all()
    assert table["source"].iloc[0] == f"{name}, line 2"


def test_reads_own_columns_and_takes_the_others_as_usual(write):
    row = iterations(write(ROW), gpu="H100", recompute="none").iloc[0]
    assert row["dur_ns"] == 372_160_408
    assert (row["ffn"], row["head_width"], row["gpu"]) == (4096, 64, "H100")
    head = f"{HEAD},gpu,recompute,is_gated,model,ffn"
    row = iterations(write(f"{ROW},A100,full,yes,tiny,2048", head=head)).iloc[0]
    assert (row["gpu"], row["recompute"], row["model"]) == ("A100", "full", "tiny")
    assert row["is_gated"]
    assert row["ffn"] == 2048


@pytest.mark.parametrize(
    ("row", "doubt"),
    [
        ("16,16,2,1024,16,24,2048,2,2,2,372", "TP x CP x PP x DP is not the number of GPUs"),
        ("8,15,2,1024,16,24,2048,2,2,2,372", "global batch does not divide by DP x micro-batch"),
        ("8,16,2,1024,16,23,2048,2,2,2,372", "layers do not divide by PP"),
        ("8,16,2,1024,15,24,2048,2,2,2,372", "heads do not divide by TP"),
    ],
)
def test_rows_that_contradict_themselves_say_so(write, row, doubt):
    table = iterations(write(ROW, row))
    assert table["doubt"].tolist() == ["", doubt]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ("8,16,2,1024,16,24,2048,2,2,2,", r"line 3: iteration_ms .* is missing, not a number"),
        ("8,16,2,1024,16,24,2048,2,2,2,-1", r"line 3: iteration_ms .* is '-1', not a number"),
        ("8,16,2,1024,16,24,2048,2,2,2,nan", r"line 3: iteration_ms"),
        ("8,16,2,1024,16,24,2048,2,2,2,OOM", r"line 3: iteration_ms .* is 'OOM'"),
        ("-1,16,2,1024,16,24,2048,2,2,2,3", r"line 3: gpu_count \(# GPUs\) is '-1'"),
        ("8,16,2,1024.5,16,24,2048,2,2,2,3", r"line 3: hidden .* is '1024.5', not a whole"),
    ],
)
def test_values_that_are_none_are_refused_with_file_line_and_column(write, cells, words):
    with pytest.raises(LoadError, match=rf"times.csv, {words}"):
        iterations(write(ROW, cells))


def test_other_tables_and_words_are_refused(write, tmp_path):
    with pytest.raises(LoadError, match=r"no column \['gpu_count \(or # GPUs\)'"):
        iterations(write("1,2", head="a,b"))
    with pytest.raises(LoadError, match=r"columns \['hidden'\] occur twice"):
        iterations(write(f"{ROW},1", head=f"{HEAD},hidden"))
    with pytest.raises(LoadError, match="recompute is 'some', not one of"):
        iterations(write(f"{ROW},some", head=f"{HEAD},recompute"))
    with pytest.raises(LoadError, match="is_gated is 'maybe', not yes or no"):
        iterations(write(f"{ROW},maybe", head=f"{HEAD},is_gated"))
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        iterations(tmp_path / "absent.csv")


def test_a_file_without_rows_is_an_empty_table(write):
    assert iterations(write()).empty
