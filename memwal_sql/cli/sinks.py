"""Files and streams that rows are written into, with errors that name them."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import BinaryIO

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.whole_file import sync_path

_DEVICES = Path("/dev")


@contextmanager
def replaced_file(file: Path) -> Iterator[BinaryIO]:
    """Write what becomes `file` when the block ends well, whole for every reader, also in a crash.

    It is written under a new name, which nobody can have linked elsewhere, and synced. What is not
    a file, as a pipe, and what is open already, as `/dev/stdout`, is appended to. Raises
    InvalidCallError where that can't be, but BrokenPipeError where a reader left.
    """
    with named_errors(repr(str(file))):
        mode = _mode(file)
        parent = file.parent.resolve()
        if parent in (_DEVICES, (_DEVICES / "fd").resolve()) or not stat.S_ISREG(mode):
            with _written(open(file, "ab")) as sink:
                yield sink
            return
        temporary = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}")
        # Nobody may open it who may not read what it replaces.
        rights = partial(os.open, mode=0o600 if file.exists() else 0o666)
        try:
            with _written(open(temporary, "xb", opener=rights), os.fsync) as sink:
                if file.exists():
                    os.fchmod(sink.fileno(), stat.S_IMODE(mode) & 0o777)
                yield sink
            os.replace(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_path(file.parent)


@contextmanager
def _written(
    sink: BufferedWriter, sync: Callable[[int], None] = lambda _: None
) -> Iterator[BufferedWriter]:
    """Close the file, written and synced if the block ends well."""
    try:
        yield sink
        sink.flush()
        sync(sink.fileno())
    finally:
        with suppress(OSError):  # unwritten bytes were reported already, or are incomplete
            sink.close()


def _mode(file: Path) -> int:
    """The kind of `file`, by its mode; a new file, or a link to nothing, counts as regular."""
    try:
        return file.stat().st_mode
    except FileNotFoundError:
        return stat.S_IFREG


@contextmanager
def named_errors(
    name: str = "standard output",
    remedy: str = "name a file in a folder that is there, that has room and that you may write to",
) -> Iterator[None]:
    """An OSError of the block is one of writing `name`; BrokenPipeError is the reader's end."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise InvalidCallError(f"{name} can't be written: {reason}; {remedy}") from None


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output, flushed when the block ends well."""
    with named_errors():
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def drop_output() -> None:
    """Forget what standard output does not take: Python writes it once more at its end, and would
    replace the exit code."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
