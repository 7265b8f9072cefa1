"""Files that are there whole or not at all, under names that nobody else has taken."""

from __future__ import annotations

import contextlib
import errno
import os
from uuid import uuid4

TEMPORARY_PREFIX = ".tmp-"

# A nameless file gets its name through /proc.
_NAMELESS = getattr(os, "O_TMPFILE", None) if os.path.isdir("/proc/self/fd") else None
# What file systems and kernels without nameless files answer.
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)


def create_whole(folder: int, path: str, data: bytes) -> bool:
    """Write a file, sync it and give it the name `path`; False when the name is taken.

    `folder` is the open folder of `path`, and is not synced. Where the file system can, the file
    has no name before it is whole: that is faster, and a crash leaves nothing behind.
    """
    file = _open_nameless(folder)
    if file is None:
        return _create_renamed(path, data)
    try:
        write_all(file, data)
        os.fsync(file)
        # A folder given for the source, too, is what makes the system follow the link in /proc.
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    finally:
        os.close(file)
    return True


def write_all(file: int, data: bytes) -> None:
    """Write all bytes, in as many calls as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def temporary_name(path: str) -> str:
    """A name beside `path` that no object has."""
    return f"{os.path.dirname(path)}/{TEMPORARY_PREFIX}{uuid4().hex}"


def _open_nameless(folder: int) -> int | None:
    if _NAMELESS is None:
        return None
    try:
        return os.open(".", os.O_WRONLY | os.O_CLOEXEC | _NAMELESS, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def _create_renamed(path: str, data: bytes) -> bool:
    temporary = temporary_name(path)
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    return True
