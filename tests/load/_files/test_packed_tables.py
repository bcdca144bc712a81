"""Readers of one named file open what every other reader opens, and tell where it is cut."""

import bz2
import gzip
import lzma

import pandas as pd
import pytest

from claims import _kernel_times
from workbench import load
from workbench.errors import LoadError

PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def write(path, content):
    path.write_bytes(content)
    return path


READERS = {
    "lengths.csv": (b"length\n5\n6\n", load.document_lengths),
    "lengths.json": (b"[5, 6]", load.document_lengths),
    "tables.csv": (
        b"table,row_count,dim_count,pooling_ratio,element_bytes\na,9,4,1,4\n",
        load.embedding_tables,
    ),
    "causes.csv": (b"cause,failure_count\nGPU,3\n", load.cause_counts),
    "op.csv": (
        b"op,ngpu,dtype,size_bytes,t_us_out\nall_reduce,8,half,1024,10\n",
        lambda path: _kernel_times.collective_times(path, gpus=["H100"]),
    ),
    "job.csv": (
        b"dp_rank,stage,step,optype,start_ts,duration,seq_id,mb_id,gmc\n"
        b"0,0,1,forward-compute,0,1,0,0,0\n",
        load.job_operations,
    ),
}


@pytest.mark.parametrize("ending", PACK)
@pytest.mark.parametrize("name", READERS)
def test_readers_of_one_file_open_every_packing_and_tell_of_a_cut(name, ending, tmp_path):
    content, read_it = READERS[name]
    plain = read_it(write(tmp_path / name, content))
    packed = PACK[ending](content)
    path = write(tmp_path / f"{name}.{ending}", packed)
    pd.testing.assert_frame_equal(
        read_it(path).drop(columns="source", errors="ignore"),
        plain.drop(columns="source", errors="ignore"),
    )
    for keep in (len(packed) - 1, len(packed) - 9, len(packed) // 2, 12, 3):
        with pytest.raises(LoadError, match=rf"{name}\.{ending}"):
            read_it(write(path, packed[:keep]))
