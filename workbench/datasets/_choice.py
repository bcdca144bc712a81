"""Choosing what a notebook runs on: the user's own data, or the best set at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.datasets._catalogue import describe
from workbench.datasets._places import best, folder_of
from workbench.errors import DatasetError
from workbench.tables import Source


@dataclass(frozen=True)
class Choice:
    """What a notebook runs on.

    ``path`` goes into a loader; ``source`` and ``is_synthetic`` go under the figures.
    Shown in a notebook, it says in a line which data this is.
    """

    path: Path
    name: str
    is_synthetic: bool
    about: str
    credit: str
    is_own: bool = False

    @property
    def source(self) -> Source:
        """Where the data comes from and whose it is, in one line for the foot of a figure."""
        words = f"{self.name} ({self.credit})" if self.credit else self.name
        return Source(words, "own" if self.is_own else "data set")

    def _repr_markdown_(self) -> str:
        kind = " (**synthetic data**)" if self.is_synthetic else self._real
        credit = f" Source: {_plain(self.credit)}." if self.credit else ""
        return f"**Data from here on:** {_plain(self.name)}{kind}: {_plain(self.about)}.{credit}"

    def __repr__(self) -> str:
        kind = " (synthetic data)" if self.is_synthetic else self._real
        return f"{self.name}{kind}: {self.about}"

    @property
    def _real(self) -> str:
        # Of a user's own files nobody knows; the loader looks whether they say.
        return " (real data)" if self.credit else ""


def choose(own: str | Path | None, *candidates: str) -> Choice:
    """Choose the user's own data if there is any, else the first set at hand.

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
        If no candidate is at hand, or one at hand is damaged.

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
        return Choice(path, path.name, is_synthetic, about="your own files", credit="", is_own=True)
    files = dict(candidate.partition("/")[::2] for candidate in candidates)
    path, name, is_synthetic = best(*files)
    if (file := files[name]) and not (path / file).exists():
        msg = f"the set {name!r} has no file or folder {file!r}; see datasets.describe()"
        raise DatasetError(msg)
    path = path / file
    row = describe().set_index("dataset").loc[name]
    about = str(row["about"]).removeprefix("synthetic: ")
    credit = f"{row['citation']}, {row['licence']}"
    return Choice(path, name, is_synthetic, about, credit)


def _is_bundled_synthetic(path: Path) -> bool:
    """Say whether a path leads into a bundled set that was simulated."""
    table = describe()
    bundled = table.loc[table["synthetic"] & (table["place"] == "bundled"), "dataset"]
    folders = [folder_of(str(name), "bundled").resolve() for name in bundled]
    return any(path.resolve().is_relative_to(folder) for folder in folders)


def _plain(text: str) -> str:
    """Take the meaning from characters that Markdown or HTML would give one."""
    return "".join(f"&#{ord(c)};" if c in "<>&*_`[]\\|#" else c for c in text)
