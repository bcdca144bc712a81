"""Getting public data sets: from the mirror, the cache, or the network."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from workbench import __version__
from workbench._shared.extras import need
from workbench._shared.progress import progress as bar
from workbench.datasets._catalogue import (
    CACHE_ENV,
    MIRROR_ENV,
    checked,
    data_folder,
    files_of,
    folder_of,
    is_bundled,
    matches,
    place,
)
from workbench.errors import DatasetError

# Redirects to the source archive of a release.
_RELEASES = "https://files.pythonhosted.org/packages/source/a/ai-infra-workbench"
_MOST_RELEASE_BYTES = 60_000_000


def path(name: str) -> Path:
    """Return the folder of a data set, downloading it the first time.

    Parameters
    ----------
    name
        Name of a data set, see :func:`workbench.datasets.names`.

    Returns
    -------
    pathlib.Path
        Folder whose files have the catalogue's checksums.

    Raises
    ------
    DatasetError
        If the name is unknown, a file does not match its checksum, or the
        download fails.

    Examples
    --------
    >>> path("fleet-demo").name
    'fleet-demo'
    """
    origin = place(name)
    if origin in {"bundled", "mirror"}:
        return checked(name, origin)
    return fetch(name)


def fetch(
    name: str, *, base_url: str | None = None, retries: int = 2, progress: bool = True
) -> Path:
    """Download what is missing of a set and check every file.

    Public sets come from where they were published; bundled sets that wheels leave out come
    from the source archive of the same release on PyPI.

    A file appears under its name only when it is whole and its checksum is
    right, so an interrupted download leaves nothing behind that could be taken
    for data. Bundled and mirrored sets are checked and returned as they are.

    Parameters
    ----------
    name
        Name of a data set.
    base_url
        Server to ask instead of the one in the catalogue, with the same paths
        below it, e.g. ``"https://mirror.example/raw"``. Skips the mirror folder.
    retries
        How often a failed file is tried again.
    progress
        Whether to show a bar when it takes longer than a second.

    Returns
    -------
    pathlib.Path
        Folder with all files of the set.

    Raises
    ------
    DatasetError
        If the name is unknown, the server cannot be reached, does not have a
        file, or sends one with a wrong checksum.
    """
    origin = place(name)
    if origin == "bundled" or (origin == "mirror" and base_url is None):
        return checked(name, origin)
    folder = folder_of(name, "cache")
    files = files_of(name)
    if is_bundled(name):
        _unpack(name, folder, _to_get(files, folder, None), base_url or _RELEASES)
        return folder
    with bar(total=int(files["bytes"].sum()), unit="B", label=name, enabled=progress) as shown:
        for row in _to_get(files, folder, shown):
            _download(name, folder, row, _url(row, base_url), retries)
            shown.update(row["bytes"])
    return folder


def _unpack(name: str, folder: Path, rows: Iterator[dict[Any, Any]], base_url: str) -> None:
    """Take files of a bundled set from the source archive of this release."""
    need("pooch", extra="cli", purpose="downloading data")
    archive_name = f"ai_infra_workbench-{__version__}"
    url = f"{base_url.rstrip('/')}/{archive_name}.tar.gz"
    wanted = {f"{archive_name}/data/{name}/{row['file']}": row for row in rows}
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "release.tar.gz")
        try:
            _Capped(_MOST_RELEASE_BYTES)(url, str(archive), None)
            with tarfile.open(archive) as opened:
                for member in opened:
                    if member.isfile() and (row := wanted.pop(member.name, None)):
                        _keep(opened.extractfile(member), folder, row, url)
        except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
            msg = (
                f"{name}: cannot be read from {url}: {error}\nTry again, or take the folder "
                f"data/ of a clone and set {MIRROR_ENV} to its path"
            )
            raise DatasetError(msg) from error
    if wanted:
        msg = f"{name}: {url} lacks {next(iter(wanted))}"
        raise DatasetError(msg)


def _keep(stream: Any, folder: Path, row: dict[Any, Any], url: str) -> None:
    """Write a file of an archive whole and with the right checksum, or not at all."""
    content = stream.read(row["bytes"] + 1)
    if hashlib.sha256(content).hexdigest() != row["sha256"]:
        msg = f"{url}: its {row['file']} does not match the checksum of the catalogue"
        raise DatasetError(msg)
    target = folder / row["file"]
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(target)


def _to_get(files: pd.DataFrame, folder: Path, shown: Any) -> Iterator[dict[Any, Any]]:
    """Yield the files that are absent or wrong; count the others as done."""
    for row in files.to_dict("records"):
        target = folder / row["file"]
        if target.is_file() and matches(target, row["sha256"]):
            if shown is not None:
                shown.update(row["bytes"])
        else:
            yield row


def _url(row: dict[Any, Any], base_url: str | None) -> str:
    address = urlsplit(str(row["url"]))
    if base_url is not None:
        return base_url.rstrip("/") + address.path
    if address.scheme != "https":
        msg = f"{row['file']}: the catalogue's address {row['url']} is not https; refused"
        raise DatasetError(msg)
    return str(row["url"])


def _download(name: str, folder: Path, row: dict[Any, Any], url: str, retries: int) -> None:
    """Get one file; pooch writes it aside and moves it only when its checksum is right."""
    need("pooch", extra="cli", purpose="downloading data")
    import pooch

    store = pooch.create(
        path=folder,
        base_url="",
        registry={row["file"]: f"sha256:{row['sha256']}"},
        urls={row["file"]: url},
        retry_if_failed=retries,
    )
    try:
        (folder / row["file"]).parent.mkdir(parents=True, exist_ok=True)
        with _quiet(pooch):
            store.fetch(row["file"], downloader=_Capped(int(row["bytes"])))
    except ValueError as error:
        msg = f"{name}: {url} sent a file that does not match its checksum: {error}"
        raise DatasetError(msg) from error
    except OSError as error:
        msg = (
            f"{name}: cannot get {url} into {folder}: {error}\n"
            "Check the network and the disk and try again, set "
            f"{CACHE_ENV} to a folder you can write, or copy the files to "
            f"<folder>/{name}/ and set {MIRROR_ENV}=<folder>"
        )
        raise DatasetError(msg) from error


class _Capped:
    """Downloads a file, and stops where it is larger than the catalogue says."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes

    def __call__(self, url: str, output_file: str, store: Any) -> None:
        """Write what a server sends, as pooch asks for it."""
        import pooch

        left = self._left_bytes
        with Path(output_file).open("wb") as file:
            pooch.HTTPDownloader(timeout=30)(url, _Limited(file, left, url), store)


class _Limited:
    """A file that takes no more than it should."""

    def __init__(self, file: Any, left_bytes: int, url: str) -> None:
        self._file, self._left_bytes, self._url = file, left_bytes, url
        self.flush = file.flush

    def write(self, block: bytes) -> int:
        """Write a block; a server that sends too much could fill the disk."""
        self._left_bytes -= len(block)
        if self._left_bytes < 0:
            msg = f"{self._url} sends more bytes than the catalogue lists; nothing was kept"
            raise DatasetError(msg)
        return int(self._file.write(block))


@contextlib.contextmanager
def _quiet(pooch: Any) -> Iterator[None]:
    """Silence pooch's line per file while the block runs; the bar says it better."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")
    try:
        yield
    finally:
        logger.setLevel(level)


# Record a bundled set in ``data/SOURCES.csv``, for those who add data to the repository.
# ``python -m workbench.datasets._fetch SET LICENCE ORIGIN`` lists every file of ``data/SET``
# with its size and checksum. A file that is listed keeps its licence and origin: those of a set
# need not be those of each file.


def record(data: Path, name: str, *, licence: str, origin: str) -> None:
    """Write the rows of one set into the source list of a data folder."""
    path = data / "SOURCES.csv"
    with path.open(newline="", encoding="utf-8") as stream:
        listed = list(csv.reader(stream))
    rows = [row for row in listed if row[0] != name]
    known = {row[1]: row[4:] for row in listed if row[0] == name}
    for file in sorted(file for file in (data / name).rglob("*") if file.is_file()):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        inside = file.relative_to(data / name).as_posix()
        terms = known.get(inside, [licence, origin])
        rows.append([name, inside, str(len(content)), digest, *terms])
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    record(data_folder(), sys.argv[1], licence=sys.argv[2], origin=sys.argv[3])
