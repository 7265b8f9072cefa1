"""Every path of the storage layout, relative to the table's root (specification 1).

No path ends with `/`. `_memwal_sql` is ours: what native code would drop when it rewrites a file
of its own lives there (protocol rule 1).
"""

from __future__ import annotations

import re
from functools import lru_cache
from uuid import UUID

MEM_WAL_FOLDER = "_mem_wal"
RECORD_FOLDER = "_memwal_sql"
STAGING_FOLDER = f"{RECORD_FOLDER}/staging"
BASE_VERSIONS_FOLDER = "_versions"
BLOOM_FILTER = "bloom_filter.bin"
BASE_FOLDERS = ("data", "_deletions", "_indices", "_transactions", BASE_VERSIONS_FOLDER)
"""What Lance writes of the base table, the versions last."""
WRITTEN_FOLDERS = (*BASE_FOLDERS, "_refs", "_refs/tags", "_refs/branches")
"""The same with the names of versions."""
MANIFEST_SUFFIX = ".binpb"
WAL_SUFFIX = ".arrow"

_MAX_VERSION = 2**64 - 1
_V2_DIGITS = 20
# The largest number that int64 columns of metadata tables hold.
_MOST_NUMBER = 2**63 - 1
# Every read probes for the next versions: their paths are kept, as each takes 2 microseconds.
_KEPT = 4096

_VERSION_NAME = re.compile(r"[0-9]{1,20}")  # not the digits of other scripts
_GENERATION_NAME = re.compile(r"[0-9a-f]{8}_gen_([1-9][0-9]{0,19})")

_BITS = 64


def region_folder(region_id: UUID) -> str:
    """The folder of a region."""
    return f"{MEM_WAL_FOLDER}/{region_id}"


def manifest_folder(region_id: UUID) -> str:
    """The folder of a region's manifest versions."""
    return f"{region_folder(region_id)}/manifest"


@lru_cache(_KEPT)
def manifest_path(region_id: UUID, version: int) -> str:
    """One version of a region's manifest."""
    return f"{manifest_folder(region_id)}/{reversed_name(version)}{MANIFEST_SUFFIX}"


def version_hint_path(region_id: UUID) -> str:
    """The file that names a recent manifest version."""
    return f"{manifest_folder(region_id)}/version_hint.json"


def wal_folder(region_id: UUID) -> str:
    """The folder of a region's WAL entries."""
    return f"{region_folder(region_id)}/wal"


def wal_path(region_id: UUID, position: int) -> str:
    """One WAL entry."""
    return f"{wal_folder(region_id)}/{reversed_name(position)}{WAL_SUFFIX}"


def numbered(path: str, suffix: str) -> int | None:
    """The manifest version or WAL position that a path ends with; None for other files, also those
    whose number no writer comes to: each is one more than the one before it."""
    name = path.rpartition("/")[2]
    number = parse_reversed_name(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return number if number is None or number <= _MOST_NUMBER else None


def generation_name(random_hex: str, generation: int) -> str:
    """The folder name of a flushed generation; `random_hex` has 8 digits."""
    return f"{random_hex}_gen_{generation}"


def parse_generation_name(name: str) -> int | None:
    """The generation of a folder name; None when it is not the name of a generation."""
    match = _GENERATION_NAME.fullmatch(name)
    return int(match[1]) if match else None


def generation_folder(region_id: UUID, name: str) -> str:
    """The folder of a flushed generation, itself a Lance table."""
    return f"{region_folder(region_id)}/{name}"


def bloom_filter_path(region_id: UUID, name: str) -> str:
    """The bloom filter over the primary keys of a flushed generation."""
    return f"{generation_folder(region_id, name)}/{BLOOM_FILTER}"


def generation_uri(table_uri: str, region_id: UUID, name: str) -> str:
    """The URI under which Lance opens a flushed generation."""
    return f"{table_uri.rstrip('/')}/{generation_folder(region_id, name)}"


@lru_cache(_KEPT)
def base_manifest_path(version: int) -> str:
    """Lance's manifest of a version of the base table, in the naming scheme V2."""
    return f"_versions/{_MAX_VERSION - version:020}.manifest"


def base_manifest_path_v1(version: int) -> str:
    """The same in the scheme that old tables have until they are migrated."""
    return f"_versions/{version}.manifest"


def base_version_of(path: str) -> int | None:
    """The version of the base table whose manifest has this path; None for other files."""
    name = path.rpartition("/")[2].removesuffix(".manifest")
    if not path.endswith(".manifest") or not _VERSION_NAME.fullmatch(name):
        return None
    number = int(name)
    return _MAX_VERSION - number if len(name) == _V2_DIGITS else number


def region_of(name: str) -> UUID | None:
    """The region whose folder has this name; None for other folders."""
    try:
        return UUID(name)
    except ValueError:
        return None


def reversed_name(number: int) -> str:
    """The 64 characters `0` and `1` of `number`, lowest bit first: 5 gives `1010000...`.

    So consecutive files fall into different parts of an object store's key space.
    """
    if not 0 <= number < 1 << _BITS:
        raise ValueError(f"{number} does not fit into {_BITS} bits")
    return f"{number:064b}"[::-1]


def parse_reversed_name(name: str) -> int | None:
    """The number of a name without its suffix; None when the name has another form."""
    if len(name) != _BITS or name.strip("01"):
        return None
    return int(name[::-1], 2)
