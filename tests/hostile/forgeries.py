"""Damage to what stands within files whose checksums fit: what entries and manifests say of
transactions, the recorded regions, the columns of Lance's manifests, and JSON columns."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.region import snapshot_file
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest
from memwal_sql.storage.wal.arrow_stream import batches_with_metadata
from memwal_sql.storage.wal.checksum import SEAL_KEY, blank_seal, seal
from tests.hostile.target import (
    MEM_WAL,
    NUMBERS,
    TEXTS,
    Target,
    flip,
    mutate_json,
    word,
    written,
)
from tests.hostile.template import MARK
from tests.model.lance_manifest import (
    BYTES,
    VARINT,
    Fields,
    encoded,
    fields_of,
    rewrite,
    rewrite_indexes,
)

_OF_TRANSACTIONS = b"memwal_sql:txn", b"memwal_sql:verdicts"
_MANY = 50_000
_NONCE = "0123456789abcdef" * 2
# Of a field of a schema: its name, id, parent and type.
_NAME, _ID, _PARENT, _TYPE = 2, 3, 4, 5
_TYPES = (
    b"fixed_size_list:float:999999999",
    b"fixed_size_list:float:0",
    b"fixed_size_binary:2147483647",
    b"decimal:128:99:99",
    b"timestamp:us:Nowhere/None",
    b"string",
    b"int64",
    b"double",
    b"large_binary",
    b"list",
    b"struct",
    b"null",
    b"",
)


def metadata_of_an_entry(target: Target) -> tuple[str, bool]:
    """One value of what an entry says beside its rows: intents, verdicts, the epoch and others."""
    chance = target.chance
    files = sorted(target.table.rglob("wal/*.arrow"))
    named = [one for one in files if any(key in one.read_bytes() for key in _OF_TRANSACTIONS)]
    file = chance.choice(named if chance.random() < 0.8 else files)
    with pa.ipc.open_stream(file.read_bytes()) as reader:
        schema, batches = reader.schema, list(batches_with_metadata(reader))
    own = dict(schema.metadata or {}) if not batches else dict(batches[0][1])
    own.pop(SEAL_KEY, None)
    keys = [key for key in _OF_TRANSACTIONS if key in own]
    key = chance.choice(keys if keys and chance.random() < 0.8 else sorted(own) or [b"other"])
    own[key] = _other_value(own.get(key, b""), chance)
    ours = {**own, SEAL_KEY: blank_seal(_NONCE)}
    sink = pa.BufferOutputStream()
    stored = schema if batches else schema.with_metadata(ours)
    with pa.ipc.new_stream(sink, stored) as writer:
        for batch, _ in batches:
            writer.write_batch(batch, custom_metadata=ours)
    return written(target, file, seal(sink.getvalue(), _NONCE), f"other {key.decode()}"), False


def _other_value(value: bytes, chance: random.Random) -> bytes:
    try:
        content = json.loads(value)
    except ValueError:
        return chance.choice((flip(value, chance), *map(str.encode, TEXTS)))
    if isinstance(content, list) and content and chance.random() < 0.3:
        content = chance.choice((content[:1] * _MANY, content[::-1], content[1:]))
        return json.dumps(content).encode()
    if isinstance(content, list) and content and chance.random() < 0.3:
        return json.dumps([{**one, "counts": not one["counts"]} for one in content]).encode()
    return json.dumps(mutate_json(content, chance)).encode()


def list_of_verdicts(target: Target) -> tuple[str, bool]:
    """What a region's manifest says of the transactions that a flush has taken."""
    chance = target.chance
    files = [
        file
        for file in sorted(target.table.rglob("manifest/*.binpb"))
        if _manifest(file).transactions
    ]
    file = chance.choice(files)
    message = _manifest(file)
    listed = list(message.transactions)
    how = chance.choice(("gone", "turned", "many", "id", "attempt", "last", "of others"))
    if how == "last":
        message.last_transaction = chance.choice(NUMBERS)
    elif how in ("id", "attempt"):
        text = chance.choice(TEXTS)
        setattr(chance.choice(message.transactions), how, text)
    elif how == "of others":
        others = [one for other in files for one in _manifest(other).transactions]
        message.transactions.extend(others)
    else:
        del message.transactions[:]
        kept = {"gone": [], "turned": listed[::-1], "many": listed[:1] * _MANY}
        message.transactions.extend(kept[how])
    return written(target, file, seal_manifest(message.SerializeToString()), how), False


def _manifest(file: Path) -> Any:
    return pb.RegionManifest.FromString(unseal_manifest("", file.read_bytes())[1])


def recorded_regions(target: Target) -> tuple[str, bool]:
    """The recorded states of regions: damaged, which their checksum tells, or forged."""
    chance = target.chance
    seed, done = chance.random(), list[str]()
    newest = [min(target.table.glob("_versions/*.manifest"))]

    def change(section: Any) -> None:
        own = random.Random(seed)
        for index in section.indices:
            if index.name != MEM_WAL:
                continue
            details = pb.MemWalIndexDetails.FromString(index.index_details.value)
            if not details.HasField("inline_snapshots"):
                continue
            if own.random() < 0.3:
                details.inline_snapshots = flip(details.inline_snapshots, own)
                done.append("flipped")
            else:
                details.inline_snapshots = _forged(details.inline_snapshots, own)
                done.append("forged")
            index.index_details.value = details.SerializeToString()

    for file in chance.choice((newest, [*target.table.glob("_versions/*.manifest")])):
        rewrite_indexes(file, change)
    return f"recorded regions: {done[:1]}", set(done) == {"flipped"}


def _forged(data: bytes, chance: random.Random) -> bytes:
    """One column's first value, with a checksum that fits."""
    table = snapshot_file._read(data)
    name = chance.choice(table.column_names)
    field, values = table.schema.field(name), table[name].to_pylist()
    values[0] = _forged_value(field.type, values[0], chance)
    try:
        column = pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        column = pa.nulls(len(values), field.type)
    place = table.schema.get_field_index(name)
    forged = table.set_column(place, field.with_nullable(True), column)
    if chance.random() < 0.2:
        forged = forged.drop_columns(name)
    elif chance.random() < 0.2:
        forged = pa.concat_tables([forged] * chance.choice((0, 2, 2_000)) or [forged.slice(0, 0)])
    with snapshot_file._temporary_file() as path:
        with snapshot_file.LanceFileWriter(path, forged.schema) as writer:
            writer.write_batch(forged)
        return snapshot_file._sealed(Path(path).read_bytes())


def _forged_value(kind: pa.DataType, value: Any, chance: random.Random) -> Any:
    if pa.types.is_integer(kind):
        return chance.choice(NUMBERS)
    if pa.types.is_list(kind):
        path, number = chance.choice(TEXTS), chance.choice(NUMBERS)
        forged = {"generation": number, "path": path}
        return chance.choice(([], [forged], [*value, forged], [*value, *value], None))
    if pa.types.is_boolean(kind):
        return chance.choice((None, not value))
    return chance.choice((None, bytes(16), b"\xff" * 16))


def columns(target: Target) -> tuple[str, bool]:
    """The fields of Lance's manifests, of the base table or of a generation: readers that were
    made before know others."""
    chance = target.chance
    folders = sorted({file.parent for file in target.table.rglob("_versions/*.manifest")})
    folder = folders[0] if chance.random() < 0.7 else chance.choice(folders)
    newest = min(folder.glob("*.manifest"))
    files = chance.choice(([newest], sorted(folder.glob("*.manifest"))))
    seed = chance.random()
    for file in files:
        rewrite(file, lambda fields: _other_columns(fields, random.Random(seed)))
    return f"{len(files)} manifests of {folder.relative_to(target.table)}: other columns", False


def _other_columns(fields: Fields, chance: random.Random) -> Fields:
    places = [place for place, (number, _, _) in enumerate(fields) if number == 1]
    own = {place: list(fields_of(fields[place][2])) for place in places}
    one, other = chance.sample(places, 2)

    def put(place: int, number: int, wire: int, value: Any) -> None:
        own[place] = [*(part for part in own[place] if part[0] != number), (number, wire, value)]

    def get(place: int, number: int, default: Any) -> Any:
        return next((part[2] for part in own[place] if part[0] == number), default)

    how = chance.choice(("ids", "names", "new id", "rename", "type", "type", "parent", "metadata"))
    if how in ("ids", "names"):
        number, wire = (_ID, VARINT) if how == "ids" else (_NAME, BYTES)
        first, second = get(one, number, 0), get(other, number, 0)
        put(one, number, wire, second)
        put(other, number, wire, first)
    elif how == "new id":
        put(one, _ID, VARINT, chance.choice((77, 2**31 - 1)))
    elif how == "rename":
        put(one, _NAME, BYTES, chance.choice(TEXTS).encode())
    elif how == "type":
        put(one, _TYPE, BYTES, chance.choice(_TYPES))
    elif how == "parent":
        put(one, _PARENT, VARINT, get(other, _ID, 0))
    else:
        entry = encoded([(1, BYTES, b"memwal_sql:default"), (2, BYTES, chance.choice(_TYPES))])
        put(one, 10, BYTES, entry)
    changed = [encoded(own[place]) if place in own else b"" for place in range(len(fields))]
    return [
        (number, wire, changed[place] if place in own else value)
        for place, (number, wire, value) in enumerate(fields)
    ]


def json_values(target: Target) -> tuple[str, bool]:
    """Lance's binary JSON, in the base table or a generation."""
    chance = target.chance
    files = [
        file
        for file in sorted(target.table.rglob("data/*.lance"))
        if MARK.encode() in file.read_bytes()
    ]
    file = chance.choice(files)
    data = file.read_bytes()
    marks = [place for place in range(len(data)) if data.startswith(MARK.encode(), place)]
    place = chance.choice(marks)
    start, end = max(place - 16, 0), place + len(MARK) + 8
    part = chance.choice((flip, word))(data[start:end], chance)
    return written(target, file, data[:start] + part + data[end:], "other JSON"), False


def home(target: Target) -> tuple[str, bool]:
    """The other table, which has records of this one's transactions."""
    chance = target.chance
    other = target.table.parent / "other"
    records = sorted(other.glob("_memwal_sql/transactions/*.json"))
    how = chance.choice(("gone", "its records", "a record", "forged", "forged", "another table"))
    if how == "gone":
        shutil.rmtree(other)
    elif how == "its records":
        shutil.rmtree(other / "_memwal_sql" / "transactions")
    elif how == "a record":
        chance.choice(records).unlink()
    else:
        tables = sorted(other.glob("_memwal_sql/table/*.json"))
        file = chance.choice(tables if how == "another table" else records)
        content = mutate_json(json.loads(file.read_bytes()), chance)
        file.unlink()  # it may be a hard link to a file of the template
        file.write_text(json.dumps(content))
    return f"the other table: {how}", False
