"""Record a bundled set in ``data/SOURCES.csv``, for those who add data to the repository.

``python -m workbench.datasets._sources SET LICENCE ORIGIN`` lists every file of
``data/SET`` with its size and checksum; earlier rows of the set are replaced.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from pathlib import Path

from workbench.datasets._catalogue import data_folder


def record(data: Path, name: str, *, licence: str, origin: str) -> None:
    """Write the rows of one set into the source list of a data folder."""
    path = data / "SOURCES.csv"
    with path.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.reader(stream) if row[0] != name]
    for file in sorted(file for file in (data / name).rglob("*") if file.is_file()):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        inside = file.relative_to(data / name).as_posix()
        rows.append([name, inside, str(len(content)), digest, licence, origin])
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    record(data_folder(), sys.argv[1], licence=sys.argv[2], origin=sys.argv[3])
