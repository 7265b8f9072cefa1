"""Folders below a root, reached without following a link.

A link among a table's folders would have whoever collects, claims or publishes delete and write
wherever the link's maker wants, with rights that its maker may not have. So each step from the root
is opened as a folder and as nothing else, and what is done is done by the folder that is open. The
root itself may be a link: who opens a table names it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator

from memwal_sql.errors import CorruptFileError
from memwal_sql.storage.objects.whole_file import opened, sync_path

# No folder of this package or Lance is half as deep, and each level is an open file.
MOST_LEVELS = 32
# Some 20,000 regions' folders in 10 MB; folders that were forgotten are synced once more.
_MOST_FOLDERS = 1 << 16
# Linux's FS_IOC_GETVERSION.
_GET_VERSION = 0x80087601
_FLAGS = os.O_RDONLY | os.O_DIRECTORY


@contextlib.contextmanager
def open_folder(root: str, path: str, durable: dict[str, int] | None = None) -> Iterator[int]:
    """The folder `path` (relative; "" is the root itself), open; made when it is missing if
    `durable` is given: the folders, by path, and what tells them from others at their places, that
    are known to survive a power failure, which takes up more. Another one that is there is made so
    too, as whoever made it may not have come to that.

    Raises CorruptFileError naming the step that is a link, and what `os.open` raises.
    """
    if durable is not None:
        _make_root(root)
    folder, shown = os.open(root, _FLAGS), root
    try:
        for name in path.split("/") if path else ():
            shown = f"{shown}/{name}"
            outer, folder = folder, _step(folder, name, shown, durable)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


def remove_empty(root: str, path: str) -> None:
    """Remove the folder `path` and those above it, below the root, as far as they are empty."""
    while path:
        parent, _, name = path.rpartition("/")
        try:
            with open_folder(root, parent) as folder:
                os.rmdir(name, dir_fd=folder)
        except OSError:
            return
        path = parent


def walk(
    folder: int, path: str, levels: int = MOST_LEVELS
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file at any depth below an open folder, with its path: `path` and what follows.

    A link counts as a file, whatever it leads to. The entry can be asked until the next one. Raises
    CorruptFileError for folders that are deeper than any of a table.
    """
    with os.scandir(folder) as scan:
        entries = list(scan)
    for entry in entries:
        inside = f"{path}/{entry.name}" if path else entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield inside, entry
        elif not levels:
            raise CorruptFileError(
                f"{inside} is a folder more than {MOST_LEVELS} levels deep, which nothing of a "
                "table is: move it away"
            )
        else:
            # Whoever empties the folder meanwhile, or puts a link there, is passed over.
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                opened(entry.name, _FLAGS | os.O_NOFOLLOW, dir_fd=folder) as inner,
            ):
                yield from walk(inner, inside, levels - 1)


def folder_names(folder: int, path: str) -> list[str]:
    """The names of the folders in an open one. Raises CorruptFileError for a link to a folder: what
    is in it would be missed without a word."""
    with os.scandir(folder) as scan:
        entries = list(scan)
    for entry in entries:
        if entry.is_symlink() and entry.is_dir():
            raise _link(f"{path}/{entry.name}")
    return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def refuse_link(folder: int, name: str, shown: str) -> None:
    """Raise CorruptFileError naming `shown` where a name in an open folder is a link."""
    with contextlib.suppress(OSError):  # the answer for everything that is not a link
        os.readlink(name, dir_fd=folder)
        raise _link(shown)


def refuse_links_of(root: str, folders: Iterable[str]) -> None:
    """Raise CorruptFileError where one of the folders, relative to `root`, is a link."""
    for folder in folders:
        if os.path.islink(f"{root}/{folder}"):
            raise _link(f"{root}/{folder}")


def refuse_links_below(root: str) -> None:
    """Raise CorruptFileError where a folder below `root`, at any depth, is a link. For callers that
    follow links, as Lance does when it deletes unknown files."""
    for parent, names, _ in os.walk(root):
        for name in names:
            if os.path.islink(os.path.join(parent, name)):
                raise _link(os.path.join(parent, name))


def _step(folder: int, name: str, shown: str, durable: dict[str, int] | None) -> int:
    """A folder in an open one, open too."""
    if durable is None:
        return _open(folder, name, shown)
    try:
        inner = _open(folder, name, shown)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        durable.pop(shown, None)
        inner = _open(folder, name, shown)
    try:
        identity = _identity(inner)
        if durable.get(shown) != identity:
            os.fsync(folder)
            if len(durable) >= _MOST_FOLDERS:
                durable.clear()
            durable[shown] = identity
    except BaseException:
        os.close(inner)
        raise
    return inner


def _identity(folder: int) -> int:
    """The inode of an open folder, and above its 64 bits the inode's version: file systems give the
    inode of a removed folder away again, with another version."""
    try:
        version = fcntl.ioctl(folder, _GET_VERSION, bytes(8))
    except OSError:  # this file system has none
        version = b""
    return os.fstat(folder).st_ino | int.from_bytes(version) << 64


def _open(folder: int, name: str, shown: str) -> int:
    try:
        return os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        refuse_link(folder, name, shown)
        raise


def _make_root(root: str) -> None:
    if os.path.isdir(root):
        return
    parent = os.path.dirname(root)
    _make_root(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(root)
    sync_path(parent)


def _link(shown: str) -> CorruptFileError:
    return CorruptFileError(
        f"{shown} is a symbolic link to a folder, and nothing is listed, written or deleted "
        "through one: remove the link, or, if it is in the place of a folder of the table's, put "
        "the folder itself there (the table's own folder may be a link)"
    )
