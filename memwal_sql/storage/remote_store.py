"""S3, GCS, Azure and what else obstore knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import ObjectStore as Handle
from obstore.store import from_url

from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage.object_store import Metas, Names, ObjectMeta
from memwal_sql.storage.storage_options import SplitOptions, redacted

_Result = TypeVar("_Result")

_PARALLEL_COPIES = 16

_REFUSALS = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)


class RemoteStore:
    """The objects below the URL `uri`."""

    remote = True

    def __init__(self, uri: str, options: SplitOptions) -> None:
        self._uri = uri.rstrip("/")
        self._options = options
        self._handle: tuple[int, Handle] = (os.getpid(), self._open())

    @property
    def uri(self) -> str:
        """The root, without user, password and query."""
        parts = urlsplit(self._uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __repr__(self) -> str:
        return f"RemoteStore({self.uri!r})"

    def get(self, path: str) -> bytes:
        """The object's bytes."""
        return self._read(path, lambda: bytes(obstore.get(self._store(), path).bytes()))

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes and the object's size, in one request."""

        def read() -> tuple[bytes, int]:
            result = obstore.get(self._store(), path, options={"range": {"suffix": length}})
            return bytes(result.bytes()), result.meta["size"]

        return self._read(path, read)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`."""
        return self._read(
            path, lambda: bytes(obstore.get_range(self._store(), path, start=start, end=end))
        )

    def put(self, path: str, data: bytes) -> None:
        """Write or replace."""
        try:
            obstore.put(self._store(), path, data, use_multipart=False)
        except (exceptions.BaseError, OSError) as error:
            raise self._failed(path, error) from None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create; False when the store says that it exists."""
        try:
            obstore.put(self._store(), path, data, mode="create", use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return False
        except _REFUSALS as error:
            raise self._failed(path, error) from None
        except (exceptions.BaseError, OSError) as error:
            raise OutcomeUnknownError(self._describe(path, error)) from None
        return True

    def sync(self, folder: str) -> None:
        """Nothing to do."""

    def move(self, source: str, target: str) -> None:
        """Copy every object inside the store, then delete the old ones."""
        found = [meta.path for meta in self.list(source)]
        if not found:
            raise NotFoundError(f"{self.uri}/{source} is not there")

        def copy(path: str) -> None:
            try:
                obstore.copy(self._store(), path, target + path.removeprefix(source))
            except (exceptions.BaseError, OSError) as error:
                raise self._failed(path, error) from None

        with ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
            list(pool.map(copy, found))
        self.delete_in_bulk(found)

    def exists(self, path: str) -> bool:
        """Whether the object is there: one HEAD request."""
        try:
            self._read(path, lambda: obstore.head(self._store(), path))
        except NotFoundError:
            return False
        return True

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`."""

        def read() -> list[ObjectMeta]:
            pages = obstore.list(self._store(), prefix)
            return [
                ObjectMeta(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for page in pages
                for meta in page
            ]

        return self._read(prefix, read)

    def list_folders(self, prefix: str) -> Names:
        """Names of the folders directly below the folder `prefix`."""

        def read() -> list[str]:
            listed = obstore.list_with_delimiter(self._store(), prefix)
            return [folder.rstrip("/").rpartition("/")[2] for folder in listed["common_prefixes"]]

        return self._read(prefix, read)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects one after the other, so that an order is kept."""
        for path in paths:
            try:
                obstore.delete(self._store(), path)
            except (exceptions.NotFoundError, FileNotFoundError):
                continue
            except (exceptions.BaseError, OSError) as error:
                raise self._failed(path, error) from None

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """Delete objects a thousand or so a request, where the store has such requests."""
        wanted = list(paths)
        if not wanted:
            return
        try:
            obstore.delete(self._store(), wanted)
        except (exceptions.NotFoundError, FileNotFoundError):
            self.delete(wanted)  # a store that deletes one by one stopped at one that had gone
        except (exceptions.BaseError, OSError) as error:
            raise self._failed(wanted[0], error) from None

    def leftovers(self, prefix: str) -> Metas:
        """None: a put here becomes visible whole, and what does not is the store's own to clear."""
        return []

    def _read(self, path: str, read: Callable[[], _Result]) -> _Result:
        try:
            return read()
        except (exceptions.NotFoundError, FileNotFoundError):
            raise NotFoundError(f"{self.uri}/{path} is not there") from None
        except (exceptions.BaseError, OSError) as error:
            raise self._failed(path, error) from None

    def _store(self) -> Handle:
        """A handle of this process: obstore's threads do not survive a fork."""
        if self._handle[0] != os.getpid():
            self._handle = (os.getpid(), self._open())
        return self._handle[1]

    def _open(self) -> Handle:
        retry: dict[str, Any] = {}
        if self._options.max_retries is not None:
            retry["max_retries"] = self._options.max_retries
        if self._options.retry_timeout_seconds is not None:
            retry["retry_timeout"] = timedelta(seconds=self._options.retry_timeout_seconds)
        arguments: dict[str, Any] = {"config": dict(self._options.config) or None}
        if self._options.client:
            arguments["client_options"] = dict(self._options.client)
        if retry:
            arguments["retry_config"] = retry
        try:
            return from_url(self._uri, **arguments)
        except exceptions.UnknownConfigurationKeyError as error:
            named = [key for key in self._options.config if f"'{key}'" in str(error)]
            raise InvalidCallError(
                f"storage option {', '.join(map(repr, named)) or '?'} is not known for {self.uri};"
                " see the storage options of Lance"
            ) from None
        except (exceptions.BaseError, ValueError, TypeError) as error:
            raise InvalidCallError(
                f"can't open {self.uri}: {self._redacted(_first_line(error))}"
            ) from None

    def _failed(self, path: str, error: BaseException) -> MemWalError:
        return StoreUnavailableError(self._describe(path, error))

    def _describe(self, path: str, error: BaseException) -> str:
        remedy = "; check the credentials and rights" if isinstance(error, _REFUSALS) else ""
        return f"{self.uri}/{path}: {self._redacted(_first_line(error))}{remedy}"

    def _redacted(self, text: str) -> str:
        return redacted(text, {**self._options.config, **self._options.client})


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
