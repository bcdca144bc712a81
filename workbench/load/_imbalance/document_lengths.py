"""Document lengths from whatever holds them: JSON, text, CSV, Parquet, request logs, a Series."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.errors import LoadError
from workbench.load._files.findings import guarded
from workbench.load._files.stored import stored_tables
from workbench.load._files.tables import (
    as_floats,
    read_csv,
    read_parquet,
    whole_text,
    without_cut_row,
)
from workbench.tables import DOCUMENT_LENGTHS

# Columns that hold the length of a document or of a prompt, in the order they are tried.
KNOWN_COLUMNS = (
    "length_tokens", "ContextTokens", "input_length", "num_prefill_tokens", "length",
    "num_tokens", "seq_len",
)  # fmt: skip
_COMMON_COLUMNS = {"length", "num_tokens", "seq_len"}
_MOST_COLUMNS = 3
_LONGEST = 1 << 40
_SEPARATORS = (",", ";", "\t")
# Lengths, the column they were read from, and what was dropped from a cut file.
_Lengths = tuple[pd.Series, str | None, dict[str, int]]
# A list, or at least two lines, of whole numbers; one number could be anything.
_LIST = re.compile(rb"\[\s*\d{1,13}\s*[,\]]")
# Lines above the numbers that say what they are.
_COMMENTS = re.compile(r"(?:[ \t]*#[^\n]*\n)+")
_LINES = re.compile(rb"\d{1,13}[ \t]*(?:\r?\n\s*\d{1,13}[ \t]*){1,20}(?:\r?\n|\Z)")


def document_lengths(
    source: str | Path | pd.Series | Sequence[int], *, column: str | Sequence[str] | None = None
) -> pd.DataFrame:
    """Read the lengths of documents, or of the prompts in a request log.

    Parameters
    ----------
    source
        A file: a JSON list, JSON lines, one number per line (below lines that begin with
        ``#``), CSV or Parquet (any of them gzipped); or a Series or sequence of numbers.
    column
        Column or JSON field that holds the length; by default the first known name
        (``ContextTokens``, ``input_length``, ``num_prefill_tokens``, ``length`` ...). Of
        several names the sum: ``["ContextTokens", "GeneratedTokens"]``.

    Returns
    -------
    pandas.DataFrame
        Table :data:`workbench.tables.DOCUMENT_LENGTHS`: ``length_tokens``, in the order of
        the file. ``attrs["left_out"]`` counts lengths of 0, which hold nothing to train on,
        and a length at the end of a last line without a line end, which may be cut;
        ``attrs["column"]`` names the column that was read, and ``attrs["synthetic"]`` is true
        if a line that begins with ``#`` says so.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    LoadError
        If no column holds lengths, a value is not a whole number from 0 (the first such is
        shown), or nothing is left.

    Notes
    -----
    Lengths of requests are not lengths of training documents; both are read alike.

    Examples
    --------
    >>> document_lengths([1024, 0, 2048]).attrs["left_out"]
    {'empty documents': 1}
    """
    cut: dict[str, int] = {}
    comments = ""
    if isinstance(source, str | Path):
        stored: pd.DataFrame | None = stored_tables(source, "document lengths")
        if stored is not None:
            return stored
        values, name, cut, comments = _from_file(Path(source), column)
        origin = str(source)
    else:
        values, name = _from_memory(source, column), None
        origin = "the lengths given"
    with guarded(origin, "lengths"):
        numbers = _whole(values, origin)
    kept = numbers[numbers > 0]
    if not len(kept):
        msg = f"{origin}: no document is longer than 0 tokens"
        raise LoadError(msg)
    table = pd.DataFrame({"length_tokens": kept})
    empty = len(numbers) - len(kept)
    table.attrs["left_out"] = ({"empty documents": empty} if empty else {}) | cut
    table.attrs["column"] = name
    if "synthetic" in comments.lower():
        table.attrs["synthetic"] = True
    return DOCUMENT_LENGTHS.check(table, origin)


def looks_like_lengths(head: bytes, names: Sequence[str]) -> bool:
    r"""Recognise a list or lines of whole numbers, or a column of a name that is known.

    Parameters
    ----------
    head
        First bytes of a file, unpacked.
    names
        Columns or fields of the file.

    Examples
    --------
    >>> looks_like_lengths(b"512\n8192\n77\n", []), looks_like_lengths(b"512 W\n", [])
    (True, False)
    """
    hits = set(names) & set(KNOWN_COLUMNS)
    # Measurements of kernels have columns of these names, too, but many others beside them.
    if hits - _COMMON_COLUMNS or (hits and len(names) <= _MOST_COLUMNS):
        return True
    text = head.removeprefix(b"\xef\xbb\xbf").strip()
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2].lstrip()
    return bool(_LIST.match(text) or _LINES.match(text))


def _from_memory(source: Any, column: object) -> pd.Series:
    if column is not None:
        msg = "column= chooses a column of a file; pass that column itself as a Series"
        raise LoadError(msg)
    if isinstance(source, pd.DataFrame | set | dict) or getattr(source, "ndim", 1) != 1:
        msg = f"lengths are a file, a Series or a list of numbers, not a {type(source).__name__}"
        raise LoadError(msg)
    return pd.Series(source).reset_index(drop=True)


def _whole(values: pd.Series, origin: str) -> np.ndarray:
    """Turn values into integers, or name the first that is none."""
    odd = values.dtype.kind in "bmMc" if isinstance(values.dtype, np.dtype) else False
    if odd or (values.dtype == object and any(isinstance(value, bool) for value in values)):
        msg = f"{origin}: {values.dtype} values are not lengths (truth values, times or complex)"
        raise LoadError(msg)
    numbers = as_floats(values)
    with np.errstate(invalid="ignore"):
        good = (numbers >= 0) & (numbers == np.floor(numbers)) & (numbers < _LONGEST)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        msg = (
            f"{origin}: {int((~good).sum()):,} of {len(good):,} values are not whole numbers from "
            f"0, the first is {values.iloc[[row]].tolist()[0]!r} at {row + 1:,}; lengths are "
            "counted in tokens"
        )
        raise LoadError(msg)
    return numbers.astype(np.int64)


def _from_file(
    path: Path, column: str | Sequence[str] | None
) -> tuple[pd.Series, str | None, dict[str, int], str]:
    """Read lengths as :func:`_from_text` does, and the comments above them."""
    frame = read_parquet(path)
    if frame is not None:
        return *_column(frame, column, path), {}, ""
    text = whole_text(path)
    above = _COMMENTS.match(text)
    is_list = above and _is_number(text[above.end() :].partition("\n")[0])
    comments = above[0] if above and is_list else ""
    with guarded(str(path), "lengths"):
        return *_from_text(path, text.removeprefix(comments), column), comments


def _from_text(path: Path, text: str, column: str | Sequence[str] | None) -> _Lengths:
    """Read text by its first line: a JSON list or lines, numbers, or a table with a header."""
    cut: dict[str, int] = {}
    first = next((line.strip() for line in io.StringIO(text) if line.strip()), "")
    if not first:
        msg = f"{path}: is empty"
        raise LoadError(msg)
    if first.startswith("{"):
        return *_column(_json_frame(path, text, lines=True), column, path), {}
    if first.startswith("["):
        content = _json_frame(path, text, lines=False)
        if isinstance(content, pd.DataFrame):
            return *_column(content, column, path), {}
    elif _is_number(first):
        numbers = read_csv(path, header=None, names=["length"], comment="#")
        numbers, cut = without_cut_row(numbers, path, numbers.columns)
        content = numbers["length"]
    else:
        separator = max(_SEPARATORS, key=first.count)
        frame = read_csv(path, separator=separator)
        frame, cut = without_cut_row(frame, path, _names(frame, column, path))
        return *_column(frame, column, path), cut
    if column is not None:
        msg = f"{path}: column={column!r}, but the file is a plain list without columns"
        raise LoadError(msg)
    return content, None, cut


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json_frame(path: Path, text: str, *, lines: bool) -> Any:
    texts = (line for line in io.StringIO(text) if line.strip())
    try:
        content = [json.loads(line) for line in texts] if lines else json.loads(text)
    except json.JSONDecodeError as error:
        reason = str(error).strip()[:100]
        msg = f"{path}: is neither a JSON list nor one JSON object per line ({reason})"
        raise LoadError(msg) from None
    if any(isinstance(row, dict) for row in content):
        return pd.DataFrame([row if isinstance(row, dict) else {} for row in content])
    return pd.Series(content, dtype=None if content else "float64")


def _names(frame: pd.DataFrame, column: str | Sequence[str] | None, path: Path) -> list[str]:
    usual = [name for name in KNOWN_COLUMNS if name in frame][:1]
    requested: Any = column
    if not (requested is None or isinstance(requested, str | list | tuple)):
        msg = f"column= must be a name or several, not {column!r}"
        raise LoadError(msg)
    names = usual if column is None else [column] if isinstance(column, str) else list(column)
    if not names:
        msg = f"{path}: no column of lengths among {list(frame.columns)}; name it with column="
        raise LoadError(msg)
    if missing := [name for name in names if name not in frame]:
        msg = f"{path}: no column {missing}; it has {list(frame.columns)}"
        raise LoadError(msg)
    return names


def _column(
    frame: pd.DataFrame, column: str | Sequence[str] | None, path: Path
) -> tuple[pd.Series, str]:
    names = _names(frame, column, path)
    if len(names) == 1:
        return frame[names[0]], names[0]
    addends = [_whole(frame[name], f"{path}, column {name!r}") for name in names]
    return pd.Series(np.sum(addends, axis=0)), " + ".join(names)
