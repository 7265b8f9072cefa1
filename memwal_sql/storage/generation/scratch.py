"""Lance's files of a new generation on their way to a remote store.

Lance writes a table file by file, and lists and reads again what it wrote. Nobody knows of a
generation before the region's manifest names it, so that it can be made in a folder of the local
disk, and its files put all at once.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping

from memwal_sql.storage.objects.protocol import Content, ObjectStore
from memwal_sql.storage.objects.side_by_side import side_by_side
from memwal_sql.storage.paths import BASE_VERSIONS_FOLDER, base_version_of

# The newest version's transaction is within its manifest too.
_NOT_NEEDED = "_transactions"


def put_table(store: ObjectStore, folder: str, scratch: str, others: Mapping[str, bytes]) -> None:
    """Put the newest version of Lance's table in the local folder `scratch`, and `others` by name,
    into a folder whose random name is nobody else's.

    Raises what the store's `put` raises: then some are there, and maybe more come late; a
    generation is written again under another name.
    """
    contents: dict[str, Content] = {path: _mapped(f"{scratch}/{path}") for path in _needed(scratch)}
    contents |= others

    def put(path: str) -> None:
        store.put(f"{folder}/{path}", contents[path])

    side_by_side(store.remote, put, contents)


def _needed(scratch: str) -> Iterator[str]:
    """Paths within the folder of the files that the newest version needs."""
    versions: dict[int, str] = {}
    for parent, folders, names in os.walk(scratch):
        folder = os.path.relpath(parent, scratch)
        if folder == BASE_VERSIONS_FOLDER:
            versions = {n: name for name in names if (n := base_version_of(name)) is not None}
            continue
        folders[:] = (name for name in folders if name != _NOT_NEEDED)
        yield from (f"{folder}/{name}" for name in names)
    yield f"{BASE_VERSIONS_FOLDER}/{versions[max(versions)]}"


def _mapped(path: str) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
