"""What the log says of a table's life."""

from __future__ import annotations

import ast
import logging
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import life_log
from memwal_sql.errors import FencedError
from memwal_sql.maintain.compact.compactor import Extent
from memwal_sql.maintain.lease import maintenance_lease
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.open import open_store
from memwal_sql.write.table_writer import TableWriter
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.waiting import eventually
from tests.model.writing import flush_rows, merge_rows, upsert_rows

ROOT = Path(__file__).parents[1]
SCHEMA = pa.schema([pa.field("tenant", pa.string(), False), pa.field("v", pa.string())])
PRIVATE = ("tenant-one", "tenant-two", "text-of-a-row")
ROWS = {"tenant": list(PRIVATE[:2]), "v": [PRIVATE[2]] * 2}
ROW = {"tenant": PRIVATE[:1], "v": PRIVATE[2:]}  # regions are claimed side by side
GRACE = timedelta(0)


def said(caplog: pytest.LogCaptureFixture, least: int = logging.INFO) -> list[str]:
    records = [one for one in caplog.records if one.name.partition(".")[0] == "memwal_sql"]
    return [one.getMessage() for one in records if one.levelno >= least]


def test_a_life_is_told_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "memwal_sql")
    uri = str(tmp_path / "t")
    table = mw.create_table(uri, SCHEMA, "tenant", regions=[mw.identity("tenant")])
    with table.writer(turns=False) as writer:
        writer.upsert(ROW)
        writer.flush()
        upsert_rows(mw.open_table(uri), ROW)
        with pytest.raises(FencedError):
            writer.upsert(ROW)
    table.checkpoint("kept")
    table.merge()
    table.create_index("v", "FTS")
    merge_rows(table, ROW)
    table.build_indexes()
    table.drop_checkpoint("kept")
    table.collect_garbage(older_than=GRACE)
    eventually(lambda: sum(line.startswith("flushed") for line in said(caplog)) == 2)
    words = [re.sub(r"\W.*", "", line) for line in said(caplog)]
    words = [word for word in words if word != "flushed"]  # by a thread of its own
    once = [word for place, word in enumerate(words) if place == 0 or words[place - 1] != word]
    assert once == [
        "created",
        "claimed",
        "opened",
        "claimed",
        "fenced",
        "checkpointed",
        "merged",
        "recorded",
        "indexed",
        "claimed",
        "merged",
        "recorded",
        "indexed",
        "dropped",
        "collected",
    ]
    assert not [line for line in said(caplog, 0) for secret in PRIVATE if secret in line]


def test_enabling_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "memwal_sql")
    lance.write_dataset(pa.table(ROWS), str(tmp_path / "t"))
    mw.enable(tmp_path / "t", "tenant")
    assert [line.partition(" ")[0] for line in said(caplog)] == ["enabled"]


def _pruned(table: mw.Table) -> None:
    table.scan(filter="tenant = 'tenant-one'").read_all()


def _merged(table: mw.Table) -> None:
    table.merge()


def test_a_compaction_that_lost_its_rows_to_others_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "memwal_sql")
    table = mw.create_table(tmp_path / "t", SCHEMA, "tenant")
    for place in range(2):
        merge_rows(table, {"tenant": [f"tenant-{place}"], "v": ["v"]})
    compactor = table.compactor()
    [task] = compactor.plan(Extent())
    written = compactor.execute(task)
    assert table.compact() == 2
    assert compactor.commit([written]) == 0
    assert [
        line
        for line in said(caplog, logging.WARNING)
        if "2 fragments were not replaced: Conf" in line
    ]


DECISIONS: dict[str, tuple[Callable[[mw.Table], None], str]] = {
    "pruning": (_pruned, r"1 of 2 regions pruned"),
    "passes": (_merged, r"merging generations of 2 regions over version \d+ in 1 passes"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_told_where_one_looks_closer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "tenant", regions=[mw.identity("tenant")])
    flush_rows(table, ROWS)
    caplog.set_level(logging.DEBUG, "memwal_sql")
    decide, pattern = DECISIONS[name]
    decide(table)
    found = said(caplog, 0)
    assert any(re.search(pattern, line) for line in found), found
    assert not [line for line in found for secret in PRIVATE if secret in line]


def test_a_put_that_is_tried_again_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "memwal_sql")
    store = FaultyStore(
        open_store(f"memory://{uuid4().hex}"), [Fault("put_if_absent", Kind.TIMEOUT)]
    )
    assert settle_put(store, "a", b"x", sleep=lambda _: None) is None
    assert said(caplog, 0) == ["a: tried again after attempt 1, OutcomeUnknownError"]


def test_a_lease_that_is_waited_for_and_taken_over_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "memwal_sql")
    store, now = open_store(f"memory://{uuid4().hex}"), 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 10.0

    with (
        maintenance_lease(store, "first"),
        maintenance_lease(store, "second", sleep=sleep, clock=lambda: now),
    ):
        pass
    assert said(caplog, 0) == [
        "lease maintenance: held by another job, waiting",
        "lease maintenance: taken over, as its holder is silent",
    ]


def calls() -> list[tuple[str, ast.Call]]:
    found = []
    for path in sorted((ROOT / "memwal_sql").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "_log"
            ):
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", node))
    return found


def test_texts_are_made_only_where_somebody_listens() -> None:
    for place, call in calls():
        assert isinstance(call.args[0], ast.Constant), place
        holes = re.findall(r"%[rsd]", str(call.args[0].value))
        assert len(holes) == len(call.args) - 1, place


def test_names_of_regions_and_texts_of_errors_are_not_logged() -> None:
    """A region by identity is named after a key, and errors name keys and values."""
    for place, call in calls():
        for argument in call.args[1:]:
            names = {one.attr for one in ast.walk(argument) if isinstance(one, ast.Attribute)}
            assert not names & {"storage_options", "values", "message"}, place
            assert ast.unparse(argument) not in ("error", "str(error)", "region.name"), place


def test_what_runs_a_thousand_times_a_second_asks_no_logger(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "tenant")
    with table.writer() as writer:
        writer.upsert(ROWS)
        writer.flush()
        table.get(["tenant-one"])
        made: list[Any] = []
        with patch.object(logging.Logger, "isEnabledFor", lambda *args: made.append(args) or False):
            table.get(["tenant-one"])
            table.scan().read_all()
            writer.upsert(ROWS)
        assert made == []


def test_every_module_has_a_logger_that_can_wait() -> None:
    for path in sorted((ROOT / "memwal_sql").rglob("*.py")):
        if "logging.getLogger(" in path.read_text():
            assert path.name in ("life_log.py", "lance_log.py"), f"{path}: take it from life_log"


class _ToTable(logging.Handler):
    """Writes what it hears into a table of ours, as far as it is not about that."""

    def __init__(self, writer: TableWriter) -> None:
        super().__init__(logging.DEBUG)
        self.writer = writer
        self.records, self.takes_records = 0, True

    def emit(self, record: logging.LogRecord) -> None:
        if self.takes_records and self.records < 60:
            self.records += 1
            self.writer.upsert({"tenant": [str(self.records)], "v": [record.getMessage()]})
            if self.records % 5 == 0:
                self.writer.flush()


def _first_record(table: mw.Table) -> None:
    logging.getLogger("of a program").info("it begins")


def _claim_of_another_table(table: mw.Table) -> None:
    other = mw.create_table(f"{table.uri}-other", SCHEMA, "tenant")
    with other.writer() as writer:
        writer.upsert(ROW)
        writer.flush()
    other.merge()


def _reads(table: mw.Table) -> None:
    logging.getLogger("of a program").info("it begins")
    table.scan(filter="tenant = '1'").read_all()
    mw.open_table(table.uri).count_rows()


def _fenced(table: mw.Table) -> None:
    other = mw.create_table(f"{table.uri}-other", SCHEMA, "tenant")
    with other.writer(turns=False) as first, other.writer() as second:
        first.upsert(ROW)
        second.upsert(ROW)
        with pytest.raises(FencedError):
            first.upsert(ROW)


@pytest.mark.parametrize("act", [_first_record, _claim_of_another_table, _reads, _fenced])
@pytest.mark.parametrize("durable", [True, False])
def test_a_handler_may_write_to_a_table_of_ours(
    tmp_path: Path, act: Callable[[mw.Table], None], durable: bool
) -> None:
    regions = [mw.bucket("tenant", 3)]
    table = mw.create_table(str(tmp_path / "logs"), SCHEMA, "tenant", regions=regions)
    root, errors = logging.getLogger(), list[BaseException]()
    writer = table.writer(durable=durable)
    handler, level = _ToTable(writer), root.level

    def run() -> None:
        try:
            act(table)
        except BaseException as error:
            errors.append(error)

    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "it waits for itself"
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert errors == []
    handler.acquire()  # another thread may be handing a record over, or about to
    handler.takes_records = False
    handler.release()
    writer.close()
    assert table.count_rows() == handler.records > 2


def test_an_interrupt_leaves_no_log_deferred(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that comes as soon as records are deferred."""

    class Interrupted:
        def get(self) -> Any:
            return deferred.get()

        def set(self, records: Any) -> Any:
            token = deferred.set(records)
            if records is not None:
                raise KeyboardInterrupt
            return token

        def reset(self, token: Any) -> None:
            deferred.reset(token)

    deferred = life_log._deferred
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(life_log, "_deferred", Interrupted())
        with life_log.deferred_logs():
            pass
    life_log.life_log("memwal_sql.some_module").warning("a record after it")
    assert "a record after it" in caplog.text
