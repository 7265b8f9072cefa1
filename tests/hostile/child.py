"""Damages copies of a table, uses each in many ways, and says what came of it.

Run as `python -m tests.hostile.child FOLDER FIRST_SEED LAST_SEED [all]` over a folder that
`tests.hostile.template` has made, in a process of its own: a crash, a hang or too much memory ends
it, and the last line names the seed. With `all` a copy is used in all ways, otherwise in some.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from os import link
from pathlib import Path
from typing import Any

import datafusion
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.maintain import lease
from tests.hostile.mutations import damage
from tests.model.folder_state import folder_state

SECONDS = 90  # for one use, which takes a fraction of one: only a hang comes near
# Much is mapped that is never touched; where threads can't be made any more, Lance waits forever.
ADDRESS_SPACE = 16 << 30
GROWTH = 1 << 30
FOREVER = timedelta(0)
COLUMNS = ["id", "text", "doc", "again"]
KEYS = [1, 2, 3, 5, 8, 9, 50, 55]
NEW = {"id": [99], "text": ["new"], "vector": [[0.0] * 4]}

Use = Callable[[Any], object]


def rows_of(table: Any) -> list[Any]:
    """Rows without their vectors, in order."""
    return _rows(table.scan(COLUMNS).read_all())


def got_of(table: Any) -> list[Any]:
    """The same of some keys, by their lookup."""
    return _rows(table.get(KEYS))


def _rows(found: Any) -> list[Any]:
    return sorted(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


def readers(uri: Path) -> Mapping[str, Callable[[], list[Any]]]:
    """Readers that know the present columns."""
    table = mw.open_table(uri)
    session = datafusion.SessionContext()
    mw.register(session, "t", table)
    dataset, lazy = table.to_dataset(), table.to_polars(COLUMNS, lazy=True)
    query = f"SELECT {', '.join(COLUMNS)} FROM t"
    frame = session.sql(query)
    return {
        "session": lambda: _rows(mw.sql(session, query).to_arrow_table()),
        "frame": lambda: _rows(frame.to_arrow_table()),
        "dataset": lambda: _rows(dataset.to_table()),
        "lazy frame": lambda: _rows(lazy.collect().to_arrow()),
    }


def _sql(text: str, about: str = "") -> Use:
    def call(table: Any) -> None:
        context = datafusion.SessionContext()
        mw.register(context, "t", table)
        mw.sql(context, text.format(f'"t${about}"' if about else "t")).to_pylist()

    return call


def _cli(command: str, *arguments: str) -> Use:
    def call(table: Any) -> None:
        called = CliRunner().invoke(app, [command, table.uri, *arguments])
        if called.exception is not None and not isinstance(called.exception, SystemExit):
            raise called.exception
        if called.exit_code == ExitCode.BUG or "\x1b" in called.output:
            raise AssertionError(f"memwal {command}: {called.exit_code}: {called.output[-900:]!r}")

    return call


def _write(table: Any) -> None:
    """Rows that are acknowledged are there, or it is said that they can't be read."""
    with table.writer() as writer:
        writer.upsert(NEW)
        writer.flush()
    with mw.open_table(table.uri) as again:
        if _rows(again.get([99])) != [(99, "new", None, None)]:
            assert not again.check().ok, "an acknowledged row is gone"


READS: dict[str, Use] = {
    "count": lambda table: table.count_rows(),
    "sql": _sql("SELECT count(*), max(text) FROM {} WHERE id > 2"),
    **{
        about: _sql("SELECT * FROM {}", about)
        for about in ("regions", "generations", "wal", "indexes", "history", "snapshots", "files")
    },
    "changes": lambda table: [one.to_pylist() for one in table.changes()],
    "text": lambda table: table.full_text_search("text", "fox", 3).to_pylist(),
    "vector": lambda table: table.vector_search("vector", [0.0] * 4, 3).to_pylist(),
    "eventual": lambda table: table.scan(consistency="eventual").read_all().to_pylist(),
    "checkpoints": lambda table: table.checkpoints().to_pylist(),
    "as of": lambda table: mw.open_table(table.uri, checkpoint="held").count_rows(),
    "tag": lambda table: mw.open_table(table.uri, "tagged").count_rows(),
    "pin": lambda table: table.pinned_table().snapshot(table.pin()),
    "overview": lambda table: str(table.overview()),
    "check": lambda table: table.check(),
    "dry gc": lambda table: table.collect_garbage(
        dry_run=True, older_than=FOREVER, versions_older_than=FOREVER
    ),
    **{f"memwal {name}": _cli(name) for name in ("info", "regions", "generations", "wal", "check")},
    "memwal sql": _cli("sql", "SELECT count(*) FROM t"),
    "memwal gc": _cli("gc"),
}
COLLECTION: dict[str, Use] = {
    "gc": lambda table: table.collect_garbage(older_than=FOREVER),
    "clean up": lambda table: table.collect_garbage(
        older_than=FOREVER, versions_older_than=FOREVER
    ),
}
CHANGES: dict[str, Use] = {
    "write": _write,
    "update": _sql("UPDATE {} SET text = 'updated' WHERE id = 5"),
    "merge": lambda table: table.merge(),
    "index": lambda table: table.create_index("text", "FTS", replace=True),
    "build": lambda table: table.build_indexes(),
    "record": lambda table: table.snapshot_regions(),
    "tags": lambda table: table.tags.create("another", table.snapshot_regions()),
    "check": lambda table: table.check(),
}


def _uses(seed: int, *, everything: bool) -> Iterator[tuple[str, Use]]:
    """All, or some of each kind; in every third copy garbage is collected before it is written."""
    chance = random.Random(-seed)
    kinds = (READS, COLLECTION, CHANGES) if seed % 3 == 0 else (READS, CHANGES)
    for kind in kinds:
        most = len(kind) if everything else min(len(kind), 2 if kind is READS else 1)
        for name in chance.sample(sorted(kind), most):
            yield name, kind[name]


def attempt(template: Path, seed: int, expected: list[Any], *, everything: bool) -> list[str]:
    """What went wrong with one damaged copy."""
    with tempfile.TemporaryDirectory(dir=Path(template).parent) as folder:
        uri, outside = Path(folder) / "t", Path(folder) / "outside"
        for name in ("t", "other"):  # nothing is changed in place
            shutil.copytree(template / name, Path(folder) / name, copy_function=link)
        known = readers(uri)
        outside.mkdir()
        (outside / "kept").write_text("not of this table")
        done = damage(uri, template / "earlier", outside, seed)
        _say(done.text)
        before = folder_state(outside)
        wrong = []
        read: list[Any] = []

        def reads(table: Any) -> None:
            read[:] = [rows_of(table), got_of(table)]
            if done.exact and read != expected:
                raise AssertionError("other rows were read")

        def knows(read: Callable[[], list[Any]]) -> Use:
            def call(_: Any) -> None:
                with mw.memwal_errors():
                    if read() != expected[0] and done.exact:
                        raise AssertionError("other rows were read")

            return call

        kept = [(name, knows(read)) for name, read in known.items()]
        for name, use in [("rows", reads), *kept, *_uses(seed, everything=everything)]:
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                with mw.open_table(uri) as table, redirect_stdout(StringIO()):
                    use(table)
            except mw.MemWalError:
                pass
            except BaseException as error:  # PanicException is no Exception
                wrong.append(f"{done.text}: {name}: {type(error).__name__}: {str(error)[:900]}")
            faulthandler.cancel_dump_traceback_later()
        if folder_state(outside) != before:
            wrong.append(f"{done.text}: files outside of the table were changed")
    return wrong


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(template: Path, first: int, last: int, *, everything: bool) -> None:
    """Try the seeds from `first` up to `last`."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    faulthandler.enable()
    lease.Patience.seconds = 0.5  # a holder that nobody can tell of is waited for
    with mw.open_table(template / "t") as table:
        expected = [rows_of(table), got_of(table)]
    before = _peak()
    for seed in range(first, last):
        for one in attempt(template, seed, expected, everything=everything):
            _say(f"WRONG {one}")
        if _peak() - before > GROWTH:
            _say(f"WRONG seed {seed}: {(_peak() - before) >> 20} MiB more of memory")
            break
    _say("DONE")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), everything="all" in sys.argv[4:])
