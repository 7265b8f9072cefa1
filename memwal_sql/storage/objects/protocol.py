"""The operations of a store: few, so that a test's fake stays small."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from memwal_sql.errors import InvalidCallError

Content = bytes | memoryview
Names = list[str]  # inside the classes `list` is the method

_NO_NAMES = frozenset({"", ".", ".."})


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """One listed object: its path relative to the store's root, and its size in bytes.

    `modified` is when it was written, in seconds since 1970, by the store's clock; None where the
    store does not know. It does not take part in comparisons.
    """

    path: str
    size: int
    modified: float | None = field(default=None, compare=False)


Metas = list[ObjectMeta]


class ObjectEnd(NamedTuple):
    """The end of an object, the object's size in bytes and its `stamp`, which are true together."""

    data: bytes
    size: int
    stamp: Hashable


def check_path(path: str) -> None:
    """Refuse a path that may lead out of the root or that is another spelling of one: with an empty
    part, or one that is `.` or `..`. Every store asks, for every path and prefix.

    Raises InvalidCallError.
    """
    # Nearly all paths pass without being divided.
    odd = "//" in path or "/." in path or path[:1] in ("", "/", ".") or path[-1:] == "/"
    if not (odd and _NO_NAMES.intersection(path.split("/"))) and "\0" not in path:
        return
    raise InvalidCallError(
        f"{path!r} is not a path in a table: a part may not be empty, '.' or '..', nor have NUL"
    )


def checked(paths: Iterable[str]) -> list[str]:
    """All `paths`, once `check_path` has passed each of them."""
    listed_paths = list(paths)
    for path in listed_paths:
        check_path(path)
    return listed_paths


class ObjectStore(Protocol):
    """Objects below a table's root.

    Paths are relative, with `/` between their parts, and pass `check_path`. Missing objects are
    `NotFoundError`, a store that can't be used (full, read-only, no permission) is
    `StoreUnavailableError`, and a write of which nobody knows whether it landed is
    `OutcomeUnknownError`.
    """

    @property
    def uri(self) -> str:
        """The root, without credentials."""
        ...

    @property
    def remote(self) -> bool:
        """Whether requests take so long that many should be under way at once."""
        ...

    @property
    def service(self) -> str | None:
        """The server that put-if-absent relies on: the table's place and the server's address, to
        be probed before it is trusted; None where nothing needs to be probed."""
        ...

    def get(self, path: str) -> bytes:
        """The object's bytes."""
        ...

    def get_tail(self, path: str, length: int) -> ObjectEnd:
        """The last `length` bytes, or all when the object is shorter, in one request."""
        ...

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, exclusive."""
        ...

    def put(self, path: str, data: Content) -> None:
        """Write or replace whole; durable once it is synced. For hints, and under names that nobody
        else uses."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the object whole and durably. False when the store says that it exists already;
        that answer and `OutcomeUnknownError` are settled by reading back (protocol rule 3)."""
        ...

    def sync(self, folder: str) -> None:
        """Make durable what was written below a folder, or one object; "" is the whole table, and
        that it has its place. Most stores are so by nature."""
        ...

    def refuse_links(self, folders: Sequence[str] = ()) -> None:
        """Raise CorruptFileError where one of these folders is a link, or without any, one below
        the root: for those who follow links, as Lance does when it writes, and when it deletes what
        it does not know. Most stores have none."""
        ...

    def move(self, source: str, target: str) -> None:
        """Move a folder of objects to a name that nobody uses, durably; not in one step where the
        store has none. What Lance wrote moves too."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
        ...

    def stamp(self, path: str) -> Hashable | None:
        """A stamp that differs between objects that are at the same path at different times, as far
        as the store knows; None where there is no object. It costs as much as `exists`."""
        ...

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`, at any depth, in no order."""
        ...

    def list_folders(self, prefix: str) -> Names:
        """Names of the folders directly below the folder `prefix`, in no order."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects in the order given; those already gone are passed over."""
        ...

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """Delete objects in any order, with as few requests as the store can do it in."""
        ...

    def leftovers(self, prefix: str) -> Metas:
        """Leftovers of puts below a folder whose process died; they are never listed as objects. A
        put that is under way looks the same: tell them apart by age."""
        ...
