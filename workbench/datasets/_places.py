"""Where the files of a data set are, and whether they are what the catalogue says."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import pandas as pd

from workbench.datasets._catalogue import data_folder, files_of, is_bundled, is_synthetic, require
from workbench.errors import DatasetError
from workbench.tables import DATASET_FILES

MIRROR_ENV = "WORKBENCH_DATA_MIRROR"
"""Environment variable naming a folder that holds ``<dataset>/<file>``."""

CACHE_ENV = "WORKBENCH_CACHE"
"""Environment variable naming the folder for downloads."""


def best(*candidates: str) -> tuple[Path, str, bool]:
    """Find the first of several sets that is at hand, without using the network.

    Notebooks ask for the real set first and a bundled one last, so that they run
    on a plane and show real findings where they can.

    Parameters
    ----------
    *candidates
        Names of data sets, most wanted first.

    Returns
    -------
    tuple of (pathlib.Path, str, bool)
        Folder of the set, its name, and whether it is synthetic.

    Raises
    ------
    DatasetError
        If a name is unknown, none of the sets is at hand, or a file at hand
        does not match its checksum.

    Examples
    --------
    >>> folder, name, is_synthetic = best("fleet-demo")
    >>> name, is_synthetic
    ('fleet-demo', True)
    """
    for name in candidates:
        require(name)
    for name in candidates:
        if (found := place(name)) is not None:
            return checked(name, found), name, is_synthetic(name)
    msg = (
        f"none of {', '.join(candidates) or 'no names'} is at hand; "
        f"get one with: workbench datasets fetch {candidates[0] if candidates else 'NAME'}"
    )
    raise DatasetError(msg)


def verify(name: str) -> pd.DataFrame:
    """Compare every file of a set with its checksum, reading each anew.

    Parameters
    ----------
    name
        Name of a data set.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DATASET_FILES`: ``dataset``, ``file``,
        ``size_bytes``, ``sha256``, ``path``, ``verdict`` (ok, missing, changed).

    Raises
    ------
    DatasetError
        If the name is unknown or the mirror folder does not exist.

    Examples
    --------
    >>> verify("fleet-demo")["verdict"].unique().tolist()
    ['ok']
    """
    files = files_of(name)
    folder = folder_of(name, place(name) or "cache")
    paths = [folder / file for file in files["file"]]
    table = pd.DataFrame(
        {
            "dataset": name,
            "file": files["file"],
            "size_bytes": files["bytes"],
            "sha256": files["sha256"],
            "path": [str(path) for path in paths],
            "verdict": [_verdict(p, s) for p, s in zip(paths, files["sha256"], strict=True)],
        }
    )
    return DATASET_FILES.check(table)


def place(name: str) -> str | None:
    """Say where all files of a set lie: bundled, mirror, cache, or None for not at hand."""
    files = files_of(name)["file"]
    options = ("bundled",) if is_bundled(name) else ("mirror", "cache")
    for option in options:
        if option == "mirror" and not os.environ.get(MIRROR_ENV):
            continue
        folder = folder_of(name, option)
        if len(files) and all((folder / file).is_file() for file in files):
            return option
    return None


def folder_of(name: str, option: str) -> Path:
    """Give the folder of a set in one of the three places."""
    if option == "bundled":
        return data_folder() / name
    if option == "mirror":
        return _mirror() / name
    return cache_folder() / name


def checked(name: str, option: str) -> Path:
    """Give the folder of a set after comparing its files with their checksums."""
    folder = folder_of(name, option)
    for row in files_of(name).itertuples():
        path = folder / str(row.file)
        if not matches(path, str(row.sha256)):
            msg = f"{path} is not the file the catalogue knows: its sha256 is not {row.sha256}. "
            raise DatasetError(msg + _remedy(name, option))
    return folder


def matches(path: Path, sha256: str) -> bool:
    """Say whether a file has this checksum; a file that did not change is read once."""
    stat = path.stat()
    return _hash_once(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)) == sha256


def cache_folder() -> Path:
    """Give the folder for downloads, which need not exist yet."""
    if chosen := os.environ.get(CACHE_ENV):
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("ai-infra-workbench"))


def _mirror() -> Path:
    folder = Path(os.environ[MIRROR_ENV]).expanduser()
    if not folder.is_dir():
        msg = f"{MIRROR_ENV} names {folder}, which is no folder; correct it or unset it"
        raise DatasetError(msg)
    return folder


def _remedy(name: str, option: str) -> str:
    return {
        "bundled": "Install ai-infra-workbench again, or restore the file from version control",
        "mirror": f"Copy it anew into the mirror, or unset {MIRROR_ENV} to download it",
        "cache": f"Get it again with: workbench datasets fetch {name}",
    }[option]


def _verdict(path: Path, sha256: str) -> str:
    if not path.is_file():
        return "missing"
    return "ok" if _hash(path) == sha256 else "changed"


@functools.lru_cache(maxsize=4096)
def _hash_once(path: Path, _stamp: tuple[int, int, int]) -> str:
    return _hash(path)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
