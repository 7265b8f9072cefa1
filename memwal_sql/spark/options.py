"""The options of the data source, and the form of their values.

Spark hands options over as texts under names in lower case; nothing is ignored, so a misspelt name
is an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from memwal_sql.errors import InvalidCallError
from memwal_sql.read.snapshots import check_consistency
from memwal_sql.storage.objects.memory import SCHEMES
from memwal_sql.storage.objects.open import canonical_uri

STORAGE_PREFIX = "storage."
Moment = tuple[int | str | None, str | None]

# The options of each use besides `path` and `storage.*`, as documented.
READ = (
    "columns",
    "filter",
    "version",
    "timestamp",
    "consistency",
    "query",
    "name",
    "metadata",
    "rowsPerPartition",
)
STREAM_READ = (
    "changes",
    "columns",
    "oldRows",
    "startingFrom",
    "maxRowsPerBatch",
    "checkpointLocation",
)
_ROWS = (
    "primaryKey",
    "regions",
    "orderBy",
    "when",
    "duplicates",
    "missing",
    "mergeSchema",
    "deleteColumn",
    "operation",
    "queryId",
)
WRITE = (*_ROWS, "ifExists", "batchId")
STREAM_WRITE = (*_ROWS, "checkpointLocation")

_ALL = dict.fromkeys((*READ, *STREAM_READ, *WRITE, *STREAM_WRITE))
IF_EXISTS = ("append", "error", "ignore")
OPERATIONS = ("upsert", "delete")

# What Spark adds to the options of a table that CREATE TABLE makes.
_OF_CATALOGS = ("owner", "location", "provider", "external", "comment", "is_managed_location")


@dataclass(frozen=True)
class Options:
    """The options of one read or write; `values` by their documented names."""

    uri: str
    values: Mapping[str, str] = field(hash=False)
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """For Lance and MemWAL."""
        return dict(self.storage) or None

    def names(self, name: str) -> tuple[str, ...] | None:
        """A list of names, separated by commas; None when the option is not given."""
        text = self.values.get(name)
        if text is None:
            return None
        parts = tuple(part.strip() for part in text.split(","))
        if not all(parts):
            raise InvalidCallError(f'{name}={text!r} must be names separated by commas: "a, b"')
        return parts

    def number(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number."""
        text = self.values.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < least:
            raise InvalidCallError(f"{name}={text!r} must be a whole number from {least} on")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        """A switch."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def choice(self, name: str, among: tuple[str, ...], default: str) -> str:
        """One of a few words, in any case."""
        text = self.values.get(name, default)
        if text.lower() not in among:
            raise InvalidCallError(f"{name}={text!r} must be one of {list(among)}")
        return text.lower()

    @property
    def moment(self) -> Moment:
        """The past state to read: the number of a version or a name, and a time; None for now."""
        version, timestamp = self.values.get("version"), self.values.get("timestamp")
        if version is not None and re.fullmatch(r"[0-9]{1,18}", version.strip()):
            return int(version), timestamp
        return version, timestamp

    @property
    def consistency(self) -> str:
        """Strong unless the options say otherwise."""
        value = self.values.get("consistency", "strong")
        check_consistency(value)
        return value


def parse_options(options: Mapping[str, str], allowed: tuple[str, ...], use: str) -> Options:
    """The options of a `use` (as errors call it), of those `allowed`.

    Raises InvalidCallError for a missing path, a path that only one process can reach, and an
    option that the use does not have.
    """
    by_lower = {name.lower(): name for name in _ALL}
    values: dict[str, str] = {}
    storage: dict[str, str] = {}
    path = None
    for key, value in options.items():
        lower = key.lower()
        if lower == "path":
            path = value
        elif lower.startswith(STORAGE_PREFIX):
            storage[lower.removeprefix(STORAGE_PREFIX)] = value
        elif by_lower.get(lower) in allowed:
            values[by_lower[lower]] = value
        else:
            raise InvalidCallError(_unknown(key, allowed, use, by_lower.get(lower)))
    if not path:
        raise InvalidCallError(
            f"{use} of format memwal needs the table's URI: pass it to load() or save(), "
            'or as option("path", uri)'
        )
    return Options(_reachable(path), values, tuple(sorted(storage.items())))


def _unknown(key: str, allowed: tuple[str, ...], use: str, elsewhere: str | None) -> str:
    if key.lower() in _OF_CATALOGS:
        return (
            f"{key!r} is of a table in Spark's own catalog, which does not take this format: "
            "CREATE TABLE and saveAsTable need the jar's catalog (spark.sql.catalog.NAME is "
            "io.memwal.spark.MemwalCatalog); without it pass the table's URI to load() and "
            "save(), or run CREATE TEMPORARY VIEW name USING memwal OPTIONS (path '...')"
        )
    if elsewhere is not None:
        return f"option {elsewhere!r} means nothing to {use}; it takes {sorted(allowed)}"
    lower = {name.lower(): name for name in allowed}
    close = difflib.get_close_matches(key.lower(), lower, 1)
    hint = f": did you mean {lower[close[0]]!r}?" if close else ""
    return (
        f"{use} of format memwal has no option {key!r}{hint} It takes {sorted(allowed)}, and "
        f"what begins with {STORAGE_PREFIX!r} for the object store"
    )


def _reachable(path: str) -> str:
    scheme = urlsplit(path).scheme if "://" in path else ""
    if scheme in SCHEMES:
        raise InvalidCallError(
            f"{path} is in the memory of one process, which Spark's executors can't reach: use a "
            "folder that they share, or an object store"
        )
    return canonical_uri(path)
