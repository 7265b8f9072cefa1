"""Chooses the files of a copy: those of a generation, or of a version of the base table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

from exec_nodes.base.tasks import in_background
from exec_nodes.lance.indexes import indexes_of
from memwal_sql.storage.base.manifest import read_etag
from memwal_sql.storage.cache.disk_cache import CachedFolder, DiskCache, OriginalFile
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import base_version_of

_DIGEST_BYTES = 16

Files = Callable[[], Mapping[str, int] | None]


class TableCopy:
    """A copy of one immutable version of a Lance table (see `LocalCopy`)."""

    def __init__(
        self,
        cache: DiskCache,
        store: ObjectStore,
        *,
        name: str,
        like: str,
        folder: str,
        files: Files,
        is_meant: Callable[[Path], bool] = lambda _: True,
    ) -> None:
        """`name` and `like` as `DiskCache.add` takes them. `files` gives the sizes of its files by
        their paths in `folder` of the store, asking the store; None where it can't be copied.
        `is_meant` tells a copy from one of a version that has come to have the same number."""
        self._cache = cache
        self._store = store
        self._name = name
        self._folder = folder
        self._files = files
        self._is_meant = is_meant
        self._like = like
        self._copy: CachedFolder | None = None
        self._is_resolved = False
        self._lock = RLock()

    @property
    def path(self) -> Path | None:
        """The copy's folder, which stays; None where there was none when this was first asked. Then
        one is made in the background."""
        if not self._is_resolved:
            folder = self._cache.open(self._name)  # reads all of it
            is_meant = folder is not None and self._is_meant(folder.path)
            with self._lock:
                if not self._is_resolved:
                    self._copy, self._is_resolved = folder if is_meant else None, True
            if folder is None:
                in_background(self._make, is_long=True)
        return None if self._copy is None else self._copy.path

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed what is read."""
        return self._copy is not None and self._copy.is_gone

    def read(self, path: str) -> bytes:
        """A file of the table, from the store where there is no copy."""
        copy = self.path
        if copy is not None:
            try:
                return (copy / path).read_bytes()
            except OSError:
                pass  # removed meanwhile, or never copied
        return self._store.get(self._in_store(path))

    def _make(self) -> None:
        self._cache.add(self._name, self._originals, self._like)

    def _originals(self) -> Sequence[OriginalFile] | None:
        sizes = self._files()
        if sizes is None:
            return None
        return [self._original(path, size) for path, size in sizes.items()]

    def _original(self, path: str, size: int) -> OriginalFile:
        read = partial(self._store.get_range, self._in_store(path))
        # A number of a version may be used again; all other names have random parts.
        return OriginalFile(path, size, read, base_version_of(path) is None)

    def _in_store(self, path: str) -> str:
        return f"{self._folder}/{path}" if self._folder else path


def copy_of_generation(
    cache: DiskCache | None,
    store: ObjectStore,
    table: Hashable,
    folder: str,
    checksum: int | None,
) -> TableCopy | None:
    """The copy of a generation in a folder of the store; None without a cache. `table` tells the
    table from any that was or will be at its place, `checksum` is that of the generation's bloom
    filter if it is known."""
    if cache is None:
        return None

    def files() -> Mapping[str, int]:
        return {meta.path.removeprefix(f"{folder}/"): meta.size for meta in store.list(folder)}

    name = _digest(table, folder, checksum)
    return TableCopy(cache, store, name=name, like=name, folder=folder, files=files)


def copy_of_base(
    cache: DiskCache | None,
    store: ObjectStore,
    table: Hashable,
    dataset: Any,
    etag: str,
    manifest: str,
) -> TableCopy | None:
    """The copy of a version of the base table: `dataset`, whose manifest has this `etag` and path;
    None without a cache. `table` as above."""
    if cache is None:
        return None

    def is_meant(path: Path) -> bool:
        return read_etag(LocalStore(str(path)), dataset.version) == etag

    like = _digest(table)
    return TableCopy(
        cache,
        store,
        name=f"{like}-{_digest(etag)}",
        like=like,
        folder="",
        files=partial(_base_files, store, dataset, manifest),
        is_meant=is_meant,
    )


def _base_files(store: ObjectStore, dataset: Any, manifest: str) -> Mapping[str, int] | None:
    """None where some are in folders of other tables, or are being cleaned up."""
    names, folders, elsewhere = {manifest}, [], False
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        files = [*metadata.files, *(overlay.data_file for overlay in metadata.overlays)]
        names.update(f"data/{file.path}" for file in files)
        deleted = metadata.deletion_file
        if deleted is not None:
            names.add(fragment.deletion_file())
            files.append(deleted)
        elsewhere |= any(file.base_id is not None for file in files)
    for index in indexes_of(dataset):
        folders += [f"_indices/{segment.uuid}/" for segment in index.segments]
        elsewhere |= any(segment.base_id is not None for segment in index.segments)
    if elsewhere:
        return None
    roots = sorted({path.partition("/")[0] for path in [*names, *folders]})
    sizes = {meta.path: meta.size for root in roots for meta in store.list(root)}
    chosen = names | {path for path in sizes if path.startswith(tuple(folders))}
    return {path: sizes[path] for path in chosen} if chosen <= sizes.keys() else None


def _digest(*parts: Hashable) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
