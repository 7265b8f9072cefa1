"""Damages files of copies of a table, uses each copy in many ways, and says what came of it.

Run as `python -m tests.storage.damage.hostile_child TEMPLATE FIRST_SEED LAST_SEED`, in a process of
its own: a crash, a hang or too much memory ends it, and the last line names the seed and the file.

Lance's own files are cut, emptied, zeroed, swapped or replaced by links, and no more. Other damage
inside of them may be read as a value, as they have no checksums of pages, or end the process before
Python is asked: where an error of Lance's quotes a NUL from a file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import datafusion
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.maintain import lease
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest

SECONDS = 90  # for one use, which takes a fraction of one: only a hang comes near
# Much is mapped that is never touched; where threads can't be made any more, Lance waits forever.
ADDRESS_SPACE = 16 << 30
GROWTH = 1 << 30
USES_EACH = 2
FOREVER = timedelta(0)
KEPT = "not of this table"
# Files of the table that are not Lance's.
OURS = re.compile(r"^_memwal_sql/|/manifest/|/wal/|/bloom_filter\.bin$")
NONCE = re.compile(rb"[0-9a-f]{32}:[0-9a-f]{16}:([0-9a-f]{8})")


def _flip(data: bytes, chance: random.Random) -> bytes:
    bad = bytearray(data)
    for _ in range(chance.choice((1, 1, 8))):
        if bad:
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    return bytes(bad)


def _word(data: bytes, chance: random.Random) -> bytes:
    """A word of 4 or 8 bytes replaced by an extreme."""
    size = chance.choice((4, 8))
    if len(data) < size:
        return b""
    value = chance.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1))
    place = chance.randrange(len(data) - size + 1) // 4 * 4
    return data[:place] + (value % 2 ** (8 * size)).to_bytes(size, "little") + data[place + size :]


def _varint(data: bytes, chance: random.Random) -> bytes:
    """A byte replaced by the largest number that protobuf can write."""
    place = chance.randrange(len(data)) if data else 0
    return data[:place] + b"\xff" * 9 + b"\x01" + data[place + 1 :]


def _json(data: bytes, chance: random.Random) -> bytes:
    try:
        content = json.loads(data)
        key = chance.choice(sorted(content))
    except (ValueError, TypeError, IndexError):
        return _flip(data, chance)
    odd = (None, -1, 2**64, 10**40, 1e300, float("nan"), float("inf"), "", "x", [], {}, [[[]]])
    content[key] = chance.choice(odd)
    return json.dumps(content).encode()


def _resealed(data: bytes, chance: random.Random) -> bytes:
    """Damage below a checksum that fits it: what somebody hostile writes."""
    if NONCE.search(data) is None:
        try:
            return seal_manifest(chance.choice((_flip, _word, _varint))(_unsealed(data), chance))
        except mw.MemWalError:
            return _json(data, chance)
    bad = chance.choice((_flip, _word))(data, chance)
    seal = NONCE.search(bad)
    if seal is None:
        return bad
    start, end = seal.start() + 33, seal.end()
    crc = zlib.crc32(bad[:start] + b"0" * 16 + b":" + b"0" * 8 + bad[end:])
    return bad[:start] + b"%016x:%08x" % (len(bad), crc) + bad[end:]


def _unsealed(data: bytes) -> bytes:
    return unseal_manifest("", data)[1]


CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": _flip,
    "word": _word,
    "cut": lambda data, chance: data[: chance.randrange(len(data) + 1)],
    "zeros": lambda data, chance: bytes(len(data)),
    "empty": lambda data, chance: b"",
    "json": _json,
    "noise": lambda data, chance: chance.randbytes(min(len(data), 4096)),
    "resealed": _resealed,
    "varint": _varint,
}
OF_OURS = (*CONTENTS, "swapped", "link", "pipe", "renamed", "resealed", "resealed")
OF_LANCE = ("cut", "zeros", "empty", "swapped", "link")


@dataclass(frozen=True)
class Damage:
    """What was done; `exact` where rows are right if they are read at all: a file that is whole,
    but of another moment or with a checksum that fits, may be believed."""

    text: str
    exact: bool


def damage(table: Path, outside: Path, seed: int) -> Damage:
    """Damage one file of a table, links in it lead to `outside` among others."""
    chance = random.Random(seed)
    files = sorted(one for one in table.rglob("*") if one.is_file())
    # Of every kind of file as many, as generations have dozens.
    kinds: dict[str, list[Path]] = {}
    for one in files:
        kind = re.sub(r"[0-9a-f]{8}[-0-9a-f]*|[01]{64}|\d+", "*", str(one.relative_to(table)))
        kinds.setdefault(kind, []).append(one)
    file = chance.choice(kinds[chance.choice(sorted(kinds))])
    name = str(file.relative_to(table))
    how = chance.choice(OF_OURS if OURS.search(name) else OF_LANCE)
    exact = OURS.search(name) is not None and how not in ("swapped", "renamed", "resealed")
    if file.parent.name == "wal":  # the newest entry may be torn, which nobody waited for
        exact &= file != max(file.parent.iterdir(), key=lambda one: one.name[:64][::-1])
    if how == "renamed":
        names = ("٣.json", "1" * 64 + file.suffix, "x", "0.arrow", "\x1b[2J\n")
        file.rename(file.with_name(chance.choice(names)))
        return Damage(f"seed {seed}: {name} {how}", exact)
    data, other = file.read_bytes(), chance.choice(files).read_bytes()
    file.unlink()
    if how == "swapped":
        file.write_bytes(other)
    elif how == "link":
        targets = ("/dev/zero", "/nowhere", str(table), str(outside), str(outside / "kept"))
        file.symlink_to(chance.choice(targets))
    elif how == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes(CONTENTS[how](data, chance))
    return Damage(f"seed {seed}: {name} {how}", exact)


def rows_of(table: Any) -> list[Any]:
    """Keys and texts, in order."""
    found = table.scan(["id", "text"]).read_all()
    return sorted(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))


def _sql(table: Any) -> None:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    with mw.memwal_errors():
        context.sql("SELECT count(*), max(text) FROM t WHERE id > 2").to_pylist()


def _write(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [99], "text": ["new"], "vector": [[0.0] * 4]})


def _cli(command: str) -> Callable[[Any], None]:
    def call(table: Any) -> None:
        called = CliRunner().invoke(app, [command, table.uri])
        if called.exception is not None and not isinstance(called.exception, SystemExit):
            raise called.exception
        if "\x1b" in called.output:
            raise AssertionError(f"memwal {command} wrote an escape: {called.output!r}")

    return call


USES: dict[str, Callable[[Any], object]] = {
    "get": lambda table: table.get([1, 2, 50]).to_pylist(),
    "sql": _sql,
    "changes": lambda table: [one.to_pylist() for one in table.changes()],
    "text": lambda table: table.full_text_search("text", "fox", 3).to_pylist(),
    "vector": lambda table: table.vector_search("vector", [0.0] * 4, 3).to_pylist(),
    "eventual": lambda table: table.scan(consistency="eventual").read_all().to_pylist(),
    "checkpoints": lambda table: table.checkpoints().to_pylist(),
    "pin": lambda table: table.pinned_table().snapshot(table.pin()),
    "check": lambda table: table.check(),
    "dry gc": lambda table: table.collect_garbage(dry_run=True, older_than=FOREVER),
    "memwal info": _cli("info"),
    "memwal wal": _cli("wal"),
    "memwal check": _cli("check"),
    "gc": lambda table: table.collect_garbage(older_than=FOREVER),
    "write": _write,
    "merge": lambda table: table.merge(),
    "index": lambda table: table.create_index("text", "FTS", replace=True),
}


def attempt(template: Path, seed: int, expected: list[Any]) -> list[str]:
    """What went wrong with one damaged copy."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        uri, outside = Path(folder) / "t", Path(folder) / "outside"
        shutil.copytree(template, uri, copy_function=os.link)  # nothing is changed in place
        outside.mkdir()
        (outside / "kept").write_text(KEPT)
        done = damage(uri, outside, seed)
        _say(done.text)
        for name in ("scan", *random.Random(-seed).sample(sorted(USES), USES_EACH)):
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                with mw.open_table(uri) as table, redirect_stdout(StringIO()):
                    if name != "scan":
                        USES[name](table)
                    elif rows_of(table) != expected and done.exact:
                        wrong.append(f"{done.text}: other rows were read")
            except mw.MemWalError:
                pass
            except BaseException as error:  # PanicException is no Exception
                wrong.append(f"{done.text}: {name}: {type(error).__name__}: {str(error)[:300]}")
            faulthandler.cancel_dump_traceback_later()
        if sorted(os.listdir(outside)) != ["kept"] or (outside / "kept").read_text() != KEPT:
            wrong.append(f"{done.text}: files outside of the table were changed")
    return wrong


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(template: str, first: int, last: int) -> None:
    """Try the seeds from `first` up to `last`."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    faulthandler.enable()
    lease.Patience.seconds = 0.5  # a holder that nobody can tell of is waited for
    with mw.open_table(template) as table:
        expected = rows_of(table)
    before = _peak()
    for seed in range(first, last):
        for one in attempt(Path(template), seed, expected):
            _say(f"WRONG {one}")
        if _peak() - before > GROWTH:
            _say(f"WRONG seed {seed}: {(_peak() - before) >> 20} MiB more of memory")
            break
    _say("DONE")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
