"""Reading and writing profiles of traces: a few kB of JSON without names."""

from __future__ import annotations

from pathlib import Path

from workbench._shared.writing import write_whole
from workbench.tables import TraceProfile
from workbench.tables.trace_profile import MOST_BYTES, read_profile


def trace_profile(path: str | Path) -> TraceProfile:
    """Load the profile of a trace that somebody shared.

    Parameters
    ----------
    path
        A file from :func:`write_trace_profile`.

    Returns
    -------
    workbench.tables.TraceProfile
        To draw traces from, with :func:`workbench.simulate.traces_like`.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file is larger than 4 MiB, or a field is missing, unknown, of another type or beyond
        its limits; the message names the field.
    """
    with Path(path).open("rb") as file:
        # One byte more than allowed is enough to refuse a file of any size.
        text = file.read(MOST_BYTES + 1)
    return read_profile(text, str(path))


def write_trace_profile(profile: TraceProfile, path: str | Path) -> Path:
    """Write the profile of a trace as JSON, whole or not at all.

    Parameters
    ----------
    profile
        From :func:`workbench.analyze.trace_profile`.
    path
        The file; an existing one is replaced once the new one is complete.

    Returns
    -------
    pathlib.Path
        The file. It holds kinds and rounded numbers, and no name of the source.
    """
    text = profile.as_json().encode()
    read_profile(text, str(path))
    write_whole(Path(path), lambda file: file.write(text))
    return Path(path)
