"""Commits, readers and collected versions of a region's manifest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import cast
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from memwal_sql.errors import (
    CorruptFileError,
    InvalidCallError,
    NotFoundError,
    OutcomeUnknownError,
    RetryError,
)
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest, RegionStatus
from memwal_sql.storage.region.seal import unseal_manifest
from memwal_sql.storage.region.versions import (
    ManifestChanges,
    ManifestConflictError,
    RegionManifests,
)
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import Remote
from tests.model.racing import contest

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")
TYPES = {"bucket": pa.int32(), "country": pa.string()}


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid4().hex}")


def put_version(store: ObjectStore, version: int, **fields: int) -> None:
    message = pb.RegionManifest(version=version, **fields)
    message.region_id.uuid = REGION.bytes
    assert store.put_if_absent(paths.manifest_path(REGION, version), message.SerializeToString())


def committed(store: ObjectStore, last: int, collected: int = 0) -> list[RegionManifest]:
    """The versions up to the `last` one, each by another writer; the first ones are collected."""
    manifests = RegionManifests(store, REGION)
    made = [manifests.create(RegionManifest(REGION))]
    for epoch in range(1, last):
        made.append(manifests.commit(made[-1], writer_epoch=epoch))
    store.delete([paths.manifest_path(REGION, version + 1) for version in range(collected)])
    return made


def test_what_is_committed_is_read_back(store: ObjectStore) -> None:
    manifests = RegionManifests(store, REGION, TYPES)
    created = manifests.create(
        RegionManifest(REGION, region_spec_id=3, region_values={"bucket": -7, "country": None})
    )
    committed = manifests.commit(
        created,
        writer_epoch=2,
        replay_after_wal_entry_position=5,
        wal_entry_position_last_seen=6,
        current_generation=2,
        flushed_generations=(FlushedGeneration(1, "0123abcd_gen_1", 99, 4),),
        status=RegionStatus.SEALED,
    )
    assert committed.version == 2
    assert RegionManifests(store, REGION).latest() == committed
    assert RegionManifests(store, REGION).latest().region_values == created.region_values


def test_a_region_that_was_removed_when_it_was_made_is_not_found(store: ObjectStore) -> None:
    manifests = RegionManifests(store, REGION, TYPES)
    first = manifests.put_first(RegionManifest(REGION))
    assert first is not None
    store.delete([paths.manifest_path(REGION, 1)])
    with pytest.raises(NotFoundError, match="has no manifest"):
        manifests.newest_of(first, manifests.versions())


def test_the_message_has_the_fields_that_native_code_reads(store: ObjectStore) -> None:
    """Protocol rule 2; native's bytes, between our checksum and our nonce."""
    native = (
        b"\x08\x02\x10\x01\x18\x03\x20\x030\x02B\x19\x08\x01\x12\x0e1fa3787e_gen_1\x18\xfa\x01"
        b"\x20\x06(0P\x01Z\x12\n\x10" + REGION.bytes
    )
    store.put_if_absent(paths.manifest_path(REGION, 1), native.replace(b"\x08\x02", b"\x08\x01", 1))
    manifests = RegionManifests(store, REGION)
    first = manifests.latest()
    assert first.flushed_generations == (FlushedGeneration(1, "1fa3787e_gen_1", 250, 6),)
    manifests.commit(first)
    written = store.get(paths.manifest_path(REGION, 2))
    sealed, message = unseal_manifest("", written)
    assert sealed and message.startswith(native)


def test_unknown_fields_of_others_survive_a_commit(store: ObjectStore) -> None:
    """Protocol rule 1."""
    message = pb.RegionManifest(version=1)
    message.region_id.uuid = REGION.bytes
    message.flushed_generations.add(generation=1, path="0123abcd_gen_1", primary_key_bytes=8)
    unknown = b"\x92\x4e\x03abc"  # field 1250
    data = message.SerializeToString() + unknown
    store.put_if_absent(paths.manifest_path(REGION, 1), data)
    manifests = RegionManifests(store, REGION)
    manifests.commit(manifests.latest(), writer_epoch=1)
    written = store.get(paths.manifest_path(REGION, 2))
    assert unknown in written
    assert pb.RegionManifest.FromString(written).flushed_generations[0].primary_key_bytes == 8


def test_values_of_a_region_need_types(store: ObjectStore) -> None:
    with pytest.raises(InvalidCallError, match="bucket"):
        RegionManifests(store, REGION).create(RegionManifest(REGION, region_values={"bucket": 1}))


def test_values_written_by_native_code_are_read_with_the_types_of_the_spec(
    store: ObjectStore,
) -> None:
    message = pb.RegionManifest(version=1)
    message.region_id.uuid = REGION.bytes
    message.region_values.add(field_id="bucket", value=b"\x05\0\0\0")
    message.region_values.add(field_id="country", value=b"UA")
    store.put_if_absent(paths.manifest_path(REGION, 1), message.SerializeToString())
    assert RegionManifests(store, REGION).latest().region_values is None
    values = RegionManifests(store, REGION, TYPES).latest().region_values
    assert values == {"bucket": 5, "country": "UA"}


def test_two_claimants_of_one_version_do_not_both_win(store: ObjectStore) -> None:
    """Protocol rule 3: without a nonce both write the same bytes and both believe they won."""
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    for _ in range(20):

        def claim(old: RegionManifest = created) -> RegionManifest:
            manifests = RegionManifests(store, REGION)
            return manifests.commit(old, writer_epoch=old.writer_epoch + 1)

        wins, conflicts = contest(ManifestConflictError, *[claim] * 4)
        assert len(wins) == 1 and len(conflicts) == 3
        assert all(one.latest.version >= wins[0].version for one in conflicts)
        created = wins[0]


def test_changes_that_race_are_all_made(store: ObjectStore, no_pauses: None) -> None:
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))

    def claim() -> RegionManifest:
        return RegionManifests(store, REGION).change(
            created, lambda latest: {"writer_epoch": latest.writer_epoch + 1}
        )

    done, _ = contest(ManifestConflictError, *[claim] * 4)
    assert sorted(one.writer_epoch for one in done) == [1, 2, 3, 4]
    assert RegionManifests(store, REGION).latest().writer_epoch == 4


def test_no_change_is_no_version(store: ObjectStore) -> None:
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    assert RegionManifests(store, REGION).change(created, lambda _: {}) == created
    assert RegionManifests(store, REGION).latest().version == created.version


def test_a_change_that_always_comes_too_late_gives_up(store: ObjectStore, no_pauses: None) -> None:
    manifests = RegionManifests(store, REGION)
    created = manifests.create(RegionManifest(REGION))

    def overtaken(latest: RegionManifest) -> ManifestChanges:
        RegionManifests(store, REGION).commit(latest, current_generation=latest.version + 1)
        return {"writer_epoch": 1}

    with pytest.raises(RetryError, match=f"region {REGION}: other commits came in between 20"):
        manifests.change(created, overtaken)
    assert manifests.latest().writer_epoch == 0


@pytest.mark.parametrize(
    "kind", [Kind.LOST_REPLY, Kind.LANDED_EXISTS, Kind.TIMEOUT, Kind.FALSE_EXISTS]
)
def test_a_commit_settles_what_the_store_did_not_say(store: ObjectStore, kind: Kind) -> None:
    """Protocol rule 3: mine, or absent and put again."""
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    faulty = FaultyStore(store, [Fault("put_if_absent", kind)])
    committed = RegionManifests(faulty, REGION).commit(created, writer_epoch=1)
    faulty.check()
    assert RegionManifests(store, REGION).latest() == committed


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.FALSE_EXISTS])
def test_a_commit_that_landed_after_another_one_is_lost(store: ObjectStore, kind: Kind) -> None:
    """Protocol rule 3: somebody else's nonce."""
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    other = RegionManifests(store, REGION).commit(created, writer_epoch=1)
    faulty = FaultyStore(store, [Fault("put_if_absent", kind)])
    with pytest.raises(ManifestConflictError) as caught:
        RegionManifests(faulty, REGION).commit(created, writer_epoch=1)
    assert caught.value.latest == other


def test_a_commit_whose_fate_stays_unknown_says_so(store: ObjectStore) -> None:
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    faults = [Fault("put_if_absent", Kind.TIMEOUT) for _ in range(4)]
    with pytest.raises(OutcomeUnknownError, match="manifest/01"):
        RegionManifests(FaultyStore(store, faults), REGION).commit(created)


def test_a_commit_that_could_not_be_checked_is_unknown_and_not_refused(store: ObjectStore) -> None:
    """Protocol rule 8: the version is there, whether it counts is open."""
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    faulty = FaultyStore(store, [Fault("exists", Kind.REFUSED)])
    with pytest.raises(OutcomeUnknownError, match="was written"):
        RegionManifests(faulty, REGION).commit(created, writer_epoch=1)
    faulty.check()
    assert RegionManifests(store, REGION).latest().writer_epoch == 1


def test_a_version_that_can_not_be_withdrawn_is_lost_all_the_same(store: ObjectStore) -> None:
    """Protocol rule 8: readers pass over what stays in collected territory."""
    stale, *_, latest = committed(store, 5, collected=3)
    faulty = FaultyStore(store, [Fault("delete", Kind.REFUSED)])
    with pytest.raises(ManifestConflictError) as caught:
        RegionManifests(faulty, REGION).commit(stale, writer_epoch=9)
    assert caught.value.latest == latest
    assert RegionManifests(store, REGION).latest() == latest


@pytest.mark.parametrize("failing", ["list", "delete"])
def test_a_creator_in_collected_territory_misleads_nobody(store: ObjectStore, failing: str) -> None:
    """Protocol rule 8."""
    *_, latest = committed(store, 6, collected=4)
    faulty = FaultyStore(store, [Fault(failing, Kind.REFUSED)])
    with suppress(OutcomeUnknownError):
        assert RegionManifests(faulty, REGION).create(RegionManifest(REGION)) == latest
    faulty.check()
    assert RegionManifests(store, REGION).latest() == latest


def test_two_creators_make_one_region(store: ObjectStore) -> None:
    """Protocol rule 11."""
    first = RegionManifests(store, REGION).create(RegionManifest(REGION, region_spec_id=1))
    later = RegionManifests(store, REGION).commit(first, writer_epoch=1)
    assert RegionManifests(store, REGION).create(RegionManifest(REGION, region_spec_id=1)) == later


@pytest.mark.parametrize("collected", range(1, 5))
@pytest.mark.parametrize("slept_at", range(1, 4))
def test_a_version_in_collected_territory_is_never_won(
    store: ObjectStore, slept_at: int, collected: int
) -> None:
    """Protocol rule 8: the winner checks the version before its own and removes its object."""
    made, manifests = committed(store, 5, collected), RegionManifests(store, REGION)
    before = {meta.path: store.get(meta.path) for meta in store.list(paths.MEM_WAL_FOLDER)}
    with pytest.raises(ManifestConflictError) as caught:
        manifests.commit(made[slept_at - 1], writer_epoch=77)
    assert caught.value.latest == made[-1]
    if slept_at + 1 <= collected:
        # The name was free: the hint led there for a moment, and is gone with the object.
        del before[paths.version_hint_path(REGION)]
    assert {meta.path: store.get(meta.path) for meta in store.list(paths.MEM_WAL_FOLDER)} == before
    assert manifests.create(RegionManifest(REGION)) == made[-1]
    assert RegionManifests(store, REGION).latest() == made[-1]
    # Beside version 2 one can't tell: it is left to the collector.
    assert store.exists(paths.manifest_path(REGION, 1)) == (collected == 1)


def test_a_reader_is_not_misled_by_a_version_in_collected_territory(store: ObjectStore) -> None:
    """Protocol rule 8: a version counts as the latest only if the one before it is there."""
    stale, *_, latest = committed(store, 6, collected=4)
    put_version(store, 3, writer_epoch=77)
    store.put(paths.version_hint_path(REGION), b'{"version":3}')
    assert RegionManifests(store, REGION).latest() == latest
    assert RegionManifests(store, REGION).latest(stale) == latest
    assert RegionManifests(store, REGION).newer(replace(stale, version=2)) == latest


def test_a_missing_hint_target_does_not_mean_a_new_region(store: ObjectStore) -> None:
    """Protocol rule 8."""
    *_, latest = committed(store, 4, collected=2)
    for hint in (b'{"version":1}', b'{"version":99}', b"garbage", b'{"version":"x"}'):
        store.put(paths.version_hint_path(REGION), hint)
        assert RegionManifests(store, REGION).latest() == latest
    store.delete([paths.version_hint_path(REGION)])
    assert RegionManifests(store, REGION).latest() == latest


def test_a_region_without_manifests_is_not_found(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match=str(REGION)):
        RegionManifests(store, REGION).latest()


def test_asking_for_a_newer_version_costs_two_probes_and_no_read(store: ObjectStore) -> None:
    """Two, as the version asked about may have been collected with all that came after it."""
    created = RegionManifests(store, REGION).create(RegionManifest(REGION))
    counting = FaultyStore(store)
    assert RegionManifests(counting, REGION).newer(created) is None
    assert counting.calls == {"exists": 2}
    committed = RegionManifests(store, REGION).commit(created)
    assert RegionManifests(counting, REGION).newer(created) == committed


def test_a_reader_notices_that_its_version_was_collected(store: ObjectStore) -> None:
    """Protocol rule 8: the versions after it may be gone as well."""
    old, *_, latest = committed(store, 5, collected=3)
    assert RegionManifests(store, REGION).newer(old) == latest


@pytest.mark.parametrize("collected", range(4))
@pytest.mark.parametrize("hint", [*range(6), "x", None])
def test_a_recent_version_is_in_use_whatever_the_hint_says(
    store: ObjectStore, collected: int, hint: int | str | None
) -> None:
    """Of four, the first of which may be collected; below it, one was put where none counts."""
    for version in range(1, 5):
        put_version(store, version)
    for version in range(1, collected + 1):
        store.delete([paths.manifest_path(REGION, version)])
    if collected > 1:
        put_version(store, collected - 1)
    if hint is not None:
        data = b'{"version":%d}' % hint if isinstance(hint, int) else b"x"
        store.put(paths.version_hint_path(REGION), data)
    found, is_newest = RegionManifests(cast(ObjectStore, Remote(store)), REGION).recent()
    in_use = collected + 2 if collected else 2
    assert is_newest == (hint == 4 and in_use <= 4)  # it is not known of a listed one
    assert RegionManifests(store, REGION).recent() == (found, False)
    assert found.version == (hint if isinstance(hint, int) and in_use <= hint <= 4 else 4)


def test_a_damaged_version_that_a_hint_names_is_passed_over_for_a_newer_one(
    store: ObjectStore,
) -> None:
    for version in (1, 2, 3):
        put_version(store, version)
    store.put(paths.manifest_path(REGION, 2), b"damaged")
    store.put(paths.version_hint_path(REGION), b'{"version":2}')
    assert RegionManifests(store, REGION).recent()[0].version == 3


def test_a_hint_that_can_not_be_written_does_no_harm(store: ObjectStore) -> None:
    faulty = FaultyStore(store, [Fault("put", Kind.REFUSED)])
    created = RegionManifests(faulty, REGION).create(RegionManifest(REGION))
    faulty.check()
    assert RegionManifests(store, REGION).latest() == created


@pytest.mark.parametrize("path", ["../../etc", "0123abcd_gen_2", "/abs_gen_1", ""])
def test_a_generation_outside_its_region_is_refused(store: ObjectStore, path: str) -> None:
    message = pb.RegionManifest(version=1)
    message.region_id.uuid = REGION.bytes
    message.flushed_generations.add(generation=1, path=path)
    store.put_if_absent(paths.manifest_path(REGION, 1), message.SerializeToString())
    with pytest.raises(CorruptFileError, match="manifest/10"):
        RegionManifests(store, REGION).latest()


def test_a_manifest_of_another_region_is_refused(store: ObjectStore) -> None:
    other = uuid4()
    RegionManifests(store, other).create(RegionManifest(other))
    copied = store.get(paths.manifest_path(other, 1))
    store.put_if_absent(paths.manifest_path(REGION, 1), copied)
    with pytest.raises(CorruptFileError, match=str(other)):
        RegionManifests(store, REGION).latest()
