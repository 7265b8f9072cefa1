"""The files of the folders that a collection reads, each listed once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from memwal_sql.storage import paths
from memwal_sql.storage.objects.concurrent import ask_remote
from memwal_sql.storage.objects.probe import PROBE_FOLDER
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.records.transactions import TRANSACTIONS_FOLDER

# Lance writes a local file under its name and a number, and renames it.
_LANCE_TEMPORARY = re.compile(r"#[0-9]+$")


@dataclass
class Folder:
    """The files of one flushed generation, listed or not."""

    generation: int
    files: list[ObjectMeta] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(meta.size for meta in self.files)


@dataclass
class RegionFiles:
    """The files of one region: manifests by version, WAL entries by position, generations by the
    name of their folder."""

    region_id: UUID
    manifests: dict[int, ObjectMeta] = field(default_factory=dict)
    wal: dict[int, ObjectMeta] = field(default_factory=dict)
    generations: dict[str, Folder] = field(default_factory=dict)


@dataclass
class Survey:
    """The files of all regions, those of indexes, staged rows, records of transactions, and
    temporary files that dead processes may have left."""

    regions: dict[UUID, RegionFiles] = field(default_factory=dict)
    temporary: list[ObjectMeta] = field(default_factory=list)
    indexes: list[ObjectMeta] = field(default_factory=list)
    staged: list[ObjectMeta] = field(default_factory=list)
    transactions: list[ObjectMeta] = field(default_factory=list)


def survey_regions(store: ObjectStore) -> Survey:
    """List everything below `_mem_wal` once. Folders and files of other names are passed over."""
    survey = Survey()
    _add_regions(survey, store)
    return survey


def survey_files(store: ObjectStore) -> Survey:
    """List all of them, the folders side by side."""
    survey, others = Survey(), list[ObjectMeta]()

    def add_others() -> None:
        others.extend(store.leftovers(paths.RECORD_FOLDER))
        others.extend(store.list(PROBE_FOLDER))

    ask_remote(
        store.remote,
        (
            lambda: _add_regions(survey, store),
            lambda: survey.indexes.extend(store.list("_indices")),
            lambda: survey.staged.extend(store.list(paths.STAGING_FOLDER)),
            lambda: survey.transactions.extend(store.list(TRANSACTIONS_FOLDER)),
            add_others,
        ),
    )
    survey.temporary += others
    return survey


def _add_regions(survey: Survey, store: ObjectStore) -> None:
    for folder in _listed(store):
        survey.temporary += store.leftovers(folder)
        _sort(survey, store.list(folder))


def _listed(store: ObjectStore) -> list[str]:
    """The folders to list. In a store one, by one request. On a disk each region's, as a folder
    that somebody else has put there may be deeper than a listing goes."""
    if store.remote:
        return [paths.MEM_WAL_FOLDER]
    names = store.list_folders(paths.MEM_WAL_FOLDER)
    return [f"{paths.MEM_WAL_FOLDER}/{name}" for name in names if paths.region_of(name)]


def _sort(survey: Survey, listed: Iterable[ObjectMeta]) -> None:
    for meta in listed:
        parts = meta.path.split("/", 3)
        region_id = paths.region_of(parts[1]) if len(parts) == 4 else None
        if region_id is None:
            continue
        if _LANCE_TEMPORARY.search(meta.path):
            survey.temporary.append(meta)
            continue
        files = survey.regions.get(region_id)
        if files is None:
            files = survey.regions[region_id] = RegionFiles(region_id)
        _sort_into(files, parts[2], meta)


def _sort_into(files: RegionFiles, folder: str, meta: ObjectMeta) -> None:
    if folder == "manifest":
        version = paths.numbered(meta.path, paths.MANIFEST_SUFFIX)
        if version is not None:
            files.manifests[version] = meta
    elif folder == "wal":
        position = paths.numbered(meta.path, paths.WAL_SUFFIX)
        if position is not None:
            files.wal[position] = meta
    elif (generation := paths.parse_generation_name(folder)) is not None:
        files.generations.setdefault(folder, Folder(generation)).files.append(meta)
