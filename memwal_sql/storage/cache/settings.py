"""Where this process keeps copies, if at all."""

from __future__ import annotations

import os
from pathlib import Path

from exec_nodes.resident.store import memory_bytes
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.cache.disk_cache import DiskCache, check_owner

_FOLDER, _BYTES = "MEMWAL_CACHE_DIR", "MEMWAL_CACHE_BYTES"
_DEFAULT_BYTES = 4 << 30
# The name of a folder for copies alone: everything in it is counted and removed.
_OWN = "memwal_sql"


class CacheSettings:
    """The folder and the bound, as they were given or as the environment has them."""

    def __init__(self) -> None:
        self._cache: DiskCache | None = None
        self._folder: str | os.PathLike[str] | None = None
        self._most: int | str | None = None
        self._is_configured = False

    def get(self) -> DiskCache | None:
        """The cache of this process; None without a folder or with a bound of 0.

        Raises InvalidCallError for an environment that can't be meant.
        """
        if not self._is_configured and os.environ.get(_FOLDER):
            self.set(None, None)
        return self._cache

    def set(self, folder: str | os.PathLike[str] | None, most: int | str | None) -> None:
        """Keep copies in a folder from now on, of so many bytes together; None is what was set
        before, or else what the environment says. Tables that are open go on as they are. Raises
        InvalidCallError and changes nothing."""
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise InvalidCallError(f"cache_dir must be a path, got {folder!r}")
        named = folder or self._folder or os.environ.get(_FOLDER)
        bound = self._most if most is None else most
        bound_text = os.environ.get(_BYTES) or None if bound is None else bound
        room = _DEFAULT_BYTES if bound_text is None else _bytes(bound_text)
        if not named:
            raise InvalidCallError(f"cache_bytes={most!r} needs a cache_dir, or {_FOLDER}")
        own = Path(os.path.abspath(named), _OWN)
        check_owner(own)
        self._cache = DiskCache(own, room) if room else None
        self._folder, self._most = folder or self._folder, bound
        self._is_configured = True


def _bytes(most: int | str) -> int:
    try:
        return memory_bytes(most)
    except InvalidCallError:
        raise InvalidCallError(
            f'cache_bytes ({_BYTES}) must be a number of bytes, or a text like "512MiB" or "20GiB",'
            f" got {most!r}"
        ) from None


CACHE = CacheSettings()
