"""A file of the user's that is replaced as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from memwal_sql.errors import InvalidCallError

_DEVICES = Path("/dev")


@contextmanager
def replaced_file(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends well, whole for every reader, also in a crash.

    It is written under a new name, which nobody can have linked elsewhere, and synced. What is no
    file, as a pipe or `/dev/stdout`, is written into. Raises InvalidCallError where that can't be.
    """
    with _named_errors(file):
        mode = _mode(file)
    if file.parent == _DEVICES or not (mode is None or stat.S_ISREG(mode)):
        with _named_errors(file):
            sink = file.open("wb")
        with sink:
            yield sink
        return
    with _named_errors(file):
        beside = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}")
        sink = beside.open("xb")
    try:
        with sink:
            if mode is not None:
                os.fchmod(sink.fileno(), stat.S_IMODE(mode) & 0o777)
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        with _named_errors(file):
            os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mode(file: Path) -> int | None:
    """What `file` is, by its mode; None: nothing yet, or a link to nothing."""
    try:
        return file.stat().st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidCallError(
            f"{str(file)!r} can't be written: {error.strerror}; name a file in a folder that is "
            "there and that you may write to"
        ) from None
