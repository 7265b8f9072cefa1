"""A disk whose power may fail: what was synced is there afterwards, all else may not be.

A file is there as it was when it was synced last, under a name that its folder had when that was
synced last, and so on up to a folder that was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from unittest.mock import patch

_Place = tuple[int, int]


class Disk:
    """Notes what is synced, by whatever name, while it is `watched`."""

    def __init__(self) -> None:
        self._files: dict[_Place, tuple[int, int]] = {}
        self._folders: dict[_Place, dict[str, int]] = {}
        self._lock = Lock()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take note of what this process syncs."""
        fsync = os.fsync

        def noted(file: int) -> None:
            fsync(file)
            self._note(file)

        with patch.object(os, "fsync", noted):
            yield

    def lost(self, folder: Path, above: Path) -> set[str]:
        """Which files below `folder` a failure now may take, or leave in an older state; `above` is
        a folder that is safe."""
        return {
            str(file.relative_to(folder))
            for file in folder.rglob("*")
            if file.is_file() and not self._is_safe(file, above)
        }

    def _note(self, file: int) -> None:
        stat = os.fstat(file)
        place = stat.st_dev, stat.st_ino
        with self._lock:
            try:
                with os.scandir(file) as entries:
                    self._folders[place] = {one.name: one.inode() for one in entries}
            except NotADirectoryError:
                self._files[place] = stat.st_size, stat.st_mtime_ns

    def _is_safe(self, file: Path, above: Path) -> bool:
        stat = file.stat()
        if self._files.get((stat.st_dev, stat.st_ino)) != (stat.st_size, stat.st_mtime_ns):
            return False
        while file != above:
            stat, parent = file.stat(), file.parent.stat()
            names = self._folders.get((parent.st_dev, parent.st_ino), {})
            if names.get(file.name) != stat.st_ino:
                return False
            file = file.parent
        return True
