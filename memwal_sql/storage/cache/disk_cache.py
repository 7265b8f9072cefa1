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
import os
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from weakref import WeakSet, finalize

from exec_nodes.base.tasks import is_ending, map_in_threads
from memwal_sql.errors import InvalidCallError, MemWalError, NotFoundError
from memwal_sql.life_log import life_log
from memwal_sql.storage.objects.protocol import check_path, checked

_log = life_log(__name__)

_LIST = "files.json"
_ADDING = ".adding"
_TEMPORARY = ".tmp-"
_PIECE_BYTES = 16 << 20
_READERS = 4
# Each takes a descriptor, of which a process has 1,024 where nobody says otherwise.
_MOST_OPEN = 256
# The next copy would meet the same full disk, or the store that denies.
_PAUSE_SECONDS = 60.0


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
FindFiles = Callable[[], Sequence[OriginalFile] | None]


def check_owner(folder: Path) -> None:
    """Refuse a folder of copies that another user could have filled: checksums have no key, so
    whoever can write there decides what is read. A folder that does not exist yet is allowed.

    Raises InvalidCallError naming the folder.
    """
    try:
        status = folder.lstat()
    except OSError:  # not there, or a disk that is gone
        return
    if not stat.S_ISDIR(status.st_mode):
        why = "is a symbolic link or no folder"
    elif status.st_uid != os.geteuid():
        why = f"belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    else:
        return
    raise InvalidCallError(
        f"cache_dir: {folder} {why}, who could change the rows that queries read: remove it, or "
        "give a cache_dir of your own"
    )


class CachedFolder:
    """A copy that is whole, and is not evicted as long as this object lives."""

    def __init__(self, path: Path, listed: FileIO) -> None:
        """`listed` is its list, open and locked."""
        self.path = path
        self._listed = os.fstat(listed.fileno())
        self.release = finalize(self, listed.close)

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed it all the same."""
        try:
            return not os.path.samestat(os.stat(self.path / _LIST), self._listed)
        except OSError:
            return True


class DiskCache:
    """The copies in one folder. Safe to use from several threads and processes, of one machine.

    A disk that is full, read-only or gone is not an error: there are no copies then, nor in a
    folder that `check_owner` refuses.
    """

    def __init__(
        self, folder: Path, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._clock = clock
        self._failed = -inf
        self._open: WeakSet[CachedFolder] = WeakSet()
        self._checked: set[tuple[int, ...]] = set()

    def open(self, name: str) -> CachedFolder | None:
        """A copy; None where there is none, or too many are open. Each of its files is checked once
        as long as nobody touches it; a copy that is damaged is removed."""
        path = self.folder / name
        if len(self._open) >= _MOST_OPEN:
            return None
        try:
            check_owner(self.folder)  # again, as it may be another one than when it was configured
            cached = CachedFolder(path, listed := FileIO(path / _LIST))
        except OSError:
            return None
        except InvalidCallError:
            _log.warning("%s is not safe any more; files are read from the store", self.folder)
            return None
        try:
            fcntl.flock(listed, fcntl.LOCK_SH)
            if cached.is_gone:  # evicted before the lock
                return None
            if self._is_whole(path):
                with suppress(OSError):
                    os.utime(path / _LIST)
                self._open.add(cached)
                return cached
        except OSError as error:
            _log.debug("%s can't be read: %s", path, type(error).__name__)
            return None
        _log.warning("%s is damaged and is copied again", path)
        cached.release()
        self._evict(path)
        return None

    def add(self, name: str, find_files: FindFiles, like: str) -> bool:
        """Copy files under a name, where they find room; unique ones that are there in folders
        whose names begin with `like` are linked. False where they are not copied: there is a copy,
        somebody else is making one of something, it is not possible, or it was not a minute ago."""
        path = self.folder / name
        if self._clock() - self._failed < _PAUSE_SECONDS or (path / _LIST).exists():
            return False
        try:
            files = find_files()
            if files is None or sum(file.size for file in files) > self.max_bytes:
                return False
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_owner(self.folder)
            with self._alone() as alone:
                return alone and not (path / _LIST).exists() and self._add(path, files, like)
        except (OSError, MemWalError) as error:
            _log.debug("%s is not copied: %s", path, type(error).__name__)
            if not isinstance(error, NotFoundError):  # merged and collected meanwhile
                self._failed = self._clock()
            return False

    def nbytes(self) -> int:
        # Counted by inode, as versions of a table share files. Files that others remove now are
        # passed over.
        sizes = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    status = os.lstat(os.path.join(folder, name))
                    sizes[status.st_dev, status.st_ino] = status.st_size
        return sum(sizes.values())

    def _add(self, path: Path, files: Sequence[OriginalFile], like: str) -> bool:
        # Left by a process that died, or without a list because somebody has removed it.
        for folder in (*self.folder.glob(f"{_TEMPORARY}*"), path):
            shutil.rmtree(folder, ignore_errors=True)
        copies_made = self._make_room(like, files)
        if copies_made is None:
            return False
        temporary = Path(mkdtemp(prefix=_TEMPORARY, dir=self.folder))
        try:
            copies = [(file.path, self._copy(file, temporary, copies_made)) for file in files]
            content = {name: [copy.size, copy.checksum] for name, copy in copies}
            (temporary / _LIST).write_text(json.dumps(content))
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def _copies_of(self, like: str, files: Sequence[OriginalFile]) -> _Copies:
        """Copies of the unique files in folders whose names begin so."""
        sizes = {file.path: file.size for file in files if file.is_unique}
        copies_made = {}
        for folder in self.folder.glob(f"{like}*"):
            for name, file in (_listed(folder) or {}).items():
                if sizes.get(name) == file.size:
                    copies_made[name] = folder / name, file
        return copies_made

    def _make_room(self, like: str, files: Sequence[OriginalFile]) -> _Copies | None:
        """Evict until the needed files and the remaining copies, which are returned, are within the
        bound; None if they can't be."""
        evictable = sorted(self.folder.glob(f"[!.]*/{_LIST}"), key=_last_opened)
        while True:
            copied = self._copies_of(like, files)  # some may just have been evicted
            needed = sum(file.size for file in files if file.path not in copied)
            if self.nbytes() + needed <= self.max_bytes:
                return copied
            if not evictable:
                return None
            self._evict(evictable.pop(0).parent)

    def _evict(self, path: Path) -> None:
        """Remove a copy unless somebody holds it."""
        try:
            with (path / _LIST).open("rb") as listed:
                fcntl.flock(listed, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(path / _LIST), os.fstat(listed.fileno())):
                    going = Path(mkdtemp(prefix=_TEMPORARY, dir=self.folder))
                    path.rename(going)
                    shutil.rmtree(going, ignore_errors=True)
        except OSError as error:
            _log.debug("%s stays: %s", path, type(error).__name__)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether nobody else adds a copy meanwhile, here or in another process."""
        with (self.folder / _ADDING).open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            try:
                yield True
            finally:  # also where a process that was forked off has it open
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _copy(self, file: OriginalFile, folder: Path, copied: _Copies) -> _CopiedFile:
        check_path(file.path)
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.path in copied:
            source, listed = copied[file.path]
            if self._is_as_listed(source, listed):
                with suppress(OSError):  # a file system without links
                    os.link(source, target)
                    return listed
        return _download(file, target)

    def _is_whole(self, folder: Path) -> bool:
        files = _listed(folder)
        if files is None:
            return False
        pairs = [(folder / name, file) for name, file in files.items()]
        return all(map_in_threads(lambda pair: self._is_as_listed(*pair), pairs, _READERS))

    def _is_as_listed(self, path: Path, file: _CopiedFile) -> bool:
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                return False
            identity = (
                status.st_dev,
                status.st_ino,
                status.st_mtime_ns,
                status.st_size,
                file.checksum,
            )
            if identity in self._checked:
                return True
            if status.st_size != file.size or _checksum(path) != file.checksum:
                return False
        except (OSError, ValueError):
            return False
        self._checked.add(identity)
        return True


def _download(file: OriginalFile, target: Path) -> _CopiedFile:
    checksum = 0
    with target.open("wb") as copy:
        for start in range(0, file.size, _PIECE_BYTES):
            if is_ending():
                raise OSError("the process ends")
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
        checked(content)
        return {name: _CopiedFile(*file) for name, file in content.items()} or None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb", buffering=0) as copy:
        while data := copy.read(_PIECE_BYTES):
            checksum = zlib.crc32(data, checksum)
    return checksum


def _last_opened(listed: Path) -> float:
    with suppress(OSError):
        return listed.stat().st_mtime
    return -inf  # another process has evicted it since it was listed
