"""Links in the place of a table's folders: no job deletes or changes what they lead to."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.storage.objects.commit_log import SqliteCommitLog
from tests.model.folder_state import folder_state
from tests.model.process import as_another_process
from tests.model.writing import flush_rows
from tests.soak import usual

# Lance makes what is in it in one go, where nothing was before.
BY_LANCE = re.compile(r"^_mem_wal/\*/\*$|/staging")
OTHERS = re.compile(r"^_indices/|_gen_./|^_refs/branches")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
NOW = timedelta(0)
LONG_AGO = 30 * 86400
NAMES = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{8}_gen_.")


def _rows(*keys: int, text: str = "fox") -> pa.Table:
    return pa.table({"id": list(keys), "text": [text] * len(keys)}, schema=SCHEMA)


def _stage(table: mw.Table, job: str, *, replaces: bool = False) -> list[object]:
    stager = table.stager(job, RowForm(), StageLimits(generation=1), replaces=replaces)
    return [stager.stage(_rows(7, 8).to_batches())]


def _collect(table: mw.Table) -> None:
    table.collect_garbage(older_than=NOW)


def _clean_up(table: mw.Table) -> None:
    table.collect_garbage(older_than=NOW, versions_older_than=NOW)


def _write(table: mw.Table) -> None:
    flush_rows(table, _rows(1, 9))


JOBS: tuple[Callable[[mw.Table], object], ...] = (
    _collect,
    lambda table: table.discard_staged("job"),
    lambda table: table.publisher().publish(_stage(table, "other"), BatchMark("q", 1)),
    lambda table: table.drop_checkpoint("held"),
    _write,
    lambda table: table.merge(),
    lambda table: table.compact(),
    lambda table: table.snapshot_regions(),
    _clean_up,
)
# Of folders that Lance alone writes to.
OF_LANCE = re.compile(r"^(data|_indices|_versions|_transactions|_deletions|_refs|_refs/tags)$")
JOBS_OF_LANCE: tuple[Callable[[mw.Table], object], ...] = (
    lambda table: table.merge(),
    lambda table: table.tags.create("tagged", table.snapshot_regions()),
    lambda table: table.create_index("text", "FTS", replace=True),
    lambda table: table.build_indexes(),
    lambda table: table.add_columns([pa.field("more", pa.int32())]),
    lambda table: table.replace_rows(_rows(1)),
    lambda table: _stage(table, "replacing", replaces=True),
    lambda table: table.compact(),
    _clean_up,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with something to collect in every folder that this package writes."""
    uri = tmp_path_factory.mktemp("linked") / "t"
    made = mw.create_table(uri, SCHEMA, "id")
    with made.writer() as writer:
        for text in ("quick", "brown"):
            writer.upsert(_rows(1, 2, text=text))
            writer.flush()
        made.merge()
        made.create_index("text", "FTS")
        made.checkpoint("held")
        writer.upsert(_rows(3, 4))
        writer.flush()
        made.merge()
        writer.upsert(_rows(2, 5))
        writer.flush()
        writer.delete([2])
    made.publisher().publish(_stage(made, "published"), BatchMark("q", 0))
    _stage(made, "job")
    (uri / "_indices" / ("0" * 8)).mkdir()
    (uri / "_indices" / ("0" * 8) / "index.lance").write_bytes(b"of no version")
    return uri


def _kinds(uri: Path) -> dict[str, str]:
    """One folder of each kind, relative to the root; of Lance's, not all."""
    folders = [str(one.relative_to(uri)) for one in sorted(uri.rglob("*")) if one.is_dir()]
    return {NAMES.sub("*", one): one for one in folders if not OTHERS.search(one)}


def test_no_job_deletes_or_changes_anything_behind_a_link(table: Path, tmp_path: Path) -> None:
    kinds = _kinds(table)
    assert {"_memwal_sql/staging", "_memwal_sql", "_mem_wal"} <= kinds.keys()
    assert {"_versions", "_transactions", "_indices", "data"} <= kinds.keys()
    assert {"_mem_wal/*/wal", "_mem_wal/*/manifest", "_memwal_sql/checkpoints/held"} <= kinds.keys()
    refused = set()
    ours = {kind for kind in kinds if not BY_LANCE.search(kind)}
    of_lance = sorted(kinds.keys() - ours)
    tried = usual(sorted(ours), 6)
    for kind in tried + usual(of_lance, 2):
        folder = kinds[kind]
        uri, victim = tmp_path / "t", tmp_path / "victim"
        shutil.copytree(table, uri)
        shutil.move(uri / folder, victim)
        os.symlink(victim, uri / folder)
        theirs = {} if BY_LANCE.search(kind) else folder_state(victim)
        for name in (".tmp-old", "index.lance", "precious", "inner/.tmp-old", "inner/index.lance"):
            (victim / name).parent.mkdir(exist_ok=True)
            (victim / name).write_text("precious")
            theirs[name] = folder_state(victim)[name]
        old = time.time() - LONG_AGO
        for one in victim.rglob("*"):
            os.utime(one, (old, old))
        with as_another_process():
            for job in JOBS_OF_LANCE if OF_LANCE.search(kind) else JOBS:
                try:
                    with mw.open_table(uri) as opened:
                        job(opened)
                except mw.MemWalError as error:
                    if "symbolic link" in str(error):
                        refused.add(kind)
                now = folder_state(victim)
                assert theirs.items() <= now.items(), (kind, theirs.items() - now.items())
                assert BY_LANCE.search(kind) or now == theirs, (kind, now.keys() - theirs.keys())
        shutil.rmtree(uri)
        shutil.rmtree(victim)
    assert set(tried) <= refused


def test_deletes_in_two_phases_do_not_follow_links(table: Path, tmp_path: Path) -> None:
    """What the commit log names may have become a link since."""
    uri, victim = tmp_path / "t", tmp_path / "victim"
    options = {"memwal_commit_log": str(tmp_path / "log.sqlite")}
    made = mw.create_table(uri, SCHEMA, "id", storage_options=options)
    for key in range(12):
        flush_rows(made, _rows(key))
    made.merge()
    log = SqliteCommitLog(options["memwal_commit_log"], str(uri))
    assert log.unfinished() == []
    (region,) = (one for one in (uri / "_mem_wal").iterdir())
    for folder in ("wal", "manifest"):
        shutil.move(region / folder, victim)
        os.symlink(victim, region / folder)
        before = folder_state(victim)
        with as_another_process(), suppress(mw.MemWalError):
            mw.open_table(uri, storage_options=options).collect_garbage(older_than=NOW)
        assert folder_state(victim) == before
        (region / folder).unlink()
        shutil.move(victim, region / folder)
    assert mw.open_table(uri, storage_options=options).collect_garbage(older_than=NOW).num_rows


@pytest.mark.parametrize("target", ["/nowhere", "/"])
def test_an_entry_that_is_a_link_to_no_file_ends_no_log(
    table: Path, tmp_path: Path, target: str
) -> None:
    """Later entries would be passed over without a word."""
    uri = tmp_path / "t"
    shutil.copytree(table, uri)
    writer = mw.open_table(uri).writer()
    for _ in range(3):
        writer.upsert(_rows(70))
    newest = max(uri.glob("_mem_wal/*/wal/*.arrow"), key=lambda one: one.stat().st_mtime_ns)
    first = sorted(newest.parent.iterdir(), key=lambda one: one.name[:64][::-1])[-2]
    first.unlink()
    first.symlink_to(target)
    with as_another_process():
        opened = mw.open_table(uri)
        with pytest.raises(mw.CorruptFileError, match="is a link that leads to no file"):
            opened.scan().read_all()
        assert not opened.check().ok


def test_a_table_whose_own_folder_is_a_link_works(table: Path, tmp_path: Path) -> None:
    shutil.copytree(table, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", tmp_path / "t")
    with as_another_process(), mw.open_table(tmp_path / "t") as opened:
        before = sorted(opened.scan().read_all()["id"].to_pylist())
        for job in JOBS:
            job(opened)
        assert sorted(opened.scan().read_all()["id"].to_pylist()) == sorted({*before, 1, 7, 8, 9})
        assert opened.check().ok
