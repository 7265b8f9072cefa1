"""A file of the user's that is replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced_file(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends well, whole for every reader, also in a crash.

    It is written under a new name, which nobody can have linked elsewhere, and synced.
    """
    handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as sink:
            yield sink
            sink.flush()
            os.fchmod(sink.fileno(), _mode(file))
            os.fsync(sink.fileno())
        os.replace(beside, file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mode(file: Path) -> int:
    """The permissions of the file that is replaced, else of one that anybody would make."""
    with contextlib.suppress(FileNotFoundError):
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
