"""A report in one file, and as a zip; with names replaced where it goes to others."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import os
import re
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import PublishError
from workbench.share import _anonymise

if TYPE_CHECKING:
    import pandas as pd

NAMES = ".workbench-names.csv"
"""File of a report that lists names found in its data, for whoever replaces them: kind, name."""

_MARK = ".workbench-report"
_MOST_HTML_BYTES = 10_000_000
_MOST_SITE_BYTES = 1_000_000_000
# The archive of the same pages has the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_POLICY = re.compile(rb"<meta [^>]*Content-Security-Policy[^>]*>")
_SELF = re.compile(rb"(?:'|&#39;|&#x27;)self(?:'|&#39;|&#x27;)")
# Whose folder: below "home" or "Users", of Windows too, whose separator JSON writes twice.
_HOME = re.compile(r"[\\/]{1,2}(?:home|Users)[\\/]{1,2}([\w.-]{2,})")


@dataclass(frozen=True)
class Packed:
    """Paths and sizes that were written.

    Attributes
    ----------
    page
        One HTML file with every page of the report.
    archive
        The report as a zip.
    replaced
        One row per name: ``kind``, ``name``, ``pseudonym``; empty if names were kept.
    """

    page: Path
    archive: Path
    replaced: pd.DataFrame


def pack(
    report: str | Path,
    out: str | Path,
    *,
    anonymise: bool = False,
    names: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
) -> Packed:
    """Write a report as one self-contained HTML file, and beside it as a zip.

    Parameters
    ----------
    report
        Folder that ``workbench report`` wrote.
    out
        HTML file to write; the zip has the same name and the ending ``.zip``.
    anonymise
        Whether to replace names of hosts, users, models and paths: those that the report lists
        about its data, those in paths below home folders, and ``names``. Equal names get equal
        pseudonyms (``host-1``) in pages, figures, pictures, tables and names of files.
    names
        Further names, each with its kind: ``{"gpu-a17": "host"}``; kinds are host, user, model
        and path.
    keep
        Names to leave as they are.

    Returns
    -------
    Packed
        The files, and the table of replaced names: ``kind``, ``name`` and ``pseudonym``.

    Raises
    ------
    PublishError
        If the folder is not a report, the page would be over 10 MB, a file cannot be searched for
        names, a name cannot be told from the words of the pages, or one remains after the
        replacement. Nothing is written then.

    Notes
    -----
    A name is replaced where no letter or digit touches it, whatever its case. After the
    replacement every file is decoded again and searched by other means; pictures are unpacked for
    it. What identifies a job without a name stays: times, counts, sizes and names of kernels
    (see :func:`workbench.load.write_obfuscated` for traces).
    """
    import pandas as pd

    folder, out = Path(report), Path(out)
    if out.suffix != ".html":
        msg = f"{out}: must end in .html; the zip is written next to it"
        raise PublishError(msg)
    content = _read(folder)
    replaced = pd.DataFrame(columns=["kind", "name", "pseudonym"], dtype="str")
    if anonymise or names:
        if not names and not (folder / NAMES).is_file():
            msg = (
                f"{folder} lists no names of its data; write it again with workbench report "
                "--data, or give the names with --name"
            )
            raise PublishError(msg)
        given = _listed(folder) | _in_homes(content) | dict(names or {})
        kept = {name.casefold() for name in keep}
        chosen = {name: kind for name, kind in given.items() if name.casefold() not in kept}
        content, replaced = _without_names(content, chosen)
    page = _one_page(content)
    if len(page) > _MOST_HTML_BYTES:
        msg = (
            f"{out} would have {len(page):,} bytes, {_MOST_HTML_BYTES:,} are the most; "
            "report fewer notebooks (name them: workbench report 01_traces.ipynb)"
        )
        raise PublishError(msg)
    archive = out.with_suffix(".zip")
    for path, data in ((out, page), (archive, _zipped(content, out.stem))):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_bytes(data)
        unfinished.replace(path)
    return Packed(out, archive, replaced)


def write_names(folder: Path, names: Mapping[str, str]) -> None:
    """Leave the names found in the data of a report for :func:`pack`, in a hidden file.

    Parameters
    ----------
    folder
        Folder of the report.
    names
        Names, each with its kind: host, user, model or path.
    """
    import pandas as pd

    rows = pd.DataFrame({"kind": list(names.values()), "name": list(names)})
    rows.to_csv(folder / NAMES, index=False)


def _read(folder: Path) -> dict[str, bytes]:
    if not (folder / _MARK).is_file() or not (folder / "index.html").is_file():
        msg = f"{folder} is not a report; write one with: workbench report --out {folder}"
        raise PublishError(msg)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    paths = [path for path in paths if not path.name.startswith(".")]
    # A link could bring any file of this machine into what is shared.
    if odd := next((path for path in paths if path.is_symlink()), None):
        msg = f"{odd} is a link, which no report contains; remove it"
        raise PublishError(msg)
    if sum(path.stat().st_size for path in paths) > _MOST_SITE_BYTES:
        msg = f"{folder} is over {_MOST_SITE_BYTES:,} bytes; report fewer notebooks"
        raise PublishError(msg)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _listed(folder: Path) -> dict[str, str]:
    if not (folder / NAMES).is_file():
        return {}
    import pandas as pd

    rows = pd.read_csv(folder / NAMES, dtype=str, keep_default_na=False)
    if list(rows.columns) != ["kind", "name"]:
        msg = f"{folder / NAMES}: has columns {list(rows.columns)}, must be kind and name"
        raise PublishError(msg)
    return dict(zip(rows["name"], rows["kind"], strict=True))


def _in_homes(content: Mapping[str, bytes]) -> dict[str, str]:
    """Find users by the paths of their home folders."""
    texts = (data.decode("utf-8", "replace") for name, data in content.items() if not _ours(name))
    return {user: "user" for text in texts for user in _HOME.findall(html.unescape(text))}


def _ours(name: str) -> bool:
    return name.startswith("assets/")


def _without_names(
    content: Mapping[str, bytes], names: Mapping[str, str]
) -> tuple[dict[str, bytes], pd.DataFrame]:
    import pandas as pd

    pseudonyms = _anonymise.Pseudonyms(names)
    found = pseudonyms.by_name
    for name, data in content.items():
        words = _anonymise.structure(data.decode()) if name.endswith(".html") else set()
        if both := sorted(words & found.keys()):
            msg = (
                f"{both[0]!r} cannot be replaced: figures are built with this word (in {name}); "
                f"rename it in the data, or leave it as it is with --keep {both[0]}"
            )
            raise PublishError(msg)
    done = {
        name if _ours(name) else pseudonyms.text(name): data
        if _ours(name)
        else _anonymise.rewritten(name, data, pseudonyms)
        for name, data in content.items()
    }
    for name, data in done.items():
        if not _ours(name) and (left := _anonymise.remains(name, data, found)):
            msg = (
                f"{left!r} would remain in {name}, so nothing is written; "
                f"remove that page, or leave the name as it is with --keep {left}"
            )
            raise PublishError(msg)
    kinds = {name.casefold(): kind for name, kind in names.items()}
    rows = [(kinds[name], name, to) for name, to in found.items()]
    return done, pd.DataFrame(rows, columns=["kind", "name", "pseudonym"], dtype="str")


def _one_page(content: Mapping[str, bytes]) -> bytes:
    """Put every file, compressed, into a page whose script shows one of them at a time."""
    # Assets come from memory there; the policy of each page still names its own scripts.
    packed = {
        name: _POLICY.sub(_from_memory, data, count=1) if name.endswith(".html") else data
        for name, data in content.items()
    }
    texts = {
        name: base64.b64encode(gzip.compress(data, mtime=0)).decode()
        for name, data in packed.items()
    }
    title = re.search(r"<title>(.*?)</title>", content["index.html"].decode(), re.DOTALL)
    page = files("workbench.share").joinpath("templates", "packed.html").read_text("utf-8")
    page = page.replace("<!--title-->", title[1] if title else "Report")
    return page.replace("<!--pack-->", json.dumps(texts)).encode()


def _from_memory(match: re.Match[bytes]) -> bytes:
    return _SELF.sub(b"blob:", match[0])


def _zipped(content: Mapping[str, bytes], stem: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(f"{stem}/{name}", _DATE), data, zipfile.ZIP_DEFLATED)
    return written.getvalue()
