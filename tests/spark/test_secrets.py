"""Storage options hold secrets: nothing of ours that holds some shows them."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import pkgutil
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import exec_nodes
import memwal_sql as mw
import planner
from memwal_sql.bulk.rows import RowForm
from memwal_sql.spark import maintenance
from memwal_sql.spark.options import WRITE, parse_options
from memwal_sql.spark.reader import BatchReader
from memwal_sql.spark.source import MemWalDataSource
from memwal_sql.spark.stream_reader import ChangeReader
from memwal_sql.spark.tables import pinned_table_of
from memwal_sql.spark.writer import BatchWriter

SECRET = "a-very-secret-value"
# What is taken for a local table too; nothing looks at the names.
OPTIONS = {"user_agent": SECRET}
SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
OURS = ("memwal_sql", "exec_nodes", "planner")


def classes() -> Iterator[type]:
    """Every class of ours."""
    for package in (mw, exec_nodes, planner):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith(("__main__", "_pb2")):
                continue
            for one in vars(importlib.import_module(found.name)).values():
                if isinstance(one, type) and one.__module__ == found.name:
                    yield one


def test_fields_for_storage_options_are_never_shown() -> None:
    """A field that is called so, or that takes pairs of texts under the name of a store's."""
    held, shown = set(), set()
    for one in classes():
        if not dataclasses.is_dataclass(one):
            continue
        for field in dataclasses.fields(one):
            if field.name in ("storage", "storage_options", "secrets", "config", "client"):
                held.add(one.__name__)
                if field.repr:
                    shown.add(f"{one.__module__}.{one.__name__}.{field.name}")
    assert {"_TableAddress", "Options", "TableContext", "SplitOptions"} <= held
    assert not shown


def reachable(roots: list[object]) -> list[Any]:
    """All objects of ours that `roots` hold, directly or through anything else."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FrameType)):
            continue
        if isinstance(one, types.FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    ours = [one for one in seen.values() if type(one).__module__.partition(".")[0] in OURS]
    return [*ours, *(one for one in seen.values() if isinstance(one, partial))]


def test_whatever_holds_storage_options_shows_none_of_their_values(tmp_path: Path) -> None:
    """Tables, and all that Spark's driver and tasks hold and send each other."""
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, SCHEMA, "id", storage_options=OPTIONS)
    given = {"path": uri, **{f"storage.{name}": value for name, value in OPTIONS.items()}}
    source = MemWalDataSource(given)
    schema = source.schema()
    reader = source.reader(schema)
    assert isinstance(reader, BatchReader)
    address = maintenance._address(uri, OPTIONS)
    stager = table.stager("job", RowForm())
    roots = [
        table,
        table.writer(),
        table.publisher(),
        table.pinned_table(),
        stager,
        stager.stage(pa.table({"id": [1], "val": ["a"]}).to_batches()),
        source,
        reader,
        reader.partitions(),
        pinned_table_of(reader._options),
        BatchWriter(parse_options(given, WRITE, "writing"), schema, overwrite=False),
        MemWalDataSource({**given, "changes": "true"}).streamReader(source.schema()),
        address,
        address.open(),
        partial(maintenance._done, address, maintenance.merge),
    ]
    found = reachable(roots)
    kinds = {type(one).__name__ for one in found}
    assert {"Table", "TableContext", "Options", "_TableAddress", "Stager", "BatchWriter"} <= kinds
    assert ChangeReader.__name__ in kinds
    for one in found:
        for text in (repr(one), str(one)):
            assert SECRET not in text, type(one)


def test_errors_name_no_secret(tmp_path: Path) -> None:
    with pytest.raises(mw.MemWalError) as caught:
        maintenance._address(str(tmp_path / "none"), OPTIONS).open()
    assert SECRET not in str(caught.value)
    wrong = {"path": str(tmp_path / "none"), "aws_secret_access_key": SECRET}
    with pytest.raises(mw.InvalidCallError, match="no option 'aws_secret_access_key'") as caught:
        MemWalDataSource(wrong).schema()
    assert SECRET not in str(caught.value)
    assert "'storage.'" in str(caught.value)
