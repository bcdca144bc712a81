"""The entry point for results of fault injection: any file, folder or archive of any known tool."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import pandas as pd

from workbench._shared.progress import progress as progress_bar
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, shown_all, survey
from workbench.load._files.findings import (
    Dropped,
    Finding,
    Findings,
    guarded,
    listed,
    quality_frame,
)
from workbench.load._files.stream import DamagedError
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

    Formats are recognised by content, never by name. What a tool does not state stays missing;
    columns without a place in the tables, and everything that was repaired or assumed, are
    counted in the quality table.

    Parameters
    ----------
    path
        A file, a folder (searched to any depth), an archive or a list of these; gzip is fine.
        Files that belong together (a fault list and its analysis, golden and faulty outputs)
        are given together.
    tool
        Read files of this tool only: ``"workbench"``, ``"pytorchALFI"`` or ``"NVBitFI"``. Results
        of other tools are read by :func:`injection_records`.
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
    surveyed = survey(path, wanted=INJECTIONS)
    passed_over = [remark.row for remark in surveyed.remarks]
    dropped = Dropped()
    recognised = _recognised(surveyed.sources, formats, dropped)
    if not recognised.files:
        # If every file was dropped, its own error says more than a list.
        if not (passed_over or recognised.unknown):
            dropped.raise_if_all()
        _raise_unknown(path, [*passed_over, *recognised.unknown, *dropped.rows], formats)
    campaigns: list[InjectionPart] = []
    total = sum(file.source.size_bytes for _, files in recognised.files.values() for file in files)
    with progress_bar(total=total, unit="B", label="loading injections", enabled=progress) as bar:
        for reader, files in recognised.files.values():
            for result in _read(reader, files, dropped):
                check_part(result)
                campaigns.append(result)
            bar.update(sum(file.source.size_bytes for file in files))
    if not campaigns:
        dropped.raise_if_all()
    with guarded(shown_all(path)):
        return assembled(campaigns, [*passed_over, *recognised.unknown, *dropped.rows])


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
            # Messages begin with the file they are about.
            bad = [file for file in left if str(error).startswith(file.source.label)]
            # Without the damaged file the others can be read; other errors concern all of them.
            if not isinstance(error, DamagedError) or len(bad) != 1 or len(files) == 1:
                raise first from None
            left.remove(bad[0])
            dropped.add(bad[0].source.label, error)
    return []


def looks_like_injections(source: Source, head: bytes) -> bool:
    head = head.removeprefix(BOM_UTF8)
    return any(reader.role(head, source) for reader in FORMATS)


def assembled(
    campaigns: Sequence[InjectionPart], passed_over: Sequence[Finding] = ()
) -> Injections:
    """Put the campaigns of several parts together; the first keeps its name if two are equal."""
    seen: set[str] = set()
    for result in campaigns:
        _rename(result, seen)
    frames = {
        name: _together([getattr(result, name) for result in campaigns], table)
        for name, table in TABLES.items()
    }
    quality = [finding.frame() for result in campaigns for finding in result.findings]
    quality.append(quality_frame(list(passed_over)))
    return Injections(**frames, quality=_together(quality, QUALITY))


def _of_tool(tool: str | None) -> list[InjectionFormat]:
    if tool is None:
        return list(FORMATS)
    chosen = [reader for reader in FORMATS if tool == reader.TOOL]
    if not chosen:
        names = sorted({reader.TOOL for reader in FORMATS})
        msg = f"tool must be one of {names}, not {tool!r}; of other tools: load.injection_records"
        raise ValueError(msg)
    return chosen


def _recognised(
    sources: Sequence[Source], formats: Sequence[InjectionFormat], dropped: Dropped
) -> _Found:
    files: dict[str, tuple[InjectionFormat, list[InjectionFile]]] = {}
    unknown: list[Finding] = []
    recognised = _Found(files, unknown)
    for source in sources:
        with dropped.trying(source.label):
            _recognise(source, formats, recognised)
    return recognised


def _recognise(source: Source, formats: Sequence[InjectionFormat], recognised: _Found) -> None:
    head = source.head(HEAD_BYTES).removeprefix(BOM_UTF8)
    if is_utf16(head):
        text = "is UTF-16, no such results are; convert it: iconv -f UTF-16 -t UTF-8"
        recognised.unknown.append((source.label, "dropped", text, 1, None))
        return
    for reader in formats:
        if role := reader.role(head, source):
            files = recognised.files.setdefault(reader.NAME, (reader, []))[1]
            files.append(InjectionFile(source, role))
            return
    text = _EXHAUSTIVE if is_exhaustive(source, head) else _UNKNOWN
    recognised.unknown.append((source.label, "dropped", text, 1, appearance(head, source.label)))


def _rename(result: InjectionPart, seen: set[str]) -> None:
    new = {}
    for name in result.campaign["campaign_id"]:
        number, free = 2, str(name)
        # Two runs of one tool may have the same file name, and the campaign is named after it.
        while free in seen:
            number, free = number + 1, f"{name} ({number})"
        seen.add(free)
        if free != name:
            new[name] = free
    if not new:
        return
    result.findings.append(Findings(result.findings[0].source))
    result.findings[-1].add("noted", _NESTED, len(new), str(next(iter(new.values()))))
    for name in TABLES:
        frame = getattr(result, name)
        ids = frame["campaign_id"].replace(new).astype(frame["campaign_id"].dtype)
        setattr(result, name, frame.assign(campaign_id=ids))


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
    names = ", ".join(reader.NAME for reader in formats)
    msg = (
        f"{paths}: no readable injection results found; supported: {names}; "
        "results of other tools: load.injection_records(path, columns={...})."
        f"{listed(findings)}"
    )
    raise LoadError(msg)
