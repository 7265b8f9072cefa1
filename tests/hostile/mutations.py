"""What is done to the files of a table: by accident, which must never be read as other rows, or by
somebody hostile, who writes checksums that fit and may be believed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import memwal_sql as mw
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest
from tests.hostile import forgeries
from tests.hostile.target import (
    MEM_WAL,
    OURS,
    Bytes,
    Damage,
    Target,
    cut,
    flip,
    mutate_json,
    mutate_message,
    word,
    written,
)
from tests.model.lance_manifest import rewrite_indexes

_NAMES = ("٣.json", "1" * 64, "0" * 63 + "1", "x", "0", "\x1b[2J\n", "x.json")
_NONCE = re.compile(rb"[0-9a-f]{32}:[0-9a-f]{16}:([0-9a-f]{8})")
_ACCIDENTS: dict[str, Bytes] = {
    "flipped": flip,
    "word": word,
    "cut": cut,
    "zeros": lambda data, chance: bytes(len(data)),
    "empty": lambda data, chance: b"",
    "grown": lambda data, chance: data + data[: chance.randrange(1, 4096)],
    "noise": lambda data, chance: chance.randbytes(min(len(data), 4096)),
}
# What a crash leaves of a log's newest entry, which nobody was told of.
_TORN = ("cut", "empty", "zeros")
# Other damage in a file of Lance's may be read as a value, as its pages have no checksums.
_OF_LANCE = ("cut", "zeros", "empty")


# Kinds of mutations: each damages something, and says what, and whether by accident.


def _accident(target: Target) -> tuple[str, bool]:
    rows = r"/manifest/.*\.binpb$", r"/wal/"  # where it may be read as other rows
    file = target.file(target.chance.choice((*rows, *rows, *OURS.pattern.split("|"))))
    how = target.chance.choice((*sorted(_ACCIDENTS), "flipped", "flipped", "word", "cut"))
    exact = how not in _TORN or not target.is_tail(file)
    return written(target, file, _ACCIDENTS[how](file.read_bytes(), target.chance), how), exact


def _accident_of_lance(target: Target) -> tuple[str, bool]:
    file = target.file(rf"^(?!.*({OURS.pattern}))")
    how = target.chance.choice(_OF_LANCE)
    return written(target, file, _ACCIDENTS[how](file.read_bytes(), target.chance), how), True


def _swapped(target: Target) -> tuple[str, bool]:
    file = target.file()
    like = re.sub(r"[0-9a-f]{8}[-0-9a-f]*|[01]{64}|\d+", ".*", str(file.relative_to(target.table)))
    other = target.file(like if target.chance.random() < 0.5 else "")
    is_ours = OURS.search(str(file.relative_to(target.table))) is not None
    exact = is_ours and file.suffix != ".json" and not target.is_tail(file)
    return written(target, file, other.read_bytes(), f"gets {other.name}"), exact


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
    return written(target, new, old.read_bytes(), "replayed"), False


def _differ(new: Path, old: Path) -> bool:
    return new.read_bytes() != old.read_bytes()


def _manifest_field(target: Target) -> tuple[str, bool]:
    file = target.file(r"/manifest/.*binpb$")
    message = pb.RegionManifest.FromString(unseal_manifest("", file.read_bytes())[1])
    name = mutate_message(message, target.chance)
    return written(target, file, seal_manifest(message.SerializeToString()), name), False


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
            if index.name == MEM_WAL:
                details = pb.MemWalIndexDetails.FromString(index.index_details.value)
                name = mutate_message(details, chance)
                index.index_details.value = details.SerializeToString()
                return name
    return mutate_message(section, chance)


def _record(target: Target) -> tuple[str, bool]:
    """A JSON record of ours, or of Lance's tags, with one value changed."""
    file = target.file(r"\.json$|^_memwal_sql/(?!staging)|^_refs/")
    try:
        content = mutate_json(json.loads(file.read_bytes()), target.chance)
    except ValueError:
        return written(target, file, flip(file.read_bytes(), target.chance), "flipped"), False
    return written(target, file, json.dumps(content).encode(), "value"), False


def _resealed_entry(target: Target) -> tuple[str, bool]:
    """A WAL entry or staged rows, damaged below a seal that fits."""
    file = target.file(r"/wal/|/staging/")
    data = file.read_bytes()
    bad = target.chance.choice((flip, word))(data, target.chance)
    seal = _NONCE.search(bad)
    if seal is not None:
        start, end = seal.start() + 33, seal.end()
        crc = zlib.crc32(bad[:start] + b"0" * 16 + b":" + b"0" * 8 + bad[end:])
        bad = bad[:start] + b"%016x:%08x" % (len(bad), crc) + bad[end:]
    return written(target, file, bad, "resealed"), False


def _resealed_bloom(target: Target) -> tuple[str, bool]:
    """A bloom filter, and its checksum in every manifest."""
    file = target.file(r"/bloom_filter\.bin$")
    bad = target.chance.choice((flip, word, cut))(file.read_bytes(), target.chance)
    text = written(target, file, bad, "with a sum that fits")
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
    file = target.file(OURS.pattern if ours else rf"^(?!.*({OURS.pattern}))")
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
    forgeries.metadata_of_an_entry,
    forgeries.list_of_verdicts,
    forgeries.recorded_regions,
    forgeries.columns,
    forgeries.json_values,
    forgeries.home,
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
