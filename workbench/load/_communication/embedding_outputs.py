"""Embedding outputs of a batch, dumped as NumPy arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import LoadError, TableError
from workbench.tables import EmbeddingOutputs

_HOW = "save with numpy.savez(path, **{table: rows.float().cpu().numpy()}), samples x numbers each"
_MOST_BYTES, _MOST_TABLES = 4_000_000_000, 10_000


def embedding_outputs(path: str | Path) -> EmbeddingOutputs:
    """Read what the embedding tables gave for one batch.

    Parameters
    ----------
    path
        An ``.npz`` file with an array (samples, numbers) for each table, or an ``.npy`` file with
        one array (samples, tables, numbers). Found out from the content, not from the name.
        Values are float32: in another type an exchange has other bytes. Pickles, and so the files
        of ``torch.save``, are not read.

    Returns
    -------
    workbench.tables.EmbeddingOutputs
        Arrays by table, in the order of the file; tables without a name are numbered.

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
            arrays = dict(_of_archive(stream, path))
        elif start == b"\x93NUMPY":
            arrays = dict(_tables(_array(stream, path.stat().st_size, str(path)), "", str(path)))
        else:
            msg = f"{path}: neither an .npz nor an .npy file, it begins with {start!r}; {_HOW}"
            raise LoadError(msg)
    try:
        return EmbeddingOutputs(arrays)
    except TableError as error:
        msg = f"{path}: {error}"
        raise LoadError(msg) from None


def _of_archive(stream: IO[bytes], path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Give the tables of a zip archive; its names are labels and never paths."""
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if len({*names}) < len(names) or len(names) > _MOST_TABLES:
                msg = f"{path}: {len(names):,} arrays, {len({*names}):,} names; {_HOW}"
                raise LoadError(msg)
            if other := [m.filename for m in members if not m.filename.endswith(".npy")]:
                msg = f"{path}: {other[0]!r} is no array, so this is no .npz file; {_HOW}"
                raise LoadError(msg)
            _refuse_size(sum(member.file_size for member in members), str(path))
            for member, name in zip(members, names, strict=True):
                where = f"{path}: array {name!r}"
                with archive.open(member) as content:
                    yield from _tables(_array(content, member.file_size, where), name, where)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        msg = f"{path}: the archive is damaged or packed in a way that is not read: {error}; {_HOW}"
        raise LoadError(msg) from error


def _array(stream: IO[bytes], size: int, where: str) -> NDArray[Any]:
    """Read one array; what its header claims is compared with what is there before it is read."""
    _refuse_size(size, where)
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read(stream)
    except (ValueError, KeyError, EOFError) as error:
        msg = f"{where}: the header cannot be read: {error}; {_HOW}"
        raise LoadError(msg) from error
    if dtype.newbyteorder("=") != np.float32:
        msg = f"{where} has dtype {dtype}, needs float32; {_HOW}"
        raise LoadError(msg)
    needed = 4 * int(np.prod([int(length) for length in shape], dtype=object))
    content = stream.read(size)
    if min(shape, default=0) < 1 or len(content) != needed:
        msg = f"{where}: shape {shape} takes {needed:,} bytes, and {len(content):,} follow; {_HOW}"
        raise LoadError(msg)
    flat = np.frombuffer(content, dtype).astype(np.float32)
    return flat.reshape(shape, order="F" if is_fortran else "C")


def _tables(
    array: NDArray[Any], name: str, where: str
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Take an array of several tables apart."""
    if array.ndim == 2:
        yield name or "0", np.ascontiguousarray(array)
    elif array.ndim == 3 and not name.strip("0123456789"):
        for at in range(array.shape[1]):
            yield f"{name}.{at}" if name else str(at), np.ascontiguousarray(array[:, at])
    else:
        msg = f"{where} has {array.ndim} axes, needs 2: samples and numbers; {_HOW}"
        raise LoadError(msg)


def _refuse_size(size: int, where: str) -> None:
    if size > _MOST_BYTES:
        msg = f"{where}: {size:,} bytes unpacked, at most {_MOST_BYTES:,} are read; dump fewer rows"
        raise LoadError(msg)
