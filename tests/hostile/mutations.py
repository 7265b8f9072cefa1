"""What is done to the files of a table: by accident, which must never be read as other rows, or by
somebody hostile, who writes checksums that fit and may be believed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

import memwal_sql as mw
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest
from tests.model.lance_manifest import rewrite_indexes

# Files of the table that are not Lance's.
_OURS = re.compile(r"^_memwal_sql/|/manifest/|/wal/|/bloom_filter\.bin$")
_NONCE = re.compile(rb"[0-9a-f]{32}:[0-9a-f]{16}:([0-9a-f]{8})")
_MEM_WAL = "__lance_mem_wal"
_NUMBERS = (0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**64 - 1)
_TEXTS = ("", "x", "../x", "/etc/passwd", "a/b", "\x1b[2J\n", "é" * 100, "x" * 100_000)
_JSON = (None, -1, 2**64, 10**40, 1e300, float("nan"), float("inf"), "", "x", [], {}, [[[]]])
_NAMES = ("٣.json", "1" * 64, "0" * 63 + "1", "x", "0", "\x1b[2J\n", "x.json")
_Bytes = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Damage:
    """What was done; `exact` where rows are right if they are read at all."""

    text: str
    exact: bool


@dataclass(frozen=True)
class Target:
    """The table to be damaged, an earlier copy of it, a folder that is none of its, and chance."""

    table: Path
    earlier: Path
    outside: Path
    chance: random.Random

    def file(self, pattern: str = "") -> Path:
        """A file whose path matches: of every kind of file as often, as generations have dozens,
        and often one of the newest, which are read."""
        kinds: dict[str, list[Path]] = {}
        for file in sorted(self.table.rglob("*"), key=lambda one: (one.stat().st_mtime_ns, one)):
            name = str(file.relative_to(self.table))
            if file.is_file() and re.search(pattern, name):
                kind = re.sub(r"[0-9a-f]{8}[-0-9a-f]*|[01]{64}|\d+", "*", name)
                kinds.setdefault(kind, []).append(file)
        found = kinds[self.chance.choice(sorted(kinds))]
        return self.chance.choice(found[-3:] if self.chance.random() < 0.6 else found)

    def is_tail(self, file: Path) -> bool:
        """Whether it is a log's newest entry."""
        log = sorted(file.parent.iterdir(), key=lambda one: one.name[:64][::-1])
        return file.parent.name == "wal" and file == log[-1]


# Contents


def _flip(data: bytes, chance: random.Random) -> bytes:
    bad = bytearray(data)
    for _ in range(chance.choice((1, 1, 8)) if bad else 0):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    return bytes(bad)


def _word(data: bytes, chance: random.Random) -> bytes:
    """A word of 4 or 8 bytes replaced by an extreme."""
    size = min(chance.choice((4, 8)), len(data))
    place = chance.randrange(len(data) - size + 1) // 4 * 4
    value = chance.choice(_NUMBERS) % 2 ** (8 * size)
    return data[:place] + value.to_bytes(size, "little") + data[place + size :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


_ACCIDENTS: dict[str, _Bytes] = {
    "flipped": _flip,
    "word": _word,
    "cut": _cut,
    "zeros": lambda data, chance: bytes(len(data)),
    "empty": lambda data, chance: b"",
    "grown": lambda data, chance: data + data[: chance.randrange(1, 4096)],
    "noise": lambda data, chance: chance.randbytes(min(len(data), 4096)),
}
# What a crash leaves of a log's newest entry, which nobody was told of.
_TORN = ("cut", "empty", "zeros")
# Other damage in a file of Lance's may be read as a value, as its pages have no checksums.
_OF_LANCE = ("cut", "zeros", "empty")


def _mutate_json(content: Any, chance: random.Random) -> Any:
    if isinstance(content, dict) and content and chance.random() < 0.9:
        key = chance.choice(sorted(content))
        return {**content, key: _mutate_json(content[key], chance)}
    if isinstance(content, list) and content and chance.random() < 0.8:
        place = chance.randrange(len(content))
        return [*content[:place], _mutate_json(content[place], chance), *content[place + 1 :]]
    return chance.choice(_JSON)


def _fields(message: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every field that is set, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.name != "Any":
            repeated = not isinstance(value, type(message)) and hasattr(value, "__iter__")
            for inner in value if repeated else [value]:
                if hasattr(inner, "ListFields"):
                    yield from _fields(inner)


def _mutate_message(message: Any, chance: random.Random) -> str:
    """Change one field of a message, and name it."""
    owner, field = chance.choice(list(_fields(message)))
    value = getattr(owner, field.name)
    if hasattr(value, "append") or hasattr(value, "add"):  # repeated
        items = list(value)
        first = items[:1] if chance.random() < 0.95 else items[:1] * 50_000
        del value[:]
        value.extend(chance.choice(([], items + first, items[::-1], items[1:])))
    elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        text = chance.choice(_TEXTS)
        is_text = field.type == FieldDescriptor.TYPE_STRING
        setattr(owner, field.name, text if is_text else _flip(value, chance) or text.encode())
    elif field.type == FieldDescriptor.TYPE_MESSAGE or chance.random() < 0.2:
        owner.ClearField(field.name)
    else:
        for number in chance.sample(_NUMBERS, len(_NUMBERS)):
            try:
                setattr(owner, field.name, number)
                break
            except ValueError:  # too large for its type
                continue
    return str(field.full_name)


# Kinds of mutations: each damages something, and says what, and whether by accident.


def _accident(target: Target) -> tuple[str, bool]:
    rows = r"/manifest/.*\.binpb$", r"/wal/"  # where it may be read as other rows
    file = target.file(target.chance.choice((*rows, *rows, *_OURS.pattern.split("|"))))
    how = target.chance.choice((*sorted(_ACCIDENTS), "flipped", "flipped", "word", "cut"))
    exact = how not in _TORN or not target.is_tail(file)
    return _written(target, file, _ACCIDENTS[how](file.read_bytes(), target.chance), how), exact


def _accident_of_lance(target: Target) -> tuple[str, bool]:
    file = target.file(rf"^(?!.*({_OURS.pattern}))")
    how = target.chance.choice(_OF_LANCE)
    return _written(target, file, _ACCIDENTS[how](file.read_bytes(), target.chance), how), True


def _swapped(target: Target) -> tuple[str, bool]:
    file = target.file()
    like = re.sub(r"[0-9a-f]{8}[-0-9a-f]*|[01]{64}|\d+", ".*", str(file.relative_to(target.table)))
    other = target.file(like if target.chance.random() < 0.5 else "")
    is_ours = _OURS.search(str(file.relative_to(target.table))) is not None
    exact = is_ours and file.suffix != ".json" and not target.is_tail(file)
    return _written(target, file, other.read_bytes(), f"gets {other.name}"), exact


def _replayed(target: Target) -> tuple[str, bool]:
    """Files as they were, one or all of a folder; what came later stays or is gone."""
    before = sorted(one for one in target.earlier.rglob("*") if one.is_file())
    if target.chance.random() < 0.3:
        folder = target.chance.choice(("_mem_wal", "_memwal_sql", "_versions"))
        shutil.rmtree(target.table / folder)
        shutil.copytree(target.earlier / folder, target.table / folder)
        return f"{folder} replayed", False
    now = [(target.table / one.relative_to(target.earlier), one) for one in before]
    changed = [(new, old) for new, old in now if not new.exists() or _differ(new, old)]
    later = [one for one in target.table.rglob("*/manifest/*.binpb") if one not in dict(now)]
    if not changed or target.chance.random() < 0.5:
        gone = target.chance.choice(sorted(later))
        gone.unlink()
        return f"{gone.relative_to(target.table)} removed", False
    new, old = target.chance.choice(changed)
    return _written(target, new, old.read_bytes(), "replayed"), False


def _differ(new: Path, old: Path) -> bool:
    return new.read_bytes() != old.read_bytes()


def _manifest_field(target: Target) -> tuple[str, bool]:
    file = target.file(r"/manifest/.*binpb$")
    message = pb.RegionManifest.FromString(unseal_manifest("", file.read_bytes())[1])
    name = _mutate_message(message, target.chance)
    return _written(target, file, seal_manifest(message.SerializeToString()), name), False


def _index_field(target: Target) -> tuple[str, bool]:
    """The entries of indexes in Lance's manifests, with what this package keeps in one of them."""
    newest = [min(target.table.glob("_versions/*.manifest"))]
    files = target.chance.choice((newest, [*target.table.rglob("_versions/*.manifest")]))
    seed, names = target.chance.random(), list[str]()
    for file in files:
        rewrite_indexes(file, lambda section: names.append(_mutate(section, random.Random(seed))))
    return f"{len(files)} manifests of Lance: {names[:1]}", False


def _mutate(section: Any, chance: random.Random) -> str:
    if chance.random() < 0.7:
        for index in section.indices:
            if index.name == _MEM_WAL:
                details = pb.MemWalIndexDetails.FromString(index.index_details.value)
                name = _mutate_message(details, chance)
                index.index_details.value = details.SerializeToString()
                return name
    return _mutate_message(section, chance)


def _record(target: Target) -> tuple[str, bool]:
    """A JSON record of ours, or of Lance's tags, with one value changed."""
    file = target.file(r"\.json$|^_memwal_sql/(?!staging)|^_refs/")
    try:
        content = _mutate_json(json.loads(file.read_bytes()), target.chance)
    except ValueError:
        return _written(target, file, _flip(file.read_bytes(), target.chance), "flipped"), False
    return _written(target, file, json.dumps(content).encode(), "value"), False


def _resealed_entry(target: Target) -> tuple[str, bool]:
    """A WAL entry or staged rows, damaged below a seal that fits."""
    file = target.file(r"/wal/|/staging/")
    data = file.read_bytes()
    bad = target.chance.choice((_flip, _word))(data, target.chance)
    seal = _NONCE.search(bad)
    if seal is not None:
        start, end = seal.start() + 33, seal.end()
        crc = zlib.crc32(bad[:start] + b"0" * 16 + b":" + b"0" * 8 + bad[end:])
        bad = bad[:start] + b"%016x:%08x" % (len(bad), crc) + bad[end:]
    return _written(target, file, bad, "resealed"), False


def _resealed_bloom(target: Target) -> tuple[str, bool]:
    """A bloom filter, and its checksum in every manifest."""
    file = target.file(r"/bloom_filter\.bin$")
    bad = target.chance.choice((_flip, _word, _cut))(file.read_bytes(), target.chance)
    text = _written(target, file, bad, "with a sum that fits")
    for path in file.parents[1].glob("manifest/*.binpb"):
        message = pb.RegionManifest.FromString(unseal_manifest("", path.read_bytes())[1])
        for flushed in message.flushed_generations:
            if flushed.path == file.parent.name:
                flushed.bloom_checksum = zlib.crc32(bad)
        path.unlink()
        path.write_bytes(seal_manifest(message.SerializeToString()))
    return text, False


def _name(target: Target) -> tuple[str, bool]:
    """Another name, or a link, pipe, or folder in the place of a file."""
    ours = target.chance.random() < 0.7
    file = target.file(_OURS.pattern if ours else rf"^(?!.*({_OURS.pattern}))")
    text = str(file.relative_to(target.table))
    how = target.chance.choice(("renamed", "link", "pipe", "folder") if ours else ("link",))
    if how == "renamed":
        name = target.chance.choice(_NAMES)
        target_file = file.with_name(name + file.suffix)
        os.link(file, target_file)
        if target.chance.random() < 0.5:
            file.unlink()
        return f"{text} is {target_file.name!r}", False
    file.unlink()
    if how == "pipe":
        os.mkfifo(file)
    elif how == "folder":
        file.mkdir()
    else:
        outside = target.outside
        places = ("/dev/zero", "/nowhere", str(target.table), str(outside), str(outside / "kept"))
        file.symlink_to(target.chance.choice(places))
    return f"{text}: {how}", ours and not target.is_tail(file)


def _folder(target: Target) -> tuple[str, bool]:
    """A folder that is somewhere else now, with a link to it in its place."""
    folders = sorted({one.parent for one in target.table.rglob("*") if one.is_file()})
    folder = target.chance.choice(folders)
    moved = target.outside / "moved"
    shutil.move(folder, moved)
    folder.symlink_to(moved)
    return f"{folder.relative_to(target.table)} moved behind a link", True


def _written(target: Target, file: Path, data: bytes, how: str) -> str:
    file.unlink(missing_ok=True)  # it may be a hard link to a file of the template
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return f"{file.relative_to(target.table)}: {how}"


KINDS = (
    _accident,
    _manifest_field,
    _index_field,
    _record,
    _resealed_entry,
    _accident,
    _replayed,
    _swapped,
    _resealed_bloom,
    _accident_of_lance,
    _name,
    _index_field,
    _folder,
    _accident,
)


def damage(table: Path, earlier: Path, outside: Path, seed: int) -> Damage:
    """Damage a table; kinds take turns by the seed, so that any run of seeds has all of them."""
    target = Target(table, earlier, outside, random.Random(seed))
    kind = KINDS[seed % len(KINDS)]
    try:
        text, exact = kind(target)
    except mw.MemWalError as error:  # what was to be changed is no file of ours
        text, exact = f"nothing: {error}", True
    return Damage(f"seed {seed}: {kind.__name__.strip('_')}: {text}", exact)
