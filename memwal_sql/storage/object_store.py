"""What a store offers: few operations, so that a test's fake stays small."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

Names = list[str]  # inside the classes `list` is the method


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """One listed object: its path relative to the store's root, and its size in bytes."""

    path: str
    size: int


class ObjectStore(Protocol):
    """Objects below a table's root.

    Paths are relative, with `/` between their parts. Missing objects are `NotFoundError`, a store
    that can't be used (full, read-only, no permission) is `StoreUnavailableError`, and a write
    of which nobody knows whether it landed is `OutcomeUnknownError`.
    """

    @property
    def uri(self) -> str:
        """The root, without credentials."""
        ...

    @property
    def remote(self) -> bool:
        """Whether requests take so long that many should be under way at once."""
        ...

    def get(self, path: str) -> bytes:
        """The object's bytes."""
        ...

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes, or all when the object is shorter, and the object's size."""
        ...

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, exclusive."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write or replace; not durable, for hints."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create the object whole and durably. False when the store says that it exists already;
        that answer and `OutcomeUnknownError` are settled by reading back (protocol rule 3)."""
        ...

    def sync(self, folder: str) -> None:
        """Make durable what others wrote below a folder; most stores are so by nature."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the object is there."""
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
