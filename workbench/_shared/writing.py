"""Files that are whole or not there, also after a crash."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write_to: Callable[..., object]) -> None:
    """Write a file beside ``path`` and put it in place when it is complete and on the disk.

    Without waiting for the disk, a name can outlive a crash that its content did not; some file
    systems also tell only then that they are full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        # As any file that the user makes: who may read it is the user's umask's to say.
        with unfinished.open("xb") as file:
            write_to(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    _keep_name(path.parent)


# Without this a crash may lose the new name, though its content is on the disk.
def _keep_name(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
