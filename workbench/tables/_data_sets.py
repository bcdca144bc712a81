"""Data sets by name."""

from __future__ import annotations

from workbench.tables._table import Column, Table

DATASETS = Table(
    "datasets",
    "One row per data set that the workbench knows by name.",
    {
        "dataset": Column("str", "name to ask for"),
        "synthetic": Column("bool", "made by a generator, not measured"),
        "place": Column("str", "bundled, mirror, cache or not at hand"),
        "file_count": Column("int64", "files of the set", lower=0),
        "size_bytes": Column("int64", "their size together", lower=0),
        "licence": Column("str", "licence of the files"),
        "about": Column("str", "what it is"),
        "citation": Column("str", "whom to cite"),
        "origin": Column("str", "where it comes from: repository and commit, or the generator"),
    },
)

DATASET_FILES = Table(
    "dataset_files",
    "One row per file of a data set, compared with its checksum.",
    {
        "dataset": Column("str", "name of the set"),
        "file": Column("str", "name inside the set's folder"),
        "size_bytes": Column("int64", "size the file should have", lower=0),
        "sha256": Column("str", "checksum the file should have"),
        "path": Column("str", "where the file is, or would be"),
        "verdict": Column("str", "ok, missing or changed"),
    },
)
