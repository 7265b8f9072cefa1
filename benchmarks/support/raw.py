"""The limit of a durable write: the same bytes, written and synced with plain system calls."""

from __future__ import annotations

import os
from pathlib import Path


def write_and_sync(path: Path, data: bytes) -> None:
    """Write a new file and sync it and its folder."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(file, data)
        os.fsync(file)
    finally:
        os.close(file)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file or a folder that somebody else wrote."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def forget(folder: Path) -> None:
    """Drop every file under `folder` from the page cache, so that the next read is cold."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
