"""The catalogue of data sets: its files in ``data/``, read and checked."""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pandas as pd

from workbench.errors import DatasetError
from workbench.tables import DATASET_FILES, DATASETS, Source

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
    table = sets()
    files = [files_of(name) for name in table["dataset"]]
    table = table.assign(
        synthetic=table["synthetic"] == "yes",
        place=[place(name) or "not available" for name in table["dataset"]],
        file_count=pd.Series([len(rows) for rows in files], dtype="int64"),
        size_bytes=pd.Series([int(rows["bytes"].sum()) for rows in files], dtype="int64"),
    )
    return DATASETS.check(table[list(DATASETS.columns)])


def sets() -> pd.DataFrame:
    """Return one row of text per data set, bundled ones first."""
    return _read(data_folder() / "SETS.csv", _SETS)


def is_bundled(name: str) -> bool:
    """Return whether the set comes with the package."""
    return bool((bundled_files()["dataset"] == name).any())


def is_synthetic(name: str) -> bool:
    """Return whether the set was made by a generator rather than measured."""
    table = sets()
    return bool((table.loc[table["dataset"] == name, "synthetic"] == "yes").any())


def files_of(name: str) -> pd.DataFrame:
    """Return the files of one set: ``file``, ``bytes``, ``sha256`` and, if public, ``url``."""
    require(name)
    table = bundled_files() if is_bundled(name) else public_files()
    return table[table["dataset"] == name].reset_index(drop=True)


def bundled_files() -> pd.DataFrame:
    """Return one row per file that comes with the package."""
    return _read(data_folder() / "SOURCES.csv", _BUNDLED)


def public_files() -> pd.DataFrame:
    """Return one row per file of the public sets."""
    return _read(data_folder() / "PUBLIC.csv", _PUBLIC)


def require(name: str) -> None:
    """Raise :class:`DatasetError` with the nearest names if ``name`` is unknown."""
    all_names = names()
    if name in all_names:
        return
    near = [candidate for candidate in all_names if str(name).lower() in candidate]
    near = near or difflib.get_close_matches(str(name).lower(), all_names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "known: "
    msg = f"no data set is called {name!r}; {hint + ('' if near else ', '.join(all_names))}"
    raise DatasetError(msg)


def data_folder() -> Path:
    """Return the folder with the catalogue: inside the installed package, or of the clone."""
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
        steps = PurePosixPath(file).parts
        if not steps or file != "/".join(steps) or re.search(r"(^|/)\.\.?(/|$)|[\\:\0]|^/", file):
            msg = f"{path}: {file!r} is not a plain relative file name; refused"
            raise DatasetError(msg)
    bad = table[~table["sha256"].str.fullmatch("[0-9a-f]{64}")]
    if len(bad):
        msg = f"{path}: {bad['file'].iloc[0]!r} has no sha256 of 64 hexadecimal digits"
        raise DatasetError(msg)


# Choosing what a notebook runs on: the user's own data, or the best set available.


@dataclass(frozen=True)
class Choice:
    """The data that a notebook runs on.

    ``path`` goes into a loader; ``source`` and ``is_synthetic`` go under the figures;
    ``offered`` names a public set that was wanted more and is not available.
    Shown in a notebook, it says in a line which data this is.
    """

    path: Path
    name: str
    is_synthetic: bool
    about: str
    credit: str
    is_own: bool = False
    offered: str = ""

    @property
    def source(self) -> Source:
        """Where the data comes from and whose it is, in one line for the foot of a figure."""
        words = f"{self.name} ({self.credit})" if self.credit else self.name
        return Source(words, "own" if self.is_own else "data set")

    def _repr_markdown_(self) -> str:
        kind = " (**synthetic data**)" if self.is_synthetic else self._real
        credit = f" Source: {_plain(self.credit)}." if self.credit else ""
        line = f"**Data from here on:** {_plain(self.name)}{kind}: {_plain(self.about)}.{credit}"
        fetch = f" Real data: `workbench datasets fetch {self.offered}`, then run the page again."
        return line + fetch * bool(self.offered)

    def __repr__(self) -> str:
        kind = " (synthetic data)" if self.is_synthetic else self._real
        return f"{self.name}{kind}: {self.about}"

    @property
    def _real(self) -> str:
        # Of a user's own files nobody knows; the loader looks whether they say.
        return " (real data)" if self.credit else ""


def choose(own: str | Path | None, *candidates: str) -> Choice:
    """Choose the user's own data if there is any, else the first set available.

    Parameters
    ----------
    own
        Path of the user's own data; None takes a data set.
    *candidates
        Names of data sets, most wanted first; a bundled one last. ``"set/file"`` takes
        one file or folder of a set. Nothing is downloaded.

    Returns
    -------
    Choice
        Path, name, whether it is synthetic, and what to print under figures.

    Raises
    ------
    FileNotFoundError
        If ``own`` does not exist.
    DatasetError
        If no candidate is available, or one available is damaged.

    Examples
    --------
    >>> choose(None, "fleet-demo").is_synthetic
    True
    """
    if own is not None:
        path = Path(own).expanduser()
        if not path.exists():
            msg = f"{path}: there is no such file or folder; data= must name your own files"
            raise FileNotFoundError(msg)
        is_synthetic = _is_bundled_synthetic(path)
        about = "bundled with the workbench" if is_synthetic else "your own files"
        return Choice(path, path.name, is_synthetic, about=about, credit="", is_own=True)
    files = dict(candidate.partition("/")[::2] for candidate in candidates)
    path, name, is_synthetic = best(*files)
    if (file := files[name]) and not (path / file).exists():
        msg = f"the set {name!r} has no file or folder {file!r}; see datasets.describe()"
        raise DatasetError(msg)
    path = path / file
    row = describe().set_index("dataset").loc[name]
    about = str(row["about"]).removeprefix("synthetic: ")
    credit = f"{row['citation']}, {row['licence']}"
    first = next(iter(files))
    offered = "" if name == first or is_bundled(first) else first
    return Choice(path, name, is_synthetic, about, credit, offered=offered)


def _is_bundled_synthetic(path: Path) -> bool:
    """Return whether a path leads into a bundled set that was simulated."""
    folder, resolved = data_folder().resolve(), path.resolve()
    # Most paths do not, and are told apart without the catalogue.
    steps = resolved.relative_to(folder).parts if resolved.is_relative_to(folder) else ()
    return bool(steps) and steps[0] in names() and is_bundled(steps[0]) and is_synthetic(steps[0])


def _plain(text: str) -> str:
    """Take the meaning from characters that Markdown or HTML would give one."""
    return "".join(f"&#{ord(c)};" if c in "<>&*_`[]\\|#" else c for c in text)


# Where the files of a data set are, and whether they are what the catalogue says.

MIRROR_ENV = "WORKBENCH_DATA_MIRROR"
"""Environment variable naming a folder that holds ``<dataset>/<file>``."""

CACHE_ENV = "WORKBENCH_CACHE"
"""Environment variable naming the folder for downloads."""


def best(*candidates: str) -> tuple[Path, str, bool]:
    """Find the first of several sets that is available, without using the network.

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
        If a name is unknown, none of the sets is available, or a file available
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
        if (origin := place(name)) is not None:
            return checked(name, origin), name, is_synthetic(name)
    msg = (
        f"none of {', '.join(candidates) or 'no names'} is available; "
        f"get one with: workbench datasets fetch {candidates[0] if candidates else 'NAME'}"
    )
    raise DatasetError(msg)


def verify(name: str) -> pd.DataFrame:
    """Compare every file of a set with its checksum, reading each again.

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
    """Describe where all files of a set lie: bundled, mirror, cache, or None for not available."""
    files = files_of(name)["file"]
    # Wheels leave out sets that few need: fetched ones lie where public ones do.
    options = ("bundled", "mirror", "cache") if is_bundled(name) else ("mirror", "cache")
    for option in options:
        if option == "mirror" and not os.environ.get(MIRROR_ENV):
            continue
        folder = folder_of(name, option)
        if len(files) and all((folder / file).is_file() for file in files):
            return option
    return None


def folder_of(name: str, option: str) -> Path:
    """Return the folder of a set in one of the three places."""
    if option == "bundled":
        return data_folder() / name
    if option == "mirror":
        return _mirror() / name
    return cache_folder() / name


def checked(name: str, option: str) -> Path:
    """Return the folder of a set after comparing its files with their checksums."""
    folder = folder_of(name, option)
    for row in files_of(name).itertuples():
        path = folder / str(row.file)
        if not matches(path, str(row.sha256)):
            msg = f"{path} is not the file the catalogue knows: its sha256 is not {row.sha256}. "
            raise DatasetError(msg + _remedy(name, option))
    return folder


def matches(path: Path, sha256: str) -> bool:
    """Return whether a file has this checksum; a file that did not change is read once."""
    stat = path.stat()
    return _hash_once(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)) == sha256


def cache_folder() -> Path:
    """Return the folder for downloads, which need not exist yet."""
    if chosen := os.environ.get(CACHE_ENV):
        return Path(chosen).expanduser()
    home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or home)
    return folder.expanduser() / "ai-infra-workbench"


def _mirror() -> Path:
    folder = Path(os.environ[MIRROR_ENV]).expanduser()
    if not folder.is_dir():
        msg = f"{MIRROR_ENV} names {folder}, which is not a folder; correct it or unset it"
        raise DatasetError(msg)
    return folder


def _remedy(name: str, option: str) -> str:
    return {
        "bundled": "Install ai-infra-workbench again, or restore the file from version control",
        "mirror": f"Copy it into the mirror again, or unset {MIRROR_ENV} to download it",
        "cache": f"Get it again with: workbench datasets fetch {name}",
    }[option]


def _verdict(path: Path, sha256: str) -> str:
    if not path.is_file():
        return "missing"
    return "ok" if _hash(path) == sha256 else "changed"


# The stamp is only part of the key: a file that changed is hashed again.
@functools.lru_cache(maxsize=4096)
def _hash_once(path: Path, _stamp: tuple[int, int, int]) -> str:
    return _hash(path)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
