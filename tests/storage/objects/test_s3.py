"""The obstore path against a real S3 server in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import NotFoundError, OutcomeUnknownError
from memwal_sql.storage.base.memwal_index import IndexDetails, commit_details, read_details
from memwal_sql.storage.objects.open import ObjectMeta, ObjectStore, open_store
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import ManifestConflictError, RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_fence
from tests.model.racing import contest
from tests.model.s3 import s3_server
from tests.storage import native

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")
BUCKET = "tables"


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server(BUCKET, "hunter2secret") as found:
        yield {**found, "client_max_retries": "1", "client_retry_timeout": "5"}


@pytest.fixture
def uri() -> str:
    return f"s3://{BUCKET}/{uuid4().hex}/table"


@pytest.fixture
def store(uri: str, options: dict[str, str]) -> ObjectStore:
    return open_store(uri, options)


def test_the_operations(store: ObjectStore) -> None:
    assert store.remote
    assert store.put_if_absent("a/b/c", b"0123456789")
    assert not store.put_if_absent("a/b/c", b"other")
    assert store.get("a/b/c") == b"0123456789"
    assert store.get_tail("a/b/c", 3) == (b"789", 10, store.stamp("a/b/c"))
    assert store.get_range("a/b/c", 2, 4) == b"23"
    store.put("a/d/e", b"")
    assert sorted(store.list_folders("a")) == ["b", "d"]
    assert store.list("a/b") == [ObjectMeta("a/b/c", 10)]
    assert store.exists("a/d/e") and not store.exists("a/x")
    store.delete(["a/b/c", "a/none"])
    with pytest.raises(NotFoundError, match="a/b/c"):
        store.get("a/b/c")


@pytest.mark.slow
def test_what_is_long_is_put_in_parts(store: ObjectStore) -> None:
    content = os.urandom(40 << 20)
    store.put("a/b", memoryview(content))
    assert store.get("a/b") == content
    assert store.list("a") == [ObjectMeta("a/b", 40 << 20)]


def test_many_objects_are_deleted_at_once(store: ObjectStore) -> None:
    before = time.time() - 2  # S3 keeps seconds
    for number in range(3):
        store.put_if_absent(f"a/{number}", b"")
    assert all(before <= (meta.modified or 0) <= time.time() + 1 for meta in store.list("a"))
    store.delete_in_bulk(["a/0", "a/none", "a/2"])
    store.delete_in_bulk([])
    assert store.list("a") == [ObjectMeta("a/1", 0)]
    assert store.leftovers("a") == []


def test_one_of_many_claimants_commits_a_manifest_version(
    store: ObjectStore, uri: str, options: dict[str, str]
) -> None:
    """Protocol rule 3 on S3's conditional put."""
    old = RegionManifests(store, REGION).create(RegionManifest(REGION))
    for _ in range(3):
        claimants = [RegionManifests(open_store(uri, options), REGION) for _ in range(4)]
        epoch = old.writer_epoch + 1
        claims = [partial(one.commit, old, writer_epoch=epoch) for one in claimants]
        wins, lost = contest(ManifestConflictError, *claims)
        assert len(wins) == 1 and len(lost) == 3
        old = wins[0]
    assert RegionManifests(store, REGION).latest() == old


def test_the_wal(store: ObjectStore) -> None:
    wal = Wal(store, REGION)
    assert wal.append(1, encode_fence(writer_epoch=1)).landed
    found = wal.append(1, encode_fence(writer_epoch=2)).existing
    assert found is not None and found.writer_epoch == 1
    assert [entry.position for entry in wal.entries(1)] == [1]


def test_generations_and_details_with_the_options_that_lance_takes(
    store: ObjectStore, uri: str, options: dict[str, str]
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False, native.KEY), pa.field("v", pa.int64())])
    base = lance.write_dataset(
        pa.table({"id": [1, 2], "v": [1, 2]}, schema), uri, storage_options=options
    )
    base = commit_details(base, IndexDetails(maintained_indexes=()))
    assert read_details(store, base) is not None
    newer = native.rows(base, {"id": [2], "v": [20]}, {"id": [1]})
    written = native.write(store, base, REGION, 1, newer, ["id"], storage_options=options)
    manifest = RegionManifest(REGION, current_generation=2, flushed_generations=(written,))
    assert native.scan(base, manifest) == [{"id": 2, "v": 20}]


def test_a_server_that_is_gone_leaves_the_outcome_of_a_put_unknown(
    options: dict[str, str],
) -> None:
    gone = options | {
        "aws_endpoint": "http://127.0.0.1:9",
        "client_max_retries": "0",
        "connect_timeout": "1s",
    }
    with pytest.raises(OutcomeUnknownError) as caught:
        open_store(f"s3://{BUCKET}/t", gone).put_if_absent("a", b"")
    assert "hunter2secret" not in str(caught.value)


@pytest.mark.slow
def test_a_commit_log_decides_on_s3_too(uri: str, options: dict[str, str], tmp_path: Path) -> None:
    """Lance passes over the option that is ours (specification 4)."""
    with_log = {**options, "memwal_commit_log": str(tmp_path / "log.sqlite")}
    schema = pa.schema([pa.field("id", pa.int64(), False)])
    table = mw.create_table(uri, schema, primary_key="id", storage_options=with_log)
    with table.writer() as writer:
        writer.upsert({"id": [1, 2]})
        writer.flush()
        writer.delete({"id": [2]})
    again = mw.open_table(uri, storage_options=with_log)
    assert again.scan().read_all()["id"].to_pylist() == [1]
    listed = open_store(uri, options).list("_mem_wal")
    assert [meta.path for meta in listed if meta.path.count(".") > 1] == []
