"""What a store says becomes an error of the right kind, with the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.lance.errors import lance_errors
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnsupportedError,
)
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.open import open_store
from tests.each import each
from tests.model.s3 import s3_server
from tests.storage.objects.test_stores import no_nameless_files

SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])
QUICK = {"client_max_retries": "0", "client_retry_timeout": "1", "connect_timeout": "1s"}
CALLS: dict[str, Callable[[str, dict[str, str]], Any]] = {
    "open": lambda uri, options: mw.open_table(uri, storage_options=options),
    "create": lambda uri, options: mw.create_table(uri, SCHEMA, "id", storage_options=options),
    "enable": lambda uri, options: mw.enable(uri, "id", storage_options=options),
    "upgrade": lambda uri, options: mw.upgrade(uri, storage_options=options),
}


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server("there") as options:
        yield {**options, **QUICK}


def error_of(call: str, uri: str, options: dict[str, str]) -> MemWalError:
    with pytest.raises(MemWalError) as caught:
        CALLS[call](uri, options)
    return caught.value


def test_every_operation_tells_an_absent_bucket(server: dict[str, str]) -> None:
    store = open_store("s3://absent/t", server)
    for operation in (
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.list("a"),
        lambda: store.list_folders("a"),
        lambda: store.delete(["a"]),
        lambda: store.delete_in_bulk(["a", "b"]),
    ):
        with pytest.raises(InvalidCallError, match="no such bucket"):
            operation()


GONE = {"aws_endpoint": "http://127.0.0.1:9"}
PLACES: list[tuple[str, dict[str, str | None], type[MemWalError], str]] = [
    ("s3://absent/t", {}, InvalidCallError, "no such bucket"),
    ("s3://there/t", {"allow_http": None}, InvalidCallError, 'allow_http="true"'),
    ("s3://there/t", {**GONE}, StoreUnavailableError, GONE["aws_endpoint"]),
]


@pytest.mark.slow
@each("call", ["open", "create", "enable"])
@each("uri, changes, kind, text", PLACES)
def test_a_place_that_can_not_be_used_is_told_with_the_remedy(
    server: dict[str, str],
    call: str,
    uri: str,
    changes: dict[str, str | None],
    kind: type[MemWalError],
    text: str,
) -> None:
    changed = {**server, **changes}
    error = error_of(call, uri, {key: value for key, value in changed.items() if value is not None})
    assert isinstance(error, kind) and text in str(error)
    assert kind is StoreUnavailableError or uri in str(error)


@each("call", CALLS)
@each("uri", ["http://127.0.0.1:9/t", "https://host/t", "s3a://b/t", "hf://x/t"])
def test_a_place_that_no_table_can_be_at_is_a_wrong_call(call: str, uri: str) -> None:
    error = error_of(call, uri, {})
    assert isinstance(error, InvalidCallError)
    assert "s3://" in str(error) and "memory://" in str(error)


@each(
    "text, kind, remedy",
    [
        (
            "Generic S3 error: Failed to resolve region for bucket 'b'",
            InvalidCallError,
            "aws_region",
        ),
        ("an incorrectly configured region", InvalidCallError, "aws_region"),
        ("The specified bucket does not exist.", InvalidCallError, "make it first"),
        ("<Code>ContainerNotFound</Code>", InvalidCallError, "make it first"),
        ("HTTP error: builder error", InvalidCallError, "allow_http"),
        ("PUT http://169.254.169.254/latest", StoreUnavailableError, "no credentials"),
        ("Failed to get AWS credentials: x", StoreUnavailableError, "no credentials"),
        ("status code: 403 Forbidden: <Code>AccessDenied", StoreUnavailableError, "rights"),
        ("HTTP error: error sending request", StoreUnavailableError, ""),
        ("status code: 503 SlowDown", StoreUnavailableError, ""),
        ("Unable to rename file: x (os error 1)", UnsupportedError, "no hard links"),
    ],
)
def test_kinds_and_remedies(text: str, kind: type[MemWalError], remedy: str) -> None:
    error = store_error("s3://b/t", text, text)
    assert type(error) is kind
    assert str(error).startswith("s3://b/t") and remedy in str(error)


def test_lance_without_credentials_has_found_no_damage() -> None:
    text = (
        "LanceError(IO): Generic N/A error: LanceError(IO): Failed to get AWS credentials: x, "
        "/rust/lance-io/src/object_store/providers/aws.rs:1:1"
    )
    with pytest.raises(StoreUnavailableError), lance_errors("base_table[gen=-1]", "s3://b/t"):
        raise OSError(text)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
@pytest.mark.parametrize("nameless", [True, False])
def test_a_file_system_without_hard_links_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, nameless: bool
) -> None:
    """It was told as a lack of rights."""
    if not nameless:
        no_nameless_files(monkeypatch)

    def refuse(*args: object, **folders: object) -> None:
        raise OSError(code, os.strerror(code))

    store = open_store(str(tmp_path))
    with (
        patch.object(os, "link", refuse),
        pytest.raises(UnsupportedError, match="no hard links") as caught,
    ):
        store.put_if_absent("f/a", b"x")
    assert str(tmp_path) in str(caught.value)
    assert os.listdir(tmp_path / "f") == []


def test_lance_that_can_t_link_is_told_as_that(tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(
            "LanceError(IO): Generic LocalFileSystem error: Unable to rename file: Operation not "
            "permitted (os error 1), /rust/lance-table/src/io/commit.rs:1663:50"
        )

    with (
        patch.object(lance.LanceDataset, "commit", refuse),
        pytest.raises(UnsupportedError, match="no hard links"),
    ):
        mw.create_table(tmp_path / "t", SCHEMA, "id")


def test_a_put_whose_answer_was_lost_is_still_in_doubt(server: dict[str, str]) -> None:
    store = open_store("s3://there/t", {**server, "aws_endpoint": "http://127.0.0.1:9"})
    with pytest.raises(OutcomeUnknownError):
        store.put_if_absent("a", b"")
