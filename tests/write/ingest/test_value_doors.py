"""Rows, keys, defaults and parameters take Python values by the same rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import datafusion
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import memwal_sql as mw

DAY = date(2024, 1, 2)
SCHEMA = pa.schema(
    [
        pa.field("day", pa.date32(), False),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("spans", pa.struct([("from", pa.date32()), ("to", pa.date32())])),
    ]
)
ROW = {"day": DAY, "at": None, "tags": None, "spans": None}
# Values of no kind that a column of dates, of times or of lists takes.
WRONG: list[tuple[str, Any]] = [
    *(
        ("day", value)
        for value in (5, Fraction(5), UUID(int=7), np.array(5), "5", datetime(2024, 1, 2))
    ),
    *(("at", value) for value in (5, "2024-01-02T03:04:05", DAY, datetime(2024, 1, 2))),
    *(("tags", value) for value in ("red", '["red"]', b"red", {"red": 1}, np.array("red"))),
    ("spans", {"from": UUID(int=7), "to": None}),
    ("spans", {"from": 5, "to": None}),
]


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    return mw.create_table(str(tmp_path / "t"), SCHEMA, primary_key="day")


def test_values_of_another_kind_are_refused_by_every_call(table: mw.Table) -> None:
    with table.writer() as writer:
        calls: list[Callable[[dict[str, Any]], object]] = [
            lambda row: writer.upsert([row]),
            lambda row: writer.upsert({name: [value] for name, value in row.items()}),
            lambda row: writer.upsert([row], when="true"),
            lambda row: writer.insert([row]),
            lambda row: writer.apply([row | {"op": "u"}], op="op"),
            lambda row: writer.upsert([ROW, row]),
        ]
        keys: list[Callable[[Any], object]] = [
            lambda key: writer.delete([key]),
            lambda key: writer.delete([{"day": key}]),
            lambda key: writer.delete(np.array([key], object)),
            lambda key: table.get([key]),
        ]
        for name, value in WRONG:
            for call in calls:
                with pytest.raises(mw.InvalidCallError, match=name):
                    call(ROW | {name: value})
            for ask in keys if name == "day" else []:
                with pytest.raises(mw.InvalidCallError, match="day"):
                    ask(value)
            if name == "at":
                with pytest.raises(mw.InvalidCallError, match="at"):
                    table.set_default("at", value)
    assert table.count_rows() == 0


def test_a_missing_time_of_pandas_is_null_and_no_key(table: mw.Table) -> None:
    first = date(1, 1, 1)
    with table.writer() as writer:
        writer.upsert([ROW | {"day": first}])
        for missing in (pd.NaT, np.datetime64("NaT"), pd.NA):
            writer.upsert([ROW | {"at": missing, "spans": {"from": missing, "to": DAY}}])
            (found,) = table.get([DAY]).to_pylist()
            assert found == ROW | {"spans": {"from": None, "to": DAY}}
            calls: list[Callable[[Any], object]] = [writer.delete, table.get]
            for keys in ([missing], [first, missing], np.array([missing], object)):
                for call in calls:
                    with pytest.raises(mw.InvalidCallError, match="day"):
                        call(keys)
            with pytest.raises(mw.InvalidCallError, match="day"):
                writer.upsert([ROW | {"day": missing}])
            table.set_default("at", missing)
    assert table.count_rows() == 2


def test_texts_in_iso_8601_are_times_in_rows_and_keys(table: mw.Table) -> None:
    row = {"day": "2024-01-02", "at": "2024-01-02T04:04:05.5+01:00", "tags": ["a"]}
    row["spans"] = {"from": "2024-01-01", "to": None}
    frames: list[Any] = [[row], pa.Table.from_pylist([row]), pd.DataFrame([row])]
    with table.writer() as writer:
        for rows in frames:
            writer.upsert(rows)
            (found,) = table.get(["2024-01-02"]).to_pylist()
            assert found["at"] == datetime(2024, 1, 2, 3, 4, 5, 500000, UTC)
            assert found["spans"] == {"from": date(2024, 1, 1), "to": None}
            writer.delete(["2024-01-02"])
            assert table.count_rows() == 0


def test_a_missing_time_is_null_as_a_parameter() -> None:
    context = datafusion.SessionContext()
    for missing in (pd.NaT, pd.NA, None):
        found = mw.sql(
            context,
            "SELECT $x IS NULL AS one, $many[2] IS NULL AS other, $many[1] AS d",
            x=missing,
            many=[DAY, missing],
        ).to_pylist()
        assert found == [{"one": True, "other": True, "d": DAY}]
