"""The files of a recording: each is put in place when it is complete, so none is ever half."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench._writing import write_whole
from workbench.record._sampler import Values

KEY = b"workbench.recording"
VERSION = 1
ABOUT = "recording.json"
SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("entity", pa.dictionary(pa.int32(), pa.string())),
        ("power_w", pa.float64()),
        ("average_w", pa.float64()),
        ("instant_w", pa.float64()),
        ("energy_j", pa.float64()),
        ("limit_w", pa.float64()),
        ("clock_mhz", pa.float64()),
        ("busy_share", pa.float64()),
        ("temperature_c", pa.float64()),
        ("reasons", pa.int64()),
        ("power_violation_ns", pa.int64()),
    ]
)


class Writer:
    """Keeps readings until a part is full, then writes it as a file of its own."""

    def __init__(
        self, folder: Path, about: Mapping[str, Any], *, part_rows: int, part_s: float = 60.0
    ) -> None:
        self._folder = folder
        self._about = about
        self._part_rows, self._part_s = part_rows, part_s
        self._begun_s = 0.0
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self.part_count = 0
        self.row_count = 0
        self.written_count = 0

    def add(self, time_ns: int, rows: Sequence[tuple[str, Values]]) -> None:
        """Keep the readings of one moment."""
        if not self._columns["time_ns"]:
            self._begun_s = time.monotonic()
        for entity, values in rows:
            row = {**values, "time_ns": time_ns, "entity": entity}
            for name, column in self._columns.items():
                column.append(row.get(name))
        self.row_count += len(rows)
        is_full = len(self._columns["time_ns"]) >= self._part_rows
        if is_full or time.monotonic() - self._begun_s >= self._part_s:
            self.flush()

    def flush(self) -> None:
        """Write what is kept as the next part."""
        if not self._columns["time_ns"]:
            return
        arrays = [pa.array(self._columns[field.name], field.type) for field in SCHEMA]
        note = json.dumps({"version": VERSION, **self._about}).encode()
        table = pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata({KEY: note}))
        path = self._folder / f"power_{self.part_count + 1:04d}.parquet"
        write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))
        self.part_count += 1
        self.written_count += table.num_rows
        self._columns = {name: [] for name in SCHEMA.names}


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write what is known of the recording, for people and for loaders."""
    text = json.dumps({"workbench_recording": VERSION, **about}, indent=2) + "\n"
    write_whole(folder / ABOUT, lambda file: file.write(text.encode()))
