"""Small exports of Nsight Systems, made table by table."""

import sqlite3
from pathlib import Path

import pandas as pd

GPU = "start end deviceId streamId correlationId globalPid"
KERNEL = f"{GPU} demangledName shortName"
CALL = "start end globalTid correlationId nameId"
NVTX = "start end globalTid eventType text textId"
K = "CUPTI_ACTIVITY_KIND_"


def pid(number):
    """Return the globalPid that Nsight Systems writes for a process."""
    return 0x1000000000000 | number << 24


NAMES = {
    1: "cudaLaunchKernel_v7000", 2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    3: "void gemm_kernel<float>(float*)", 4: "gemm_kernel", 5: "cuLaunchKernelEx",
    6: "step 8", 7: "forward",
}  # fmt: skip


def tables(process=101):
    """Return the tables of one process: two kernels, a copy, a memset, launches and steps."""
    key, thread = pid(process), pid(process) | process
    return {
        "StringIds": ("id value", list(NAMES.items())),
        f"{K}KERNEL": (KERNEL, [(100, 300, 0, 7, 1, key, 3, 4), (300, 400, 0, 13, 2, key, 2, 2)]),
        f"{K}MEMCPY": (f"{GPU} copyKind bytes", [(20, 60, 0, 7, 3, key, 1, 4096)]),
        f"{K}MEMSET": (f"{GPU} bytes", [(62, 70, 0, 7, 4, key, 512)]),
        f"{K}RUNTIME": (
            CALL,
            [(10, 15, thread, 3, 1), (16, 18, thread, 4, 1), (90, 95, thread, 1, 1),
             (120, 125, thread, 2, 5)],
        ),
        "NVTX_EVENTS": (
            NVTX,
            [(5, 80, thread, 59, "step 7", None), (85, 420, thread, 59, None, 6),
             (88, 130, thread, 59, "aten::mm, seq = 3, op_id = 12", None),
             (89, 128, thread, 60, None, 7), (95, None, thread, 34, "loss", None),
             (1, None, thread, 75, "NCCL", None), (130, None, thread, 59, "open", None)],
        ),
        "TARGET_INFO_GPU": (
            "id name totalMemory smCount computeMajor computeMinor",
            [(0, "NVIDIA H100 80GB HBM3", 85_000_000_000, 132, 9, 0)],
        ),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(1_779_630_014_975_716_426,)]),
    }  # fmt: skip


def write(path, content):
    """Write tables, given as columns and rows, into a database."""
    path = Path(path)
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    for name, (columns, rows) in content.items():
        quoted = ", ".join(f'"{column}"' for column in columns.split())
        database.execute(f'CREATE TABLE "{name}" ({quoted})')
        marks = ", ".join("?" * len(columns.split()))
        database.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    database.commit()
    database.close()
    return path


def write_parquet(folder, content):
    """Write tables as ``nsys export --type parquetdir`` does, a file each."""
    folder.mkdir()
    for name, (columns, rows) in content.items():
        frame = pd.DataFrame(rows, columns=columns.split())
        for column in frame.columns:
            if frame[column].dtype.kind == "f":
                frame[column] = frame[column].astype("Int64")
        frame.to_parquet(folder / f"{name}.parquet")
    return folder


def two_processes(*, first=0, second=1):
    """Two processes on one node; correlation ids are the same in both."""
    content, other = tables(101), tables(102)
    for name in (f"{K}KERNEL", f"{K}MEMCPY", f"{K}MEMSET"):
        rows = [(*row[:2], first, *row[3:]) for row in content[name][1]]
        rows += [(row[0] + 5, row[1] + 5, second, *row[3:]) for row in other[name][1]]
        content[name] = (content[name][0], rows)
    for name in (f"{K}RUNTIME", "NVTX_EVENTS"):
        content[name] = (content[name][0], [*content[name][1], *other[name][1]])
    content["OSRT_API"] = ("start end globalTid nameId", [(1, 9, pid(999) | 5, 7)])
    return content
