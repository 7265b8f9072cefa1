"""Folders on a local disk within a bound, which processes share.

Each is a copy of something that never changes, with a list of its files and their CRC-32. It is
made under another name and renamed, so that it is there whole or not at all, and read only after
all of it was checked. Who reads one holds a lock on its list, as Lance opens files by their paths
when it needs them; the others are evicted, first what was opened the longest ago.
Libraries of caches hand out values, or files that may go while they are read.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from weakref import finalize

from exec_nodes.base.tasks import map_in_threads
from memwal_sql.errors import MemWalError
from memwal_sql.storage.objects.protocol import check_path

_log = logging.getLogger(__name__)

_LIST = "files.json"
_ADDING = ".adding"
_TEMPORARY = ".tmp-"
_PIECE_BYTES = 16 << 20
_READERS = 4


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """A file to be copied: its path in the folder, its size in bytes, and how to `read` its bytes
    from a start to an end. `is_unique`: no other file has its path, in any folder that is like."""

    path: str
    size: int
    read: Callable[[int, int], bytes]
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class _CopiedFile:
    size: int
    checksum: int


_Copies = Mapping[str, tuple[Path, _CopiedFile]]


class CachedFolder:
    """A copy that is whole, and is not evicted as long as this object lives."""

    def __init__(self, path: Path, listed: int) -> None:
        """`listed` is its list, open and locked."""
        self.path = path
        self._listed = os.fstat(listed)
        self.release = finalize(self, os.close, listed)

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed it all the same."""
        try:
            return not os.path.samestat(os.stat(self.path / _LIST), self._listed)
        except OSError:
            return True


class DiskCache:
    """The copies in one folder. Safe to use from several threads and processes, of one machine.

    A disk that is full, read-only or gone is no error: there are no copies then.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._lock = Lock()

    def open(self, name: str) -> CachedFolder | None:
        """A copy, checked; None where there is none. One that is damaged is removed."""
        path = self.folder / name
        try:
            listed = os.open(path / _LIST, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        found = CachedFolder(path, listed)
        try:
            fcntl.flock(listed, fcntl.LOCK_SH)
            if found.is_gone:  # evicted before the lock
                return None
            if _is_whole(path):
                with suppress(OSError):
                    os.utime(path / _LIST)
                return found
        except OSError as error:
            _log.debug("%s can't be read: %s", path, type(error).__name__)
            return None
        _log.warning("%s is damaged and is copied anew", path)
        found.release()
        self._evict(path)
        return None

    def add(self, name: str, files: Sequence[OriginalFile], like: str) -> bool:
        """Copy files under a name, where they find room; unique ones that are there in folders
        whose names begin with `like` are linked. False where they are not copied: there is a copy,
        or another process is making one of something, or it is not possible."""
        path = self.folder / name
        try:
            if sum(file.size for file in files) > self.max_bytes or (path / _LIST).exists():
                return False
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone() as alone:
                return alone and not (path / _LIST).exists() and self._add(path, files, like)
        except (OSError, MemWalError) as error:
            _log.debug("%s is not copied: %s", path, type(error).__name__)
            return False

    def nbytes(self) -> int:
        """What all copies take."""
        # By inode: a file of several versions of a table is there once. What others remove now
        # is passed over.
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    status = os.lstat(os.path.join(folder, name))
                    found[status.st_dev, status.st_ino] = status.st_size
        return sum(found.values())

    def _add(self, path: Path, files: Sequence[OriginalFile], like: str) -> bool:
        # By a process that died, or without the list, which somebody has removed.
        for left in (*self.folder.glob(f"{_TEMPORARY}*"), path):
            shutil.rmtree(left, ignore_errors=True)
        there = self._make_room(like, files)
        if there is None:
            return False
        temporary = Path(mkdtemp(prefix=_TEMPORARY, dir=self.folder))
        try:
            listed = {file.path: _copied(file, temporary, there.get(file.path)) for file in files}
            content = {name: [one.size, one.checksum] for name, one in listed.items()}
            (temporary / _LIST).write_text(json.dumps(content))
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def _copies_of(self, like: str, files: Sequence[OriginalFile]) -> _Copies:
        """Copies of the unique files in folders whose names begin so."""
        sizes = {file.path: file.size for file in files if file.is_unique}
        found = {}
        for folder in self.folder.glob(f"{like}*"):
            for name, file in (_listed(folder) or {}).items():
                if sizes.get(name) == file.size:
                    found[name] = folder / name, file
        return found

    def _make_room(self, like: str, files: Sequence[OriginalFile]) -> _Copies | None:
        """Evict until what is needed beside the copies that are there, which are returned, is
        within the bound; None where it is not."""
        evictable = sorted(self.folder.glob(f"[!.]*/{_LIST}"), key=lambda one: one.stat().st_mtime)
        while True:
            there = self._copies_of(like, files)  # of which some may just have been evicted
            needed = sum(file.size for file in files if file.path not in there)
            if self.nbytes() + needed <= self.max_bytes:
                return there
            if not evictable:
                return None
            self._evict(evictable.pop(0).parent)

    def _evict(self, path: Path) -> None:
        """Remove a copy unless somebody holds it."""
        try:
            listed = os.open(path / _LIST, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.flock(listed, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(path / _LIST), os.fstat(listed)):
                going = Path(mkdtemp(prefix=_TEMPORARY, dir=self.folder))
                path.rename(going)
                shutil.rmtree(going, ignore_errors=True)
        except OSError as error:
            _log.debug("%s stays: %s", path, type(error).__name__)
        finally:
            os.close(listed)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether nobody else adds a copy meanwhile; threads of this process wait."""
        with self._lock:
            lock = os.open(self.folder / _ADDING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                try:
                    yield True
                finally:  # also where a process that was forked off has it open
                    fcntl.flock(lock, fcntl.LOCK_UN)
            finally:
                os.close(lock)


def _copied(
    file: OriginalFile, folder: Path, there: tuple[Path, _CopiedFile] | None
) -> _CopiedFile:
    check_path(file.path)
    target = folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if there is not None and _is_as_listed(*there):
        with suppress(OSError):  # a file system without links
            os.link(there[0], target)
            return there[1]
    checksum = 0
    with target.open("wb") as copy:
        for start in range(0, file.size, _PIECE_BYTES):
            end = min(start + _PIECE_BYTES, file.size)
            data = file.read(start, end)
            if len(data) != end - start:
                raise OSError(f"{file.path} gave {len(data)} bytes from {start} to {end}")
            checksum = zlib.crc32(data, checksum)
            copy.write(data)
    return _CopiedFile(file.size, checksum)


def _listed(folder: Path) -> Mapping[str, _CopiedFile] | None:
    """The list of a copy's files; None where it is damaged."""
    try:
        content = json.loads((folder / _LIST).read_bytes())
        return {name: _CopiedFile(*file) for name, file in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _is_whole(folder: Path) -> bool:
    files = _listed(folder)
    if files is None:
        return False
    pairs = [(folder / name, file) for name, file in files.items()]
    return all(map_in_threads(lambda pair: _is_as_listed(*pair), pairs, _READERS))


def _is_as_listed(path: Path, file: _CopiedFile) -> bool:
    checksum = 0
    try:
        if path.stat().st_size != file.size:
            return False
        with path.open("rb", buffering=0) as copy:
            while data := copy.read(_PIECE_BYTES):
                checksum = zlib.crc32(data, checksum)
    except (OSError, ValueError):
        return False
    return checksum == file.checksum
