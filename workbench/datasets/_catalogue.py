"""What data sets there are: the catalogue files in ``data/``, read and checked."""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path, PurePosixPath

import pandas as pd

from workbench.errors import DatasetError
from workbench.tables import DATASETS

_SETS = ("dataset", "synthetic", "licence", "origin", "citation", "about")
_PUBLIC = ("dataset", "file", "bytes", "sha256", "url")
_BUNDLED = ("dataset", "file", "bytes", "sha256", "licence", "origin")


def names() -> list[str]:
    """List the names of all data sets, bundled ones first.

    Returns
    -------
    list of str
        Names that :func:`workbench.datasets.path` takes.

    Examples
    --------
    >>> "kineto-dlrm-8rank" in names()
    True
    """
    return [str(name) for name in sets()["dataset"]]


def describe() -> pd.DataFrame:
    """Tell what every data set is, how large, under which licence and by whom.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DATASETS`, one row per data set.

    Examples
    --------
    >>> sets = describe().set_index("dataset")
    >>> sets.loc["kineto-dlrm-8rank", "licence"], bool(sets.loc["fleet-demo", "synthetic"])
    ('MIT', True)
    """
    from workbench.datasets._places import place

    table = sets()
    files = [files_of(name) for name in table["dataset"]]
    table = table.assign(
        synthetic=table["synthetic"] == "yes",
        place=[place(name) or "not at hand" for name in table["dataset"]],
        file_count=pd.Series([len(part) for part in files], dtype="int64"),
        size_bytes=pd.Series([int(part["bytes"].sum()) for part in files], dtype="int64"),
    )
    return DATASETS.check(table[list(DATASETS.columns)])


def sets() -> pd.DataFrame:
    """Give one row of text per data set, bundled ones first."""
    return _read(data_folder() / "SETS.csv", _SETS)


def is_bundled(name: str) -> bool:
    """Say whether the set comes with the package."""
    return bool((bundled_files()["dataset"] == name).any())


def is_synthetic(name: str) -> bool:
    """Say whether the set was made by a generator rather than measured."""
    table = sets()
    return bool((table.loc[table["dataset"] == name, "synthetic"] == "yes").any())


def files_of(name: str) -> pd.DataFrame:
    """Give the files of one set: ``file``, ``bytes``, ``sha256`` and, if public, ``url``."""
    require(name)
    table = bundled_files() if is_bundled(name) else public_files()
    return table[table["dataset"] == name].reset_index(drop=True)


def bundled_files() -> pd.DataFrame:
    """Give one row per file that comes with the package."""
    return _read(data_folder() / "SOURCES.csv", _BUNDLED)


def public_files() -> pd.DataFrame:
    """Give one row per file of the public sets."""
    return _read(data_folder() / "PUBLIC.csv", _PUBLIC)


def require(name: str) -> None:
    """Raise :class:`DatasetError` with the nearest names if ``name`` is unknown."""
    known = names()
    if name in known:
        return
    near = [other for other in known if str(name).lower() in other]
    near = near or difflib.get_close_matches(str(name).lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
    msg = f"no data set is called {name!r}; {hint}"
    raise DatasetError(msg)


def data_folder() -> Path:
    """Give the folder with the catalogue: inside the installed package, or of the clone."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_bundled", package.parent / "data"):
        if (folder / "SETS.csv").is_file():
            return folder
    msg = f"{package}: the bundled data are missing; install ai-infra-workbench again"
    raise DatasetError(msg)


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    stat = path.stat()
    return _read_once(path, columns, (stat.st_mtime_ns, stat.st_size)).copy()


@functools.lru_cache(maxsize=16)
def _read_once(path: Path, columns: tuple[str, ...], _stamp: tuple[int, int]) -> pd.DataFrame:
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if missing := [name for name in columns if name not in table]:
        msg = f"{path}: no column {missing}; found {list(table.columns)}"
        raise DatasetError(msg)
    for name in table["dataset"]:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            msg = f"{path}: {name!r} is not a data set name (lower case, digits, '-', '_')"
            raise DatasetError(msg)
    if "file" in table:
        _check_files(path, table)
        table["bytes"] = table["bytes"].astype("int64")
    return table


def _check_files(path: Path, table: pd.DataFrame) -> None:
    """Refuse file names that could lead out of their folder, and broken checksums."""
    for file in table["file"]:
        parts = PurePosixPath(file).parts
        if not parts or file != "/".join(parts) or re.search(r"(^|/)\.\.?(/|$)|[\\:\0]|^/", file):
            msg = f"{path}: {file!r} is not a plain relative file name; refused"
            raise DatasetError(msg)
    bad = table[~table["sha256"].str.fullmatch("[0-9a-f]{64}")]
    if len(bad):
        msg = f"{path}: {bad['file'].iloc[0]!r} has no sha256 of 64 hexadecimal digits"
        raise DatasetError(msg)
