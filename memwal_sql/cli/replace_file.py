"""A file of the user's that is replaced as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from memwal_sql.cli.sinks import named_errors, named_sink
from memwal_sql.storage.objects.whole_file import sync_path

_DEVICES = Path("/dev")
_OPEN_FILES = _DEVICES / "fd"


@contextmanager
def replaced_file(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends well, whole for every reader, also in a crash.

    It is written under a new name, which nobody can have linked elsewhere, and synced. What is no
    file, as a pipe, and what is open already, as `/dev/stdout`, is written into, after what is
    there. Raises InvalidCallError where that can't be, but BrokenPipeError where a reader left.
    """
    named = partial(named_errors, repr(str(file)))
    with named():
        mode = _mode(file)
        number = _descriptor(file)
    if number is not None or not (mode is None or stat.S_ISREG(mode)):
        with named():
            opened = file if number is None else number
            sink = open(opened, "wb", closefd=number is None)  # noqa: SIM115 (see `_written`)
        with _written(sink, file):
            yield named_sink(sink, repr(str(file)))
        return
    beside = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}")
    # Nobody may open it who may not read what it replaces.
    rights = partial(os.open, mode=0o666 if mode is None else 0o600)
    try:
        with named():
            sink = open(beside, "xb", opener=rights)  # noqa: SIM115
        with _written(sink, file, os.fsync):
            if mode is not None:
                os.fchmod(sink.fileno(), stat.S_IMODE(mode) & 0o777)
            yield named_sink(sink, repr(str(file)))
        with named():
            os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    with named():
        sync_path(file.parent)


@contextmanager
def _written(
    sink: BufferedWriter, file: Path, sync: Callable[[int], None] = lambda _: None
) -> Iterator[None]:
    """Close the file, written and synced if the block ends well."""
    try:
        yield
        with named_errors(repr(str(file))):
            sink.flush()
            sync(sink.fileno())
            sink.close()
    finally:
        with suppress(OSError):  # what is not written by then was told, or is half of something
            sink.close()


def _mode(file: Path) -> int | None:
    """What `file` is, by its mode; None: nothing yet, or a link to nothing."""
    try:
        return file.stat().st_mode
    except FileNotFoundError:
        return None


def _descriptor(file: Path) -> int | None:
    """The number of the open file that `file` names, as `/dev/stdout` and `/proc/self/fd/1` do:
    to open it by that name would empty what it was redirected to."""
    parent = file.parent.resolve()
    if parent == _DEVICES and file.is_symlink():
        file = parent / file.readlink()
        parent = file.parent.resolve()
    return int(file.name) if file.name.isdecimal() and parent == _OPEN_FILES.resolve() else None
