"""A folder of a local disk, on plain calls of the operating system.

A put becomes visible whole: the bytes go to a file without a name, or with a temporary one, which
is synced and then linked to its name. The link fails when the name is taken, which is what makes it
a `put_if_absent`. The folder is synced too, so an acknowledged object survives a power failure.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from memwal_sql.errors import NotFoundError, OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage.object_store import Metas, Names, ObjectMeta
from memwal_sql.storage.whole_file import (
    TEMPORARY_PREFIX,
    create_whole,
    temporary_name,
    write_all,
)

_PARALLEL_SYNCS = 8

_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; remount it for writing",
    errno.EACCES: "permission denied; give this user access to the folder",
    errno.EPERM: "operation not permitted; give this user access to the folder",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
    errno.ENFILE: "too many open files on this machine; raise the system's limit",
}


class LocalStore:
    """The folder `root`, made when something is written."""

    remote = False

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)

    @property
    def uri(self) -> str:
        """The folder's absolute path."""
        return self._root

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def get(self, path: str) -> bytes:
        """The object's bytes."""
        with _reading(self._full(path)) as full, open(full, "rb", buffering=0) as file:
            return file.read()

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes and the object's size."""
        with _reading(self._full(path)) as full, open(full, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), length, max(0, size - length)), size

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`."""
        with _reading(self._full(path)) as full, open(full, "rb", buffering=0) as file:
            return os.pread(file.fileno(), end - start, start)

    def put(self, path: str, data: bytes) -> None:
        """Write or replace atomically, without syncing."""
        full = self._full(path)
        with _writing(full):
            temporary = temporary_name(full)
            try:
                with _created(temporary) as file:
                    write_all(file, data)
                os.replace(temporary, full)
            except BaseException:
                _unlink(temporary)
                raise

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create durably; False when the name is taken."""
        full = self._full(path)
        with _writing(full), _open_folder(os.path.dirname(full)) as folder:
            if not create_whole(folder, full, data):
                return False
            try:
                os.fsync(folder)
            except OSError as error:
                raise OutcomeUnknownError(
                    f"{full} was written but its folder could not be synced: {error.strerror}"
                ) from error
        return True

    def sync(self, folder: str) -> None:
        """Sync all files and folders below a folder, or one object, and the folders above it."""
        full = self._full(folder)
        with _writing(full), ThreadPoolExecutor(_PARALLEL_SYNCS) as pool:
            paths = [*_tree(full)]
            while len(full) > len(self._root):
                full = os.path.dirname(full)
                paths.append(full)
            # File systems join what is synced at the same time into one commit of their journal.
            for _ in pool.map(_sync_path, paths):
                pass

    def move(self, source: str, target: str) -> None:
        """Rename the folder and sync both parents."""
        old, new = self._full(source), self._full(target)
        with _reading(old), _writing(new):
            _make_folder(os.path.dirname(new))
            os.rename(old, new)
            for folder in {os.path.dirname(old), os.path.dirname(new)}:
                _sync_path(folder)
        self._remove_empty_folders(os.path.dirname(old))

    def exists(self, path: str) -> bool:
        """Whether the object is there: one `stat`."""
        try:
            os.stat(f"{self._root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _unavailable(self._full(path), error) from error
        return True

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`, less those that vanish meanwhile."""
        return self._listed(prefix, temporary=False)

    def list_folders(self, prefix: str) -> Names:
        """Names of the folders directly below the folder `prefix`."""
        with _reading(self._full(prefix)) as full:
            try:
                entries = list(os.scandir(full))
            except FileNotFoundError:
                return []
        return [entry.name for entry in entries if entry.is_dir()]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects in order, and folders that this leaves empty."""
        for path in paths:
            full = self._full(path)
            with _writing(full):
                _unlink(full)
            self._remove_empty_folders(os.path.dirname(full))

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """The same; folders are looked at once, when all of their objects have gone."""
        folders = set()
        for path in paths:
            full = self._full(path)
            with _writing(full):
                _unlink(full)
            folders.add(os.path.dirname(full))
        for folder in sorted(folders, key=len, reverse=True):
            self._remove_empty_folders(folder)

    def leftovers(self, prefix: str) -> Metas:
        """Temporary files below the folder `prefix`."""
        return self._listed(prefix, temporary=True)

    def _listed(self, prefix: str, *, temporary: bool) -> Metas:
        found = []
        with _reading(self._full(prefix)) as full:
            for entry in _walk(full):
                if entry.name.startswith(TEMPORARY_PREFIX) is not temporary:
                    continue
                # Native code stages its puts beside them, and a collector deletes.
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat()
                    path = entry.path[len(self._root) + 1 :]
                    found.append(ObjectMeta(path, stat.st_size, stat.st_mtime))
        return found

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _remove_empty_folders(self, folder: str) -> None:
        while len(folder) > len(self._root):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)


def _tree(folder: str) -> Iterator[str]:
    if os.path.isfile(folder):
        yield folder
    for parent, _, names in os.walk(folder):
        yield parent
        yield from (os.path.join(parent, name) for name in names)


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        else:
            yield entry


@contextlib.contextmanager
def _open_folder(path: str) -> Iterator[int]:
    """A folder, open, and made when it is missing."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        folder = os.open(path, flags)
    except FileNotFoundError:
        _make_folder(path)
        folder = os.open(path, flags)
    try:
        yield folder
    finally:
        os.close(folder)


@contextlib.contextmanager
def _created(path: str) -> Iterator[int]:
    """A new file, open for writing, in a folder that is made when it is missing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        _make_folder(os.path.dirname(path))
        file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def _make_folder(folder: str) -> None:
    """Make a folder and its parents, each of them durable."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    _make_folder(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    _sync_path(parent)


def _sync_path(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


@contextlib.contextmanager
def _reading(full: str) -> Iterator[str]:
    try:
        yield full
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise NotFoundError(f"{full} is not there") from error
    except OSError as error:
        raise _unavailable(full, error) from error


@contextlib.contextmanager
def _writing(full: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unavailable(full, error) from error


def _unavailable(full: str, error: OSError) -> StoreUnavailableError:
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return StoreUnavailableError(f"{full}: {remedy}")
