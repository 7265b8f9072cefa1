"""Garbage that no region lists: snapshots of no version, temporary files, staged rows. Only their
age shows that nobody will come back to such files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memwal_sql.maintain.gc.listing import Survey
from memwal_sql.maintain.gc.rules import Garbage, Kind
from memwal_sql.storage import paths
from memwal_sql.storage.base.versions import BaseVersion
from memwal_sql.storage.objects.protocol import ObjectMeta

# The least age, whatever grace was asked for: files that are being written look the same.
_TEMPORARY_SECONDS = 3600.0
_STAGED_SECONDS = 7 * 24 * 3600.0


def orphans(
    survey: Survey, versions: Sequence[BaseVersion], now: float, grace: float
) -> Iterator[Garbage]:
    """All orphans; `versions` are the base versions that are kept, times are in seconds."""
    before = now - max(grace, _TEMPORARY_SECONDS)
    yield from _snapshots(survey.indexes, versions, before)
    for meta in survey.temporary:
        if _is_older(before, (meta,)):
            reason = "left behind by a process that died"
            yield Garbage(Kind.TEMPORARY, None, meta.path, meta.size, reason, (meta.path,))
    yield from _staged(survey.staged, now - max(grace, _STAGED_SECONDS))


def _snapshots(
    indexes: Iterable[ObjectMeta], versions: Sequence[BaseVersion], before: float
) -> Iterator[Garbage]:
    """External region snapshots that progress marks have left behind (protocol rule 23)."""
    used = {
        f"_indices/{version.details.index_uuid}"
        for version in versions
        if version.details is not None
    }
    for meta in indexes:
        folder, _, name = meta.path.rpartition("/")
        if name == "index.lance" and folder not in used and _is_older(before, (meta,)):
            reason = "of no version of the base table"
            yield Garbage(Kind.REGION_SNAPSHOT, None, meta.path, meta.size, reason, (meta.path,))


def _staged(staged: Iterable[ObjectMeta], before: float) -> Iterator[Garbage]:
    """Staged files of jobs that neither published nor discarded them."""
    jobs: dict[str, list[ObjectMeta]] = {}
    for meta in staged:
        job = meta.path[len(paths.STAGING_FOLDER) + 1 :].partition("/")[0]
        jobs.setdefault(job, []).append(meta)
    for job, files in sorted(jobs.items()):
        if _is_older(before, files):
            yield Garbage(
                Kind.STAGED,
                None,
                f"{paths.STAGING_FOLDER}/{job}",
                sum(meta.size for meta in files),
                "staged by a job that died",
                tuple(meta.path for meta in files),
            )


def _is_older(before: float, files: Iterable[ObjectMeta]) -> bool:
    return all(meta.modified is not None and meta.modified <= before for meta in files)
