"""Embedding outputs of a batch, dumped as NumPy arrays."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import LoadError, TableError
from workbench.tables import EmbeddingOutputs

_HOW = "save with numpy.savez(path, **{table: rows.float().cpu().numpy()}), samples x numbers each"
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, UnicodeError, RuntimeError,
    EOFError, OSError,
)  # fmt: skip
# NumPy evaluates a header as a literal of Python, and so may fail like a parser.
_NO_HEADER = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, SyntaxError, EOFError,
    tokenize.TokenError, RecursionError, MemoryError,
)  # fmt: skip
_MOST_BYTES, _MOST_TABLES = 4_000_000_000, 10_000


def embedding_outputs(path: str | Path) -> EmbeddingOutputs:
    """Read what the embedding tables gave for one batch.

    Parameters
    ----------
    path
        An ``.npz`` file with an array (samples, numbers) for each table, or an ``.npy`` file with
        one array (samples, tables, numbers), whose tables are numbered; told apart by content.
        Values are float32: in another type an exchange has other bytes. Pickles, and so the files
        of ``torch.save``, are not read.

    Returns
    -------
    workbench.tables.EmbeddingOutputs
        Arrays by table, in the order of the file.

    Raises
    ------
    FileNotFoundError
        If ``path`` does not exist.
    LoadError
        If the file is of another kind, damaged or larger than 4 GB unpacked, an array has another
        type or shape, numbers of samples differ, or a value is NaN or infinite; file, array and
        first bad value are named.

    Examples
    --------
    >>> from workbench import datasets
    >>> embedding_outputs(datasets.path("compressed-exchange") / "outputs.npz")
    EmbeddingOutputs: 10 tables, 1,024 samples, 1.31 MB
    """
    path = Path(path)
    with path.open("rb") as stream:
        start = stream.read(6)
        stream.seek(0)
        if start.startswith(b"PK\x03\x04"):
            arrays = _of_archive(stream, path)
        elif start == b"\x93NUMPY":
            stacked = _array(stream, path.stat().st_size, str(path))
            if stacked.ndim != 3:
                raise _refused(str(path), f"{stacked.ndim} axes, needs samples x tables x numbers")
            arrays = {str(at): stacked[:, at] for at in range(stacked.shape[1])}
        else:
            raise _refused(str(path), f"begins with {start!r}: neither an .npz nor an .npy file")
    try:
        return EmbeddingOutputs({name: np.ascontiguousarray(rows) for name, rows in arrays.items()})
    except TableError as error:
        msg = f"{path}: {error}"
        raise LoadError(msg) from None


def _of_archive(stream: IO[bytes], path: Path) -> dict[str, NDArray[np.float32]]:
    """Read the arrays of a zip archive; their names are labels and never paths."""
    arrays = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if len(members) < len(archive.infolist()) or len(members) > _MOST_TABLES:
                count = f"{len(archive.infolist()):,} arrays, {len(members):,} names"
                raise _refused(str(path), count)
            if other := [name for name in members if not name.endswith(".npy")]:
                raise _refused(str(path), f"{other[0]!r} is not an array; this is no .npz file")
            _refuse_size(sum(member.file_size for member in members.values()), str(path))
            for name, member in members.items():
                table = name.removesuffix(".npy")
                with archive.open(member) as content:
                    arrays[table] = _array(content, member.file_size, f"{path}: array {table!r}")
    except _DAMAGED as error:
        raise _refused(str(path), f"the archive is damaged or encrypted: {error}") from error
    return arrays


def _array(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """Read one array; what its header claims is compared with what follows."""
    _refuse_size(size, where)
    try:
        version = np.lib.format.read_magic(stream)
        header = np.lib.format.read_array_header_1_0
        if version > (1, 0):
            header = np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = header(stream)
    except _NO_HEADER as error:
        raise _refused(where, f"the header cannot be read: {error}") from error
    if dtype.newbyteorder("=") != np.float32:
        raise _refused(where, f"dtype {dtype}, needs float32")
    needed = 4 * int(np.prod(shape, dtype=object))
    content = stream.read(size)
    if min(shape, default=0) < 1 or len(content) != needed:
        claimed = f"shape {shape} takes {needed:,} bytes, and {len(content):,} follow"
        raise _refused(where, claimed)
    flat = np.frombuffer(content, dtype).astype(np.float32)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _refuse_size(size: int, where: str) -> None:
    if size > _MOST_BYTES:
        raise _refused(where, f"{size:,} bytes unpacked, at most {_MOST_BYTES:,} are read")


def _refused(where: str, why: str) -> LoadError:
    return LoadError(f"{where}: {why}; {_HOW}")
