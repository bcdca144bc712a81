"""Selection of files in a folder with an unreadable file, or with more than one job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench._shared.rank_sets import BY_ITSELF
from workbench.errors import LoadError
from workbench.load._files.archive import Paths, Source, shown
from workbench.load._files.findings import Finding, asks_for_argument
from workbench.load.kinds import Kind, Options, Told

_OTHER_JOB = "other {} than {}, the largest here; pass this path alone to read it"
_PACKED = "{} inside an archive, which are read from a file of their own; unpack it"
# A folder in which more files than this are damaged needs a look, not another try.
_MOST_DAMAGED = 20


def read_kind(
    path: Paths, files: Told, kind: Kind, options: Options, *, progress: bool
) -> tuple[Any, list[Finding]]:
    """Read what there is of a kind; a bad file, or another job, keeps nothing else from being read.

    Rules are about one job. Where the files of a kind are of several, those of the largest are
    read, and every other folder or file is named.

    Raises
    ------
    LoadError
        If none of them can be read, or one needs an argument.
    """
    own = [files.sources[label] for label, kinds in files.kinds.items() if kind.name in kinds]
    if kind.is_one_file:
        return _largest_job(_single_files(own, kind), kind, options, progress=progress)
    try:
        read = kind.read(path, options, progress=progress)
    except LoadError as error:
        if len(own) < 2:
            raise
        if _asks(error):
            return _that_state_all(own, kind, options, error, progress=progress)
        if any(str(error).startswith(source.label) for source in own):
            return _without_damaged(own, kind, options, progress=progress)
        jobs = _by_folder(own)
        if len(jobs) < 2:
            raise
        return _largest_job(jobs, kind, options, progress=progress)
    if _is_of_several_jobs(read) and not any(source.member for source in own):
        return _largest_job([[source] for source in own], kind, options, progress=progress)
    return read, []


def _is_of_several_jobs(read: Any) -> bool:
    """Return whether a loader doubts that files it read as ranks belong together."""
    quality = getattr(read, "quality", None)
    return quality is not None and bool(quality["what"].str.endswith(BY_ITSELF).any())


def _single_files(own: Sequence[Source], kind: Kind) -> list[list[Source]]:
    """Take every file for a job; the loaders of these kinds read no archive."""
    jobs = [[source] for source in own if not source.member]
    if not jobs:
        msg = f"{own[0].label}: {_PACKED.format(kind.name)}"
        raise LoadError(msg)
    return jobs


def _by_folder(own: Sequence[Source]) -> list[list[Source]]:
    """Sort files by the folder, or archive, in which they lie."""
    jobs: dict[Path, list[Source]] = {}
    for source in own:
        jobs.setdefault(source.path if source.member else source.path.parent, []).append(source)
    return list(jobs.values())


def _largest_job(
    jobs: Sequence[list[Source]], kind: Kind, options: Options, *, progress: bool
) -> tuple[Any, list[Finding]]:
    """Read the job with most bytes of those that can be read, and name the others."""
    ordered = sorted(jobs, key=lambda job: -sum(source.size_bytes for source in job))
    errors: list[LoadError] = []
    failed: list[Finding] = []
    for number, job in enumerate(ordered):
        try:
            read, remarks = _without_damaged(job, kind, options, progress=progress)
        except LoadError as error:
            errors.append(error)
            failed.append((_name(job), "dropped", f"{kind.name}: {error}", 1, None))
            continue
        text = _OTHER_JOB.format(kind.name, _name(job))
        others = [(_name(job), "dropped", text, 1, None) for job in ordered[number + 1 :]]
        return read, [*failed, *remarks, *others]
    raise errors[0]


def _without_damaged(
    own: Sequence[Source], kind: Kind, options: Options, *, progress: bool
) -> tuple[Any, list[Finding]]:
    """Read files, leaving out those that an error is about."""
    left, remarks = list(own), list[Finding]()
    while True:
        try:
            return kind.read(_paths(left, kind), options, progress=progress), remarks
        except LoadError as error:
            # Messages begin with the file they are about.
            bad = [source for source in left if str(error).startswith(source.label)]
            is_last = len(left) == 1 or len(remarks) == _MOST_DAMAGED
            if _asks(error) or len(bad) != 1 or is_last:
                raise
            left.remove(bad[0])
            why = str(error).removeprefix(bad[0].label).lstrip(":, ")
            remarks.append((bad[0].label, "dropped", why, 1, None))


def _that_state_all(
    own: Sequence[Source], kind: Kind, options: Options, error: LoadError, *, progress: bool
) -> tuple[Any, list[Finding]]:
    """Read the files that need no argument; the others are named, with what they lack."""
    whole, remarks = [], list[Finding]()
    for source in own:
        if source.member:
            raise error
        try:
            kind.read(source.path, options, progress=False)
        except LoadError as reason:
            why = str(reason).removeprefix(source.label).lstrip(":, ")
            remarks.append((source.label, "dropped", why, 1, None))
        else:
            whole.append(source)
    if not whole:
        raise error
    read, more = _without_damaged(whole, kind, options, progress=progress)
    return read, [*remarks, *more]


def _asks(error: LoadError) -> bool:
    """Return whether a whole file lacks what only the caller knows; ranks twice are of two jobs."""
    return asks_for_argument(error) and "pass rank=" not in str(error)


def _paths(own: Sequence[Source], kind: Kind) -> Paths:
    """Pass the files to a loader; of an archive the archive."""
    paths = list(dict.fromkeys(source.path for source in own))
    return paths[0] if kind.is_one_file or len(paths) == 1 else paths


def _name(job: Sequence[Source]) -> str:
    """Name a job: its file, or the folder or archive of its files."""
    if len(job) == 1:
        return job[0].label
    return shown(job[0].path if job[0].member else job[0].path.parent)
