"""The files of a table that is damaged, and other bytes for them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

# Files of the table that are not Lance's.
OURS = re.compile(r"^_memwal_sql/|/manifest/|/wal/|/bloom_filter\.bin$")
MEM_WAL = "__lance_mem_wal"
NUMBERS = (0, 1, 2, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**64 - 1)
TEXTS = ("", "x", "../x", "/etc/passwd", "a/b", "\x1b[2J\n", "é" * 100, "x" * 100_000)
_JSON = (None, -1, 2**64, 10**40, 1e300, float("nan"), float("inf"), "", "x", [], {}, [[[]]])
Bytes = Callable[[bytes, random.Random], bytes]


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


def flip(data: bytes, chance: random.Random) -> bytes:
    """Some bits flipped."""
    bad = bytearray(data)
    for _ in range(chance.choice((1, 1, 8)) if bad else 0):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    return bytes(bad)


def word(data: bytes, chance: random.Random) -> bytes:
    """A word of 4 or 8 bytes replaced by an extreme."""
    size = min(chance.choice((4, 8)), len(data))
    place = chance.randrange(len(data) - size + 1) // 4 * 4
    value = chance.choice(NUMBERS) % 2 ** (8 * size)
    return data[:place] + value.to_bytes(size, "little") + data[place + size :]


def cut(data: bytes, chance: random.Random) -> bytes:
    """The beginning."""
    return data[: chance.randrange(len(data) + 1)]


def mutate_json(content: Any, chance: random.Random) -> Any:
    """Another value somewhere in a JSON value."""
    if isinstance(content, dict) and content and chance.random() < 0.9:
        key = chance.choice(sorted(content))
        return {**content, key: mutate_json(content[key], chance)}
    if isinstance(content, list) and content and chance.random() < 0.8:
        place = chance.randrange(len(content))
        return [*content[:place], mutate_json(content[place], chance), *content[place + 1 :]]
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


def mutate_message(message: Any, chance: random.Random) -> str:
    """Change one field of a message, and name it."""
    owner, field = chance.choice(list(_fields(message)))
    value = getattr(owner, field.name)
    if hasattr(value, "append") or hasattr(value, "add"):  # repeated
        items = list(value)
        first = items[:1] if chance.random() < 0.95 else items[:1] * 50_000
        del value[:]
        value.extend(chance.choice(([], items + first, items[::-1], items[1:])))
    elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        text = chance.choice(TEXTS)
        is_text = field.type == FieldDescriptor.TYPE_STRING
        setattr(owner, field.name, text if is_text else flip(value, chance) or text.encode())
    elif field.type == FieldDescriptor.TYPE_MESSAGE or chance.random() < 0.2:
        owner.ClearField(field.name)
    else:
        for number in chance.sample(NUMBERS, len(NUMBERS)):
            try:
                setattr(owner, field.name, number)
                break
            except (ValueError, OverflowError):  # too large for its type
                continue
    return str(field.full_name)


def written(target: Target, file: Path, data: bytes, how: str) -> str:
    """Write a file, and name what was done."""
    file.unlink(missing_ok=True)  # it may be a hard link to a file of the template
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return f"{file.relative_to(target.table)}: {how}"
