"""S3, GCS, Azure and the other stores of obstore."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import obstore
from obstore import exceptions
from obstore.store import ObjectStore as Handle
from obstore.store import from_url

from exec_nodes.base.secrets import keep_secret, redacted
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.lance.errors import is_panic
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.objects.errors import no_put_if_absent, store_error
from memwal_sql.storage.objects.options import SplitOptions
from memwal_sql.storage.objects.protocol import (
    Content,
    Metas,
    Names,
    ObjectEnd,
    ObjectMeta,
    check_path,
    checked,
)
from memwal_sql.storage.retries import with_retries
from memwal_sql.telemetry import REQUESTS

_Result = TypeVar("_Result")

_PARALLEL_COPIES = 16
_PART_BYTES = 16 << 20
_PARALLEL_PARTS = 4
_ATTEMPTS = 4

# obstore's errors; NotImplementedError: conditional puts are disabled by an option.
_FAILURES = (exceptions.BaseError, OSError, NotImplementedError)
_GONE = (exceptions.NotFoundError, FileNotFoundError)
_REFUSALS = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_NO_BUCKET = "NoSuchBucket"
# Failures that clients do not retry: a connection that ends within the answer, and a time-out of a
# request whose method is not safe, such as a bulk delete.
_NO_ANSWER = re.compile(
    r"response body error|retries: 0,\s+max_retries: [1-9].*kind: Timeout", re.DOTALL
)
_NOT_IMPLEMENTED = re.compile(r"status code: 501|NotImplemented")


class RemoteStore:
    """The objects below the URL `uri`."""

    remote = True

    def __init__(self, uri: str, options: SplitOptions) -> None:
        self._uri = uri.rstrip("/")
        self._options = options
        keep_secret(options.secrets)
        self._handle = self._open()

    @property
    def uri(self) -> str:
        """The root; `canonical_uri` has seen that no credentials are in it."""
        return self._uri

    @property
    def service(self) -> str:
        """The root and the server's address."""
        return f"{self._uri} at {self._options.endpoint or 'the default endpoint'}"

    def __repr__(self) -> str:
        return f"RemoteStore({self.uri!r})"

    def get(self, path: str) -> bytes:
        return self._read(path, lambda: bytes(obstore.get(self._store("get"), path).bytes()))

    def get_tail(self, path: str, length: int) -> ObjectEnd:
        def read() -> ObjectEnd:
            result = obstore.get(self._store("get"), path, options={"range": {"suffix": length}})
            return ObjectEnd(bytes(result.bytes()), result.meta["size"], _stamp(result.meta))

        return self._read(path, read)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self._read(
            path, lambda: bytes(obstore.get_range(self._store("get"), path, start=start, end=end))
        )

    def put(self, path: str, data: Content) -> None:
        check_path(path)
        try:
            obstore.put(
                self._store("put"),
                path,
                data,
                use_multipart=len(data) > _PART_BYTES,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARALLEL_PARTS,
            )
        except _FAILURES as error:
            raise self._failed(path, error) from None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_path(path)
        try:
            obstore.put(self._store("put"), path, data, mode="create", use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return False
        except NotImplementedError as error:
            raise no_put_if_absent(self.uri, str(error).partition("\n")[0]) from None
        except _FAILURES as error:
            failed = self._failed(path, error)
            if isinstance(error, _REFUSALS) or not isinstance(failed, StoreUnavailableError):
                raise failed from None
            if _NOT_IMPLEMENTED.search(str(error)):
                raise no_put_if_absent(self.uri, str(failed)) from None
            raise OutcomeUnknownError(str(failed)) from None
        return True

    def sync(self, folder: str) -> None:
        """Nothing to do."""

    def refuse_links(self, _: Sequence[str] = ()) -> None:
        """Nothing: it has none."""

    def move(self, source: str, target: str) -> None:
        check_path(target)
        sources = [meta.path for meta in self.list(source)]
        if not sources:
            raise NotFoundError(f"{self.uri}/{source} is not there")

        def copy(path: str) -> None:
            try:
                obstore.copy(self._store("copy"), path, target + path.removeprefix(source))
            except _FAILURES as error:
                raise self._failed(path, error) from None

        map_in_threads(copy, sources, _PARALLEL_COPIES)
        self.delete_in_bulk(sources)

    def exists(self, path: str) -> bool:
        """Whether the object is there: one HEAD request."""
        return self.stamp(path) is not None

    def stamp(self, path: str) -> Hashable | None:
        """The store's tag, time and size: one HEAD request."""
        try:
            meta = self._read(path, lambda: obstore.head(self._store("head"), path))
        except NotFoundError:
            return None
        return _stamp(meta)

    def list(self, prefix: str) -> list[ObjectMeta]:
        def read() -> list[ObjectMeta]:
            pages = obstore.list(self._store("list"), prefix)
            return [
                ObjectMeta(meta["path"], meta["size"], meta["last_modified"].timestamp())
                for page in pages
                for meta in page
            ]

        return self._read(prefix, read)

    def list_folders(self, prefix: str) -> Names:
        def read() -> list[str]:
            listed = obstore.list_with_delimiter(self._store("list"), prefix)
            return [folder.rstrip("/").rpartition("/")[2] for folder in listed["common_prefixes"]]

        return self._read(prefix, read)

    def delete(self, paths: Iterable[str]) -> None:
        for path in checked(paths):
            try:
                _answered(path, partial(obstore.delete, self._store("delete"), path))
            except _GONE as error:
                self._check_bucket(path, error)
            except _FAILURES as error:
                raise self._failed(path, error) from None

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        targets = checked(paths)
        if not targets:
            return
        try:
            _answered(targets[0], lambda: obstore.delete(self._store("delete"), targets))
        except _GONE:
            self.delete(targets)  # a store that deletes one by one stopped at one that had gone
        except _FAILURES as error:
            raise self._failed(targets[0], error) from None

    def leftovers(self, prefix: str) -> Metas:
        """Empty: a put becomes visible as a whole, and the store itself clears incomplete ones."""
        return []

    def _read(self, path: str, read: Callable[[], _Result]) -> _Result:
        check_path(path)
        try:
            return _answered(path, read)
        except _GONE as error:
            self._check_bucket(path, error)
            raise NotFoundError(f"{self.uri}/{path} is not there") from None
        except _FAILURES as error:
            raise self._failed(path, error) from None

    def _store(self, operation: str) -> Handle:
        """The handle, for the next request. Raises DeadlineExceededError."""
        check_deadline(self.uri)
        REQUESTS(1, {"table": self.uri, "operation": operation})
        return self._handle

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
        except Exception as error:
            raise InvalidCallError(f"can't open {self.uri}: {self._message(error)}") from None
        except BaseException as error:
            if not is_panic(error):
                raise
            raise InvalidCallError(
                f"can't open {self.uri}: obstore can't read one of the storage options "
                f"{sorted([*self._options.config, *self._options.client])}: {self._message(error)}"
            ) from None

    def _failed(self, path: str, error: BaseException) -> MemWalError:
        return store_error(f"{self.uri}/{path}", str(error), self._message(error))

    def _check_bucket(self, path: str, error: BaseException) -> None:
        """Raise InvalidCallError where it is not the object that is missing, but the bucket."""
        if _NO_BUCKET in str(error):
            raise self._failed(path, error) from None

    def _message(self, error: BaseException) -> str:
        """The first line of obstore's message; the other lines are its internals."""
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        keep_secret(self._options.secrets)  # many others may have been kept meanwhile
        return redacted(text, self._options.secrets)


def _answered(path: str, ask: Callable[[], _Result]) -> _Result:
    """The result of `ask`, which is called again if no whole answer came."""

    def is_open(error: BaseException) -> bool:
        return _NO_ANSWER.search(str(error)) is not None

    return with_retries(ask, path, on=_FAILURES, when=is_open, attempts=_ATTEMPTS)


def _stamp(meta: Mapping[str, object]) -> Hashable:
    return meta["e_tag"], meta["last_modified"], meta["size"]
