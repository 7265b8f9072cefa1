"""What is raised in Python code that native code calls comes out as it is."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import memwal_sql as mw
from exec_nodes.lance.errors import bytes_of_lance, lance_errors, lance_panics
from exec_nodes.lance.reading import written
from memwal_sql.session.provider import TableProvider
from tests.cli.calls import ended
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
INTERRUPT = "External error: KeyboardInterrupt"
PANIC = "called `Result::unwrap()` on an `Err`: PyErr { type: <class 'KeyboardInterrupt'>, ... }"


class TimeUpError(Exception):
    """What the handler of a time limit raises."""


class PanicException(BaseException):
    """As Rust's are called."""


@pytest.fixture
def table(fast_folder: Path) -> mw.Table:
    made = mw.create_table(fast_folder / "t", SCHEMA, "id")
    with made.writer() as writer:
        writer.upsert({"id": [1, 2], "n": [1, 2]})
    return made


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Lets scans raise, in the thread that plans."""

    def let(error: BaseException) -> None:
        def scan(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(TableProvider, "scan", scan)

    return let


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeUpError])
def test_queries_raise_what_their_tables_raised(
    table: mw.Table,
    raising: Callable[[BaseException], None],
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = mw.SessionContext()
    mw.register(context, "t", table)
    foreign = datafusion.SessionContext()
    mw.register(foreign, "t", table)
    raising(kind())
    before = signal.signal(signal.SIGINT, lambda *_: None)  # with Python's own it comes by itself
    try:
        for call in (
            lambda: context.sql("SELECT n FROM t").collect(),
            lambda: mw.sql(foreign, "SELECT n FROM t").to_pylist(),
            lambda: table.count_rows("abs(n) > 0 AND random() < 2"),
        ):
            with pytest.raises(kind):
                call()
        with pytest.raises(kind), mw.memwal_errors():
            foreign.sql("SELECT n FROM t").collect()
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_command_ends_with_130(
    table: mw.Table, raising: Callable[[BaseException], None]
) -> None:
    raising(KeyboardInterrupt())
    ended("sql", table.uri, "SELECT n FROM t", code=130)


@each(
    "context, error",
    [
        (lance_errors("t", "place"), OSError(INTERRUPT)),
        (lance_errors("t", "place"), ValueError(INTERRUPT)),
        (lance_errors("t", "place"), PanicException(PANIC)),
        (lance_panics("t", "place"), PanicException(PANIC)),
        (bytes_of_lance(), OSError(INTERRUPT)),
    ],
)
def test_an_error_of_lance_with_the_text_of_ctrl_c_is_one(context: Any, error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt), context:
        raise error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeUpError, mw.CorruptFileError])
def test_what_making_a_batch_raises_comes_out_of_a_write_of_lance(
    fast_folder: Path, kind: type[BaseException]
) -> None:
    error = kind("it is this one")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": 1, "n": 1}], SCHEMA)
        raise error

    with (
        pytest.raises(kind) as raised,
        lance_errors("t", "place"),
        written(SCHEMA, batches()) as rows,
    ):
        write_fragments(rows, str(fast_folder / "w"), schema=SCHEMA)
    assert raised.value is error
