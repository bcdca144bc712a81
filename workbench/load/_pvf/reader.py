"""The front door for results of fault injection: any file, folder or archive of any known tool."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import pandas as pd

from workbench._progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import Finding, Findings, listed, quality_frame
from workbench.load._files.guard import Dropped, guarded
from workbench.load._files.packings import DamagedError
from workbench.load._files.wanted import INJECTIONS, appearance, is_utf16
from workbench.load._pvf.checks import check_part
from workbench.load._pvf.formats.own_tables import is_exhaustive
from workbench.load._pvf.formats.registry import FORMATS
from workbench.load._pvf.part import TABLES, InjectionFile, InjectionFormat, InjectionPart, stacked
from workbench.tables import QUALITY, Injections, Table

HEAD_BYTES = 1 << 16
_UNKNOWN = "is in an unrecognized format of injection results"
_EXHAUSTIVE = "holds every fault of a model; load it with load.exhaustive_injections"
_NESTED = "a campaign_id that two of the files have; the later one is numbered"


@dataclass(frozen=True)
class _Found:
    files: dict[str, tuple[InjectionFormat, list[InjectionFile]]]
    unknown: list[Finding]


def injections(path: Paths, *, tool: str | None = None, progress: bool = True) -> Injections:
    """Load what came of injected faults, as written by this workbench or by another tool.

    Formats are recognised by content, never by name. What a tool does not tell stays missing;
    columns without a place in the tables, and everything that was repaired or assumed, are
    counted in the quality table.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
        Files that belong together (a fault list and its analysis, golden and faulty outputs)
        are given together.
    tool
        Read files of this tool only: ``"workbench"``, ``"SFIadvancedmodels"``,
        ``"pytorchALFI"``, ``"GoldenEye"``, ``"enpheeph"``, ``"GoldenTransformer"``,
        ``"TensorFI2"`` or ``"NVBitFI"``.
    progress
        Whether to show a progress bar if loading takes more than a second.

    Returns
    -------
    Injections
        ``campaign``, ``faults``, ``outcomes``, ``trials`` and ``parameters`` (tables of the
        same names in :mod:`workbench.tables`), and ``quality``
        (:data:`workbench.tables.QUALITY`).

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If nothing under ``path`` is in a known format, results lack their campaign, or counts
        contradict each other (names file and row).
    ValueError
        If ``tool`` is unknown.

    Notes
    -----
    How a tool itself counts outputs that are not finite stands in ``campaign["nan_policy"]``;
    where it cannot tell them from others, ``due_count`` is missing, never 0.
    """
    formats = _of_tool(tool)
    found = survey(path, wanted=INJECTIONS)
    passed_over = [each.row for each in found.remarks]
    dropped = Dropped()
    known = _recognised(found.sources, formats, dropped)
    if not known.files:
        if not (passed_over or known.unknown):
            dropped.raise_if_all()
        _raise_unknown(path, [*passed_over, *known.unknown, *dropped.rows], formats)
    parts: list[InjectionPart] = []
    total = sum(file.source.size_bytes for _, files in known.files.values() for file in files)
    with progress_bar(total=total, unit="B", label="loading injections", enabled=progress) as bar:
        for reader, files in known.files.values():
            for part in _read(reader, files, dropped):
                check_part(part)
                parts.append(part)
            bar.update(sum(file.source.size_bytes for file in files))
    if not parts:
        dropped.raise_if_all()
    with guarded(shown_all(path)):
        return assembled(parts, [*passed_over, *known.unknown, *dropped.rows])


def _read(
    reader: InjectionFormat, files: Sequence[InjectionFile], dropped: Dropped
) -> list[InjectionPart]:
    """Read the files of one format; those that are damaged are dropped, and the others are kept.

    Some belong together, so without one the others may be of no use: then its error is raised.
    """
    left, first = list(files), None
    while left:
        try:
            with guarded(", ".join(file.source.label for file in left[:1])):
                return reader.read(left)
        except LoadError as error:
            first = first or error
            bad = [file for file in left if str(error).startswith(file.source.label)]
            if not isinstance(error, DamagedError) or len(bad) != 1 or len(files) == 1:
                raise first from None
            left.remove(bad[0])
            dropped.add(bad[0].source.label, error)
    return []


def looks_like_injections(source: Source, head: bytes) -> bool:
    """Say whether a file is one of injection results, by its first bytes."""
    head = head.removeprefix(BOM_UTF8)
    return any(reader.role(head, source) for reader in FORMATS)


def assembled(parts: Sequence[InjectionPart], passed_over: Sequence[Finding] = ()) -> Injections:
    """Put the campaigns of several parts together; the first keeps its name if two are equal."""
    seen: set[str] = set()
    for part in parts:
        _rename(part, seen)
    frames = {
        name: _together([getattr(part, name) for part in parts], table)
        for name, table in TABLES.items()
    }
    quality = [finding.frame() for part in parts for finding in part.findings]
    quality.append(quality_frame(list(passed_over)))
    return Injections(**frames, quality=_together(quality, QUALITY))


def _of_tool(tool: str | None) -> list[InjectionFormat]:
    if tool is None:
        return list(FORMATS)
    chosen = [reader for reader in FORMATS if tool == reader.TOOL]
    if not chosen:
        names = sorted({reader.TOOL for reader in FORMATS})
        msg = f"tool must be one of {names}, not {tool!r}; other CSV: load.injection_records"
        raise ValueError(msg)
    return chosen


def _recognised(
    sources: Sequence[Source], formats: Sequence[InjectionFormat], dropped: Dropped
) -> _Found:
    files: dict[str, tuple[InjectionFormat, list[InjectionFile]]] = {}
    unknown: list[Finding] = []
    found = _Found(files, unknown)
    for source in sources:
        with dropped.trying(source.label):
            _recognise(source, formats, found)
    return found


def _recognise(source: Source, formats: Sequence[InjectionFormat], found: _Found) -> None:
    head = source.head(HEAD_BYTES).removeprefix(BOM_UTF8)
    if is_utf16(head):
        what = "is UTF-16, no such results are; convert it: iconv -f UTF-16 -t UTF-8"
        found.unknown.append((source.label, "dropped", what, 1, None))
        return
    for reader in formats:
        if role := reader.role(head, source):
            files = found.files.setdefault(reader.NAME, (reader, []))[1]
            files.append(InjectionFile(source, role))
            return
    what = _EXHAUSTIVE if is_exhaustive(source, head) else _UNKNOWN
    found.unknown.append((source.label, "dropped", what, 1, appearance(head)))


def _rename(part: InjectionPart, seen: set[str]) -> None:
    new = {}
    for name in part.campaign["campaign_id"]:
        number, free = 2, str(name)
        while free in seen:
            number, free = number + 1, f"{name} ({number})"
        seen.add(free)
        if free != name:
            new[name] = free
    if not new:
        return
    part.findings.append(Findings(part.findings[0].source))
    part.findings[-1].add("noted", _NESTED, len(new), str(next(iter(new.values()))))
    for name in TABLES:
        frame = getattr(part, name)
        ids = frame["campaign_id"].replace(new).astype(frame["campaign_id"].dtype)
        setattr(part, name, frame.assign(campaign_id=ids))


def _together(frames: Sequence[pd.DataFrame], table: Table) -> pd.DataFrame:
    filled = [frame for frame in frames if len(frame)]
    if not filled:
        return frames[0] if frames else table.empty()
    if len(filled) == 1:
        return filled[0]
    return stacked(filled, table)


def _raise_unknown(
    path: Paths, findings: Sequence[Finding], formats: Sequence[InjectionFormat]
) -> NoReturn:
    paths = shown_all(path)
    names = ", ".join(each.NAME for each in formats)
    msg = (
        f"{paths}: no readable injection results found; supported: {names}; "
        f"other CSV files: load.injection_records.{listed(findings)}"
    )
    raise LoadError(msg)
