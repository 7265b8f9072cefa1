"""A folder of a local disk, on plain calls of the operating system.

A put becomes visible whole: the bytes go to a file without a name, or with a temporary one, which
is synced and then linked to its name. The link fails when the name is taken, which is what makes it
a `put_if_absent`. The folder is synced too, so an acknowledged object survives a power failure.

Nothing is listed, written, moved or deleted through a folder that is a link (`local_folders`).
Objects are read wherever they are, as Lance reads its own: a link to a file is an object.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import call
from typing import NamedTuple

from exec_nodes.base.tasks import map_in_threads
from memwal_sql.errors import (
    CorruptFileError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage.objects.errors import no_hard_links
from memwal_sql.storage.objects.local_folders import (
    folder_names,
    open_folder,
    refuse_link,
    refuse_links_below,
    refuse_links_of,
    remove_empty,
    walk,
)
from memwal_sql.storage.objects.protocol import (
    Content,
    Metas,
    Names,
    ObjectEnd,
    ObjectMeta,
    check_path,
    checked,
)
from memwal_sql.storage.objects.whole_file import (
    NEW_FILE,
    TEMPORARY_PREFIX,
    NoHardLinksError,
    create_whole,
    opened,
    sync_path,
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


class FileStamp(NamedTuple):
    """What differs between files of one path: the inode, the time in nanoseconds, the bytes."""

    inode: int
    time: int
    size: int


class LocalStore:
    """The folder `root`, made when something is written."""

    remote = False
    service = None

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._durable: dict[str, int] = {}

    @property
    def uri(self) -> str:
        return self._root

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def get(self, path: str) -> bytes:
        with (
            _reading(self._full(path)) as full,
            _opened(full) as file,
            open(file, "rb", buffering=0, closefd=False) as whole,
        ):
            return whole.read()

    def get_tail(self, path: str, length: int) -> ObjectEnd:
        with _reading(self._full(path)) as full, _opened(full) as file:
            status = os.fstat(file)
            size = status.st_size
            return ObjectEnd(
                os.pread(file, min(length, size), max(0, size - length)), size, _stamp(status)
            )

    def get_range(self, path: str, start: int, end: int) -> bytes:
        with _reading(self._full(path)) as full, _opened(full) as file:
            end = min(end, os.fstat(file).st_size)
            return os.pread(file, max(0, end - start), start)

    def put(self, path: str, data: Content) -> None:
        """Write or replace atomically, without syncing."""
        with self._writing_into(path) as (folder, name):
            temporary = temporary_name()
            try:
                with opened(temporary, NEW_FILE, 0o666, folder) as file:
                    write_all(file, data)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _unlink(folder, temporary)
                raise

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._writing_into(path) as (folder, name):
            if not create_whole(folder, name, data):
                return False
            try:
                os.fsync(folder)
            except OSError as error:
                raise OutcomeUnknownError(
                    f"{self._full(path)} was written but its folder could not be synced: "
                    f"{error.strerror}"
                ) from error
        return True

    def sync(self, folder: str) -> None:
        """Sync all files and folders below a folder, or one object, and the folders above it."""
        full = self._full(folder) if folder else self._root
        with _writing(full):
            syncs = [partial(_sync_existing, path) for path in _tree(full)]
            above = [] if folder else [*_parents(self._root)]
            while len(full) > len(self._root):
                full = os.path.dirname(full)
                above.append(full)
            syncs += [partial(sync_path, path) for path in above]
            # File systems join what is synced at the same time into one commit of their journal.
            map_in_threads(call, syncs, _PARALLEL_SYNCS)

    def refuse_links(self, folders: Sequence[str] = ()) -> None:
        """One `lstat` a folder; without any, all below the root are walked."""
        if folders:
            refuse_links_of(self._root, folders)
        else:
            refuse_links_below(self._root)

    def move(self, source: str, target: str) -> None:
        """Rename the folder and sync both parents."""
        old, new = self._full(source), self._full(target)
        with (
            _reading(old),
            open_folder(self._root, _parent(source)) as above_old,
            _writing(new),
            open_folder(self._root, _parent(target), self._durable) as above_new,
        ):
            refuse_link(above_old, os.path.basename(source), old)
            os.rename(
                os.path.basename(source),
                os.path.basename(target),
                src_dir_fd=above_old,
                dst_dir_fd=above_new,
            )
            for folder in (above_old, above_new):
                os.fsync(folder)
        remove_empty(self._root, _parent(source))

    def exists(self, path: str) -> bool:
        return self._stat(path) is not None

    def stamp(self, path: str) -> Hashable | None:
        """Inode, time and size: one `stat`."""
        status = self._stat(path)
        return None if status is None else _stamp(status)

    def _stat(self, path: str) -> os.stat_result | None:
        check_path(path)
        full = f"{self._root}/{path}"
        try:
            return os.stat(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unavailable(full, error) from error

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`, less those that vanish meanwhile."""
        return self._listed(prefix, temporary=False)

    def list_folders(self, prefix: str) -> Names:
        full = self._full(prefix)
        try:
            with _reading(full), open_folder(self._root, prefix) as folder:
                return folder_names(folder, full)
        except NotFoundError:
            return []

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects in order, and folders that this leaves empty."""
        for parent, inside in groupby(checked(paths), _parent):
            self._delete(parent, inside)
            remove_empty(self._root, parent)

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """The same; folders are looked at once, when all of their objects have gone."""
        targets = sorted(checked(paths))
        for parent, inside in groupby(targets, _parent):
            self._delete(parent, inside)
        for parent in sorted({_parent(path) for path in targets}, key=len, reverse=True):
            remove_empty(self._root, parent)

    def leftovers(self, prefix: str) -> Metas:
        return self._listed(prefix, temporary=True)

    def _listed(self, prefix: str, *, temporary: bool) -> Metas:
        metas: Metas = []
        with (
            contextlib.suppress(NotFoundError),
            _reading(self._full(prefix)),
            open_folder(self._root, prefix) as folder,
        ):
            for path, entry in walk(folder, prefix):
                if entry.name.startswith(TEMPORARY_PREFIX) is not temporary:
                    continue
                # Native code stages its puts beside them, and a collector deletes.
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    metas.append(ObjectMeta(path, status.st_size, status.st_mtime))
        return metas

    def _delete(self, parent: str, paths: Iterable[str]) -> None:
        with (
            _writing(f"{self._root}/{parent}"),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            open_folder(self._root, parent) as folder,
        ):
            for path in paths:
                with _writing(self._full(path)):
                    _unlink(folder, os.path.basename(path))

    def _full(self, path: str) -> str:
        check_path(path)
        return f"{self._root}/{path}"

    @contextlib.contextmanager
    def _writing_into(self, path: str) -> Iterator[tuple[int, str]]:
        """The folder of an object, open and made when it is missing, and the object's name."""
        with (
            _writing(self._full(path)),
            open_folder(self._root, _parent(path), self._durable) as folder,
        ):
            yield folder, os.path.basename(path)


def _tree(folder: str) -> Iterator[str]:
    if os.path.isfile(folder):
        yield folder
    for parent, _, names in os.walk(folder):
        yield parent
        yield from (os.path.join(parent, name) for name in names)


@contextlib.contextmanager
def _opened(full: str) -> Iterator[int]:
    """An object, open for reading. Refuses anything but a file, such as a pipe that nobody writes
    to."""
    with opened(full, os.O_RDONLY | os.O_NONBLOCK) as file:
        kind = os.fstat(file).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(full)
        if not stat.S_ISREG(kind):
            raise CorruptFileError(f"{full} is a pipe or a device: put the file in its place")
        yield file


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parents(folder: str) -> Iterator[str]:
    """The folders above a folder on its file system, which whoever made it may have made too, up
    to one that can't be read."""
    while not os.path.ismount(folder) and os.access(above := os.path.dirname(folder), os.R_OK):
        yield above
        folder = above


def _sync_existing(path: str) -> None:
    """Files that others collect meanwhile are passed over; links, pipes and devices are not
    ours."""
    with contextlib.suppress(FileNotFoundError):
        kind = os.lstat(path).st_mode
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            sync_path(path)


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _reading(full: str) -> Iterator[str]:
    try:
        yield full
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        # Taken for a free name it would end a log before its last entries.
        if os.path.islink(full):
            raise CorruptFileError(
                f"{full} is a link that leads to no file: put the file in its place"
            ) from error
        if isinstance(error, IsADirectoryError):
            raise CorruptFileError(f"{full} is a folder: put the file in its place") from error
        raise NotFoundError(f"{full} is not there") from error
    except OSError as error:
        _refuse(full, error)
        raise


@contextlib.contextmanager
def _writing(full: str) -> Iterator[None]:
    try:
        yield
    except NoHardLinksError as error:
        raise no_hard_links(full) from error
    except OSError as error:
        _refuse(full, error)
        raise


def _refuse(full: str, error: OSError) -> None:
    """Raise StoreUnavailableError for an error of the system. An OSError without a number is the
    TimeoutError of a signal handler."""
    if error.errno is not None:
        raise _unavailable(full, error) from error


def _unavailable(full: str, error: OSError) -> StoreUnavailableError:
    remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return StoreUnavailableError(f"{full}: {remedy}")


def _stamp(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_ino, status.st_mtime_ns, status.st_size)
