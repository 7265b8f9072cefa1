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
from memwal_sql.storage.objects.whole_file import sync_path

_DEVICES = Path("/dev")
_OPEN_FILES = _DEVICES / "fd"


@contextmanager
def replaced_file(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends well, whole for every reader, also in a crash.

    It is written under a new name, which nobody can have linked elsewhere, and synced. What is no
    file, as a pipe, and what is open already, as `/dev/stdout`, is written into, after what is
    there. Raises InvalidCallError where that can't be.
    """
    with _named_errors(file):
        mode = _mode(file)
        number = _descriptor(file)
    if number is not None or not (mode is None or stat.S_ISREG(mode)):
        with _named_errors(file):
            sink = file.open("wb") if number is None else os.fdopen(os.dup(number), "wb")
        with sink:
            yield sink
        return
    with _named_errors(file):
        beside = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}")
        # Nobody may open it who may not read what it replaces.
        rights = 0o666 if mode is None else 0o600
        sink = os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, rights), "wb")
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
    sync_path(file.parent)


def _mode(file: Path) -> int | None:
    """What `file` is, by its mode; None: nothing yet, or a link to nothing."""
    try:
        return file.stat().st_mode
    except FileNotFoundError:
        return None


def _descriptor(file: Path) -> int | None:
    """The number of the open file that `file` names, as `/dev/stdout` and `/proc/self/fd/1` do:
    to open it by that name would empty what it was redirected to."""
    if file.parent == _DEVICES and file.is_symlink():
        file = file.parent / file.readlink()
    if file.name.isdecimal() and file.parent.resolve() == _OPEN_FILES.resolve():
        return int(file.name)
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
