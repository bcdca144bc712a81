"""Files that nothing here reads are named, with the command that makes them readable."""

import pickle
import sqlite3
import zipfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.load.traces.perfetto.perfetto_files import message
from workbench import load
from workbench.errors import LoadError
from workbench.load._files.wanted import appearance, identity
from workbench.load.kinds import told

MADE = {
    "report.pdf": (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
    "plot.png": (b"\x89PNG\r\n\x1a\n\0\0", "a picture"),
    "a.out": (b"\x7fELF\x02\x01" + bytes(60), "a program, library or core dump"),
    "train.py.txt": (b"#!/usr/bin/env python3\nprint(1)\n", "Python source"),
    "step.txt": (b"import torch\nfrom torch import nn\n", "Python source"),
    "index.txt": (b"<!DOCTYPE html>\n<html>", "a page in HTML"),
    "sheet.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(50), "save the sheet as CSV"),
    "run.nsys-rep": (bytes(range(200)), "nsys export --type sqlite"),
    "k.ncu-rep": (b"NVR\0" + bytes(range(200)), "ncu --import FILE --csv"),
    "x.pickle": (pickle.dumps({"segments": [], "device_traces": []}), "_memory_viz trace_plot"),
    "y.pickle": (pickle.dumps([1, 2]), "a pickle, which is not opened"),
    "lfs.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
    "system.journal": (b"LPKSHHRH" + bytes(80), "journalctl --file"),
    "trainer.json": (b'{\n  "best_metric": null,\n  "epoch": 1.0', "keeps no times"),
    "epochs.csv": (b"epoch,step,train_loss\n0,49,2.5\n", "without a column that is known"),
    "chart.csv": (b'"Step","run-1 - train/loss","run-1 - train/loss__MIN"\n', "a chart of Weights"),
    "tag.json": (b"[[1700000000.123, 0, 2.0], [17", "the page of TensorBoard downloads"),
    "memory.json": (b"[[-1, 1, 16384, 0], [-1, 1, 2", "a memory timeline of torch.profiler"),
    "rpd.json": (
        b'[ {}\n,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}\n',
        "rpd2tracing.py writes from a database of RPD Tracer",
    ),
    "rpd_object.json": (b'{"traceEvents": [ {}\n,{"name": "process_name"', "of RPD Tracer"),
    "1_kernel_trace.csv": (
        b'"Kind","Agent_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n',
        "rocprofv3 --output-format json",
    ),
    "results.csv": (b'"Index","KernelName","gpu-id","BeginNs","EndNs"\n', "that rocprofv3 or rocprof"),
    "a.npy": (b"\x93NUMPY\x01\0v\0", "numpy.savetxt"),
    "b.bin": (
        message((1, "name"), (2, 5), (3, b"\x08\x01"), (4, 7), (5, "x")), "protobuf of an unknown",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_the_file_is_named_with_what_to_do(tmp_path, name):
    content, words = MADE[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert words in appearance(content, name)
    with pytest.raises(LoadError) as raised:
        load.traces(path, progress=False)
    assert words in str(raised.value)


def test_a_workbook_is_no_archive_of_traces(tmp_path):
    path = tmp_path / "numbers.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", "<worksheet/>")
    with pytest.raises(LoadError, match="workbook of a spreadsheet program; save each sheet"):
        load.traces(path, progress=False)


def test_check_says_it_too(tmp_path):
    path = tmp_path / "report"
    path.write_bytes(MADE["report.pdf"][0])
    assert "a PDF document" in str(told(path).unknown)


def test_a_database_is_named_by_its_tables_and_their_names_run_nothing(tmp_path):
    path = tmp_path / "a.db"
    database = sqlite3.connect(path)
    for name in ("runs", "evil\x1b[31m", "losses"):
        database.execute(f'CREATE TABLE "{name}" (a)')
    database.commit()
    database.close()
    assert "a database of RPD Tracer" in identity(path.read_bytes(), "a.rpd")
    said = identity(path.read_bytes())
    assert "SQLite database with the tables evil, losses, runs" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "text",
    [b"2025-01-01 import failed\n", b"time,value\n1,2\n", b"\nplain words\n" * 9, b"\n" * 99],
)
def test_plain_text_is_only_shown(text):
    assert identity(text) == ""


@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_and_name_give_printable_text(head, name):
    assert identity(head, name).isprintable()


def test_a_parquet_table_is_no_protobuf_and_under_another_name_no_database(tmp_path):
    pd.DataFrame({"_step": [0, 1], "loss": [2.0, 1.0]}).to_parquet(tmp_path / "history.bin")
    assert "it is a Parquet table" in appearance((tmp_path / "history.bin").read_bytes())
    with pytest.raises(LoadError, match="is Parquet, but no trace of the workbench"):
        load.traces(tmp_path / "history.bin", progress=False)


def test_epochs_of_training_are_not_taken_for_the_times_of_power(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,2.25,\n1,149,2.0,1.5\n")
    files = told(path)
    assert not files.names
    assert "training metrics" in str(files.unknown[0])


@pytest.mark.parametrize("columns", ["Start_Timestamp,End_Timestamp", "BeginNs,EndNs"])
def test_kernels_as_csv_are_no_power_and_no_steps(tmp_path, columns):
    path = tmp_path / "41_kernel_trace.csv"
    path.write_text(f"Kind,Kernel_Name,{columns}\nKERNEL_DISPATCH,k,9000001000,9000081000\n" * 2)
    with pytest.raises(
        LoadError, match="rocprof writes as CSV; record again: rocprofv3 --output-format"
    ):
        load.quality(path)


@pytest.mark.parametrize(
    ("text", "tool", "way"),
    [
        ('{\n "meta": {"plugins": {}, "slurm": {"version": 1}},\n "jobs": [', "sacct", "--parsable2"),
        ('{"meta": {"Slurm": {"release": "22.05"}}, "jobs": []', "sacct", "--parsable2"),
        ('{"jobs": [{"account": "a", "derived_exit_code": {}', "sacct", "--parsable2"),
        ("[2026-02-01 10:00:20,341] [INFO] [Rank 0] step=10, skipped=0, lr=[1e-05]", "DeepSpeed",
         "tensorboard"),
        ("\nepoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=256.0", "DeepSpeed",
         "event files"),
        ('{"current_steps": 5, "total_steps": 2400, "loss": 1.9}\n', "LLaMA-Factory", "event files"),
        ("[rank0]:[titan] 2026-02-01 10:00:00,1 - root - INFO - step: 10  loss:  7.1  memory: 5GiB  "
         "tps: 100", "TorchTitan", "enable_tensorboard"),
        ("{'loss': 1.5, 'grad_norm': 1.0, 'epoch': 0.1}\n", "Transformers", "report_to"),
    ],
)  # fmt: skip
def test_logs_of_tools_that_are_not_read_are_named_with_the_way_out(text, tool, way):
    told = identity(text.encode(), "train.log")
    assert tool in told
    assert way in told
