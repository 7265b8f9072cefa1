"""Every record of a table with every field replaced by what it can't be: whoever reads it gets a
typed error that names the file, or reads what the field still allows; nothing else is raised, and
nothing of a size that the field says is allocated.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any
from uuid import UUID, uuid4

import pytest

from memwal_sql.errors import CorruptFileError, MemWalError, RepairError, UnknownFormatError
from memwal_sql.maintain.checkpoint import records as checkpoint_records
from memwal_sql.maintain.lease import maintenance_lease
from memwal_sql.state.batch_marks import BatchMark, complete, decode_mark, last_complete
from memwal_sql.storage import paths
from memwal_sql.storage.base.memwal_index import IndexDetails, decode_details, encode_details
from memwal_sql.storage.base.versions import version_numbers
from memwal_sql.storage.decoding import LARGEST, decoding, json_object, number_of, whole_number
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.records.gc_watermarks import (
    Watermark,
    check_watermarks,
    raise_watermarks,
    read_watermarks,
)
from memwal_sql.storage.records.table import Records, read_record, write_record
from memwal_sql.storage.region.manifest import (
    FlushedGeneration,
    RegionManifest,
    decode_manifest,
    encode_manifest,
)
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest
from memwal_sql.storage.region.snapshot_file import decode_regions, encode_regions
from memwal_sql.storage.region.versions import RegionManifests
from tests.each import each

REGION = uuid4()
DEEP = "[" * 100_000
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1.0, 2**63, 2**64 - 1, 10**30, 10**400, 1e300, float("nan"), float("inf"),
    "", "abc", "-1", "\u0663", "1_0", "\0", [], [[]], {}, {"a": []},
)  # fmt: skip


def _fields(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside a JSON value, itself first."""
    yield path
    inside = content.items() if isinstance(content, dict) else ()
    inside = enumerate(content) if isinstance(content, list) else inside
    for key, value in inside:
        yield from _fields(value, (*path, key))


def _changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = deepcopy(content)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def _without(content: Any, path: tuple[Any, ...]) -> Any:
    changed = _changed(content, path, None)
    place = changed
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return changed


def _versions_of(whole: bytes) -> Iterator[bytes]:
    """The file with each field replaced, or left out; and files that are no JSON."""
    content = json.loads(whole)
    for path in _fields(content):
        for value in HOSTILE:
            yield json.dumps(_changed(content, path, value)).encode()
        if path:
            yield json.dumps(_without(content, path)).encode()
    yield from (b"", b"\xff", b"{", whole[:-3], whole + b"}", DEEP.encode(), b"9" * 5000)
    yield b'{"format_version": ' + b"1" * 5000 + b"}"
    yield whole.replace(b'"format_version": 1', b'"format_version": ' + DEEP.encode())


def _take_lease(store: ObjectStore) -> None:
    with maintenance_lease(store, "job", sleep=lambda seconds: None, clock=_passing().__next__):
        pass


def _passing() -> Iterator[float]:
    """A clock that runs a second at every look."""
    now = 0.0
    while True:
        yield now
        now += 1.0


def _checkpoints(store: ObjectStore) -> None:
    for one in checkpoint_records.all_checkpoints(store):
        one.is_live(1.0)
        checkpoint_records.retained_by_checkpoints([one], 1.0)
        one.snapshot()


def _make_checkpoint(store: ObjectStore) -> None:
    regions = encode_regions([RegionManifest(REGION)], [])
    made = checkpoint_records.Checkpoint("held", 1, 1, 1.0, 2.0, regions)
    checkpoint_records.write(store, made)


def _make_lease(store: ObjectStore) -> None:
    note = {"read_version": 1, "index_uuid": str(uuid4())}
    held = {"holder": "h", "job": "j", "host": socket.gethostname(), "process": os.getpid()}
    Records(store, "maintenance").put(1, {**held, "held": True, "unfinished": [note]})


# How a record is made, and all that read it.
RECORDS: dict[str, tuple[Callable[[ObjectStore], object], Callable[[ObjectStore], object]]] = {
    "table": (lambda store: write_record(store, uuid4()), read_record),
    "collected": (
        lambda store: raise_watermarks(store, {REGION: Watermark(3, 4)}),
        lambda store: (
            read_watermarks(store),
            check_watermarks(store, {REGION: LARGEST}, read_watermarks(store)),
            raise_watermarks(store, {REGION: Watermark(5, 6)}),
        ),
    ),
    "maintenance": (_make_lease, _take_lease),
    "checkpoints": (_make_checkpoint, _checkpoints),
    "batches": (
        lambda store: complete(store, BatchMark("q", 0), 1),
        lambda store: (last_complete(store, "q"), complete(store, BatchMark("q", 1), 1)),
    ),
}


@each("name", RECORDS)
def test_no_field_of_a_record_can_do_more_than_be_refused(name: str) -> None:
    make, read = RECORDS[name]
    made = MemoryStore("memory://t")
    make(made)
    (path,) = (meta.path for meta in made.list("_memwal_sql"))
    whole = made.get(path)
    read(made)
    refused = 0
    for bad in _versions_of(whole):
        store = MemoryStore("memory://t")
        store.put(path, bad)
        try:
            read(store)
        except (CorruptFileError, UnknownFormatError) as error:
            refused += 1
            assert path in str(error) or "the checkpoint 'held'" in str(error)
            assert isinstance(error, UnknownFormatError) or ";" in str(error), "without a remedy"
        except MemWalError as error:  # what the record says is to be waited for, or is older
            assert name in ("table", "collected"), error
    assert refused > 40 or name == "batches"


ODD_NAMES = ("٣", "²", "1", "+1", "1_0", "-1", "9" * 20, "9" * 26, "0x1", " 1", "1" + "0" * 19)


@each("name", ODD_NAMES)
def test_files_of_other_names_are_no_records(name: str) -> None:
    store = MemoryStore("memory://t")
    write_record(store, uuid4())
    whole = read_record(store)
    for folder in ("_memwal_sql/table", "_memwal_sql/batches/q"):
        store.put(f"{folder}/{name}.json", b'{"format_version": 1}')
    assert read_record(store) == whole
    assert last_complete(store, "q") == -1
    complete(store, BatchMark("q", 0), 1)
    assert last_complete(store, "q") == 0
    for odd in ("٣", "1_0", " 1", "0x1"):
        store.put(f"_versions/{odd}.manifest", b"")
        assert paths.base_version_of(f"_versions/{odd}.manifest") is None
    assert version_numbers(store) == []


@each("text", ["q/٣", "q/1_0", "q/-1", "q/", "/1", "q", f"q/{'9' * 30}", ""])
def test_a_mark_of_no_batch_is_none(text: str) -> None:
    assert decode_mark(text) is None
    assert decode_mark("q/7") == BatchMark("q", 7)


HINTS = (
    '{"version": 18446744073709551615}', '{"version": -5}', '{"version": 0}', '{"version": 1e30}',
    '{"version": Infinity}', '{"version": NaN}', '{"version": 1.0}', '{"version": true}',
    '{"version": "1"}', '{"version": null}', '{"version": ' + "9" * 5000 + "}",
    '{"version": 10000}',
    "{}", "[]", "[1]", "null", "", "[" * 200_000, '{"version": ' * 50_000, "\0", '{"version": 2',
    '{"version": 9223372036854775808}',
)  # fmt: skip


@each("hint", HINTS)
def test_a_hint_decides_nothing(hint: str) -> None:
    store = MemoryStore("memory://t")
    manifests = RegionManifests(store, REGION)
    newest = manifests.commit(manifests.create(RegionManifest(REGION)), writer_epoch=1)
    store.put(paths.version_hint_path(REGION), hint.encode())
    assert manifests.latest() == newest
    assert manifests.commit(newest, writer_epoch=2).version == 3


EXTREMES = (0, 1, -1, 2**31, 2**40 + 1, 2**63 - 1, 2**63, 2**64 - 1, "../../x", b"", "\0")


def _manifest() -> RegionManifest:
    flushed = tuple(FlushedGeneration(n, f"0123abcd_gen_{n}", 10, 2, 7) for n in (1, 2))
    return RegionManifest(
        REGION,
        writer_epoch=2,
        replay_after_wal_entry_position=5,
        wal_entry_position_last_seen=6,
        current_generation=3,
        flushed_generations=flushed,
        published={"q": 1},
        nonce=b"n",
    )


def _messages(message: Any) -> Iterator[Any]:
    """The message with each number and text in it replaced by extremes, one at a time."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        places: Any = range(len(value)) if field.is_repeated else (None,)
        for place in places:
            if field.message_type is None:
                yield from _extremes(message, field.name, place)
            elif place is not None or message.HasField(field.name):
                for changed in _messages(value if place is None else value[place]):
                    copy = _copied(message)
                    held = getattr(copy, field.name)
                    (held if place is None else held[place]).CopyFrom(changed)
                    yield copy


def _extremes(message: Any, name: str, place: int | None) -> Iterator[Any]:
    for extreme in EXTREMES:
        copy = _copied(message)
        with suppress(TypeError, ValueError, OverflowError):
            if place is None:
                setattr(copy, name, extreme)
            else:
                getattr(copy, name)[place] = extreme
            yield copy


def _copied(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def test_no_field_of_a_region_manifest_can_do_more_than_be_refused() -> None:
    """Sealed again: whoever writes the file writes its checksum."""
    path = paths.manifest_path(REGION, 1)
    whole = encode_manifest(_manifest(), {})
    _, body = unseal_manifest(path, whole)
    refused = taken = 0
    for message in _messages(pb.RegionManifest.FromString(body)):
        data = seal_manifest(message.SerializeToString())
        try:
            found = decode_manifest(path, data, {})
        except CorruptFileError as error:
            refused += 1
            assert path in str(error)
        else:
            taken += 1
            again = encode_manifest(found, {})
            assert decode_manifest(path, again, {}) == found
            # What is taken can be added to.
            encode_manifest(RegionManifest(REGION, found.version + 1, found.writer_epoch + 1), {})
            for number in (found.replay_after_wal_entry_position, found.version):
                paths.wal_path(REGION, number + 100)
    assert refused > 30 and taken > 10
    for cut in range(len(whole)):
        with pytest.raises(CorruptFileError, match="manifest"):
            decode_manifest(path, whole[:cut], {})


def test_no_field_of_the_index_details_can_do_more_than_be_refused() -> None:
    details = IndexDetails(
        merged_generations={REGION: 3},
        index_catchup={"i": {REGION: 2}},
        snapshot_ts_millis=5,
        num_regions=1,
        maintained_indexes=("i",),
    )
    refused = 0
    for message in _messages(pb.MemWalIndexDetails.FromString(encode_details(details))):
        try:
            found = decode_details("_versions/1.manifest", message.SerializeToString())
        except RepairError as error:
            refused += 1
            assert "_versions/1.manifest" in str(error)
        else:
            encode_details(found)
    assert refused > 5


@each(
    "flushed",
    [
        FlushedGeneration(1, "../../x_gen_1"),
        FlushedGeneration(1, "0123abcd_gen_2"),
        FlushedGeneration(0, "0123abcd_gen_0"),
        FlushedGeneration(2**63, f"0123abcd_gen_{2**63}"),
        FlushedGeneration(1, ""),
    ],
)
def test_a_region_snapshot_names_no_folder_but_generations(flushed: FlushedGeneration) -> None:
    data = encode_regions([RegionManifest(REGION, flushed_generations=(flushed,))], [])
    with pytest.raises(CorruptFileError, match=r"the file is not a region snapshot.*; the remedy"):
        decode_regions(data, [], "the file", "the remedy")


@each("name", ["version", "writer_epoch", "replay_after_wal_entry_position"])
def test_a_region_snapshot_has_numbers_that_can_be_added_to(name: str) -> None:
    changed: dict[str, Any] = {name: 2**64 - 1}
    data = encode_regions([RegionManifest(REGION, **changed)], [])
    with pytest.raises(CorruptFileError, match="not between"):
        decode_regions(data, [], "the file")


def test_a_region_snapshot_that_is_cut_or_changed_anywhere_is_named() -> None:
    """Lance gives up on some of these, which is no exception of Python's."""
    data = encode_regions([_manifest()], [])
    step = len(data) // 60
    for place in range(0, len(data), step):
        for bad in (data[:place], data[:place] + b"\xff" * 8 + data[place + 8 :]):
            with suppress(CorruptFileError):
                decode_regions(bad, [], "the file")


def test_the_holder_of_a_lease_that_nobody_can_tell_of_is_waited_for() -> None:
    for process in ("abc", 10**30, -1, 0, None, 1.5, True, [], 2**40):
        store = MemoryStore("memory://t")
        content = {"held": True, "host": socket.gethostname(), "process": process, "unfinished": []}
        Records(store, "maintenance").put(1, content)
        looks = 0

        def sleep(seconds: float) -> None:
            nonlocal looks
            looks += 1

        with (
            maintenance_lease(store, "job", sleep=sleep, clock=_passing().__next__),
        ):
            assert looks >= 3


def test_decoding_tells_damage_and_nothing_else() -> None:
    told = r"^f is not a thing: 'a' is missing; do this$"
    with pytest.raises(CorruptFileError, match=told), decoding("f", "a thing", "do this"):
        raise KeyError("a")
    for passing in (MemoryError, KeyboardInterrupt, OSError, AssertionError):
        with pytest.raises(passing), decoding("f", "a thing"):
            raise passing
    assert number_of("007") == 7 and number_of(str(LARGEST + 1)) is None
    assert whole_number(UUID(int=5).int) == 5
    with pytest.raises(TypeError):
        json_object(b"[1]")


def test_long_values_are_cut_as_a_message_is_for_people() -> None:
    with pytest.raises(CorruptFileError) as caught, decoding("f", "a thing"):
        raise ValueError("x" * 10_000)
    assert len(str(caught.value)) < 500
