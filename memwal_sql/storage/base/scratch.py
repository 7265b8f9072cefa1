"""Lance's files of a new generation, or of a new table, on their way to a remote store.

Lance writes a table file by file, and lists and reads again what it wrote. Nobody knows of a
generation before the region's manifest names it, nor of a table before its first version is there:
so they are made in a folder of the local disk, and their files put side by side.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from itertools import takewhile

from memwal_sql.storage.objects.concurrent import map_remote, run_with
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.protocol import Content, ObjectStore
from memwal_sql.storage.paths import BASE_VERSIONS_FOLDER, base_version_of

# A version's transaction is within its manifest too.
_NOT_NEEDED = "_transactions"


def put_table(store: ObjectStore, folder: str, scratch: str, others: Mapping[str, bytes]) -> None:
    """Put the newest version of Lance's table in the local folder `scratch`, and `others` by name,
    into a folder whose random name is nobody else's.

    Raises what the store's `put` raises: then some are there, and maybe more come late; a
    generation is written again under another name.
    """
    files, versions = _files(scratch)
    paths = [*files, versions[max(versions)]]
    contents: dict[str, Content] = {path: _mapped(scratch, path) for path in paths} | dict(others)

    def put(path: str) -> None:
        store.put(f"{folder}/{path}", contents[path])

    map_remote(store.remote, put, contents)


def put_base(store: ObjectStore, scratch: str, after_first: Callable[[], None]) -> int:
    """Put the versions of Lance's table in the local folder `scratch`, two at least, as those of
    a new table at the root of `store`, each unless somebody else has committed its number; how
    many it was. `after_first` is called once the first one is there.

    Raises what the store and `after_first` raise: what is there then is a table without a MemWAL
    index, or nothing but files that no version names.
    """
    files, versions = _files(scratch)

    def commit(version: int) -> bool:
        path = versions[version]
        return settle_put(store, path, bytes(_mapped(scratch, path))) is None

    def put(path: str) -> None:
        store.put(path, _mapped(scratch, path))

    if not run_with(store.remote, lambda: commit(1), lambda: map_remote(store.remote, put, files)):
        return 0
    if not run_with(store.remote, lambda: commit(2), after_first):
        return 1
    return 2 + len(list(takewhile(commit, range(3, len(versions) + 1))))


def _files(scratch: str) -> tuple[list[str], dict[int, str]]:
    """Paths within the folder: of the files of rows and indexes, and of the versions' manifests."""
    files: list[str] = []
    versions: dict[int, str] = {}
    for parent, folders, names in os.walk(scratch):
        folder = os.path.relpath(parent, scratch)
        paths = [f"{folder}/{name}" for name in names]
        if folder == BASE_VERSIONS_FOLDER:
            versions = {n: path for path in paths if (n := base_version_of(path)) is not None}
            continue
        folders[:] = (name for name in folders if name != _NOT_NEEDED)
        files += paths
    return files, versions


def _mapped(scratch: str, path: str) -> memoryview:
    with open(f"{scratch}/{path}", "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
