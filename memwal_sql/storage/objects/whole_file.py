"""Files that are there whole or not at all, under names that nobody else has taken."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from uuid import uuid4

TEMPORARY_PREFIX = ".tmp-"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

# A nameless file gets its name through /proc.
_NAMELESS = getattr(os, "O_TMPFILE", None) if os.path.isdir("/proc/self/fd") else None
# Answers of file systems and kernels without nameless files.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
# Answers of file systems without hard links: whoever made a file has the right to link it.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class NoHardLinksError(OSError):
    """The file system can't give a file its name only if the name is free."""


@contextlib.contextmanager
def opened(
    path: str | os.PathLike[str], flags: int, mode: int = 0o777, dir_fd: int | None = None
) -> Iterator[int]:
    """A file or folder by its descriptor, open within the block. Raises what `os.open` raises."""
    number = os.open(path, flags, mode, dir_fd=dir_fd)
    try:
        yield number
    finally:
        os.close(number)


def create_whole(folder: int, name: str, data: bytes) -> bool:
    """Write a file, sync it and give it a name in an open folder; False when the name is taken.

    The folder is not synced. Where the file system can, the file has no name before it is whole:
    that is faster, and a crash leaves nothing behind. Raises NoHardLinksError and other OSErrors.
    """
    if _NAMELESS is None:
        return _create_renamed(folder, name, data)
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(opened(".", os.O_WRONLY | _NAMELESS, 0o666, folder))
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            return _create_renamed(folder, name, data)
        try:
            write_all(file, data)
            os.fsync(file)
            _link(f"/proc/self/fd/{file}", name, folder)
        except FileExistsError:
            return False
    return True


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all bytes, in as many calls as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_path(path: str | os.PathLike[str]) -> None:
    """Sync a file or folder by its name."""
    with opened(path, os.O_RDONLY) as file:
        os.fsync(file)


def temporary_name() -> str:
    """A name that no object has."""
    return f"{TEMPORARY_PREFIX}{uuid4().hex}"


def _link(source: str, name: str, folder: int) -> None:
    # A folder given for the source, too, is what makes the system follow a link in /proc.
    try:
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise NoHardLinksError(*error.args) from error
        raise


def _create_renamed(folder: int, name: str, data: bytes) -> bool:
    temporary = temporary_name()
    try:
        with opened(temporary, NEW_FILE, 0o666, folder) as file:
            write_all(file, data)
            os.fsync(file)
        _link(temporary, name, folder)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    return True
