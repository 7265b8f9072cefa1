"""Decimals that do not fit a column are refused by every way in, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

# A type, a text that fits, and texts just beyond it. Arrow itself makes another number of "7".
CASES = [
    (pa.decimal128(5, 2), "9.5", ["1000", "0.125", "1e3", "125e-3"]),
    (pa.decimal128(38, 38), "0.5", ["7", "-1.25", "1e-39"]),
    (pa.decimal256(76, 76), "0.5", ["7"]),
    (pa.decimal128(38, 10), "1e-10", ["1e-11", "1" * 29]),
]


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def _sql(table: mw.Table, text: str) -> None:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    mw.sql(context, text).collect()


Door = Callable[[mw.Table, Any, str, Path], object]
DOORS: list[tuple[str, Door]] = [
    ("text", lambda t, w, v, p: w.upsert([{"id": 1, "d": v}])),
    ("columns", lambda t, w, v, p: w.upsert({"id": [1], "d": [Decimal(v)]})),
    ("decimal", lambda t, w, v, p: w.upsert([{"id": 1, "d": Decimal(v)}])),
    ("arrow text", lambda t, w, v, p: w.upsert(pa.table({"id": [1], "d": [v]}))),
    ("insert", lambda t, w, v, p: w.insert([{"id": 2, "d": Decimal(v)}])),
    ("apply", lambda t, w, v, p: w.apply([{"id": 1, "d": v, "op": "u"}], op="op")),
    ("when", lambda t, w, v, p: w.upsert([{"id": 1, "d": Decimal(v)}], when="s.d > t.d or true")),
    ("set", lambda t, w, v, p: w.update({"d": f"arrow_cast('{v}', 'Utf8')"}, where="id = 1")),
    ("csv", lambda t, w, v, p: w.upsert(_file(p, "a.csv", f"id,d\n1,{v}\n"))),
    ("json number", lambda t, w, v, p: w.upsert(_file(p, "a.jsonl", f'{{"id":1,"d":{v}}}'))),
    ("json", lambda t, w, v, p: w.upsert(_file(p, "b.json", json.dumps([{"id": 1, "d": v}])))),
    ("values", lambda t, w, v, p: _sql(t, f"INSERT INTO t VALUES (1, '{v}')")),
    ("select", lambda t, w, v, p: _sql(t, f"INSERT INTO t SELECT 1, '{v}'")),
    ("update", lambda t, w, v, p: _sql(t, f"UPDATE t SET d = '{v}' WHERE id = 1")),
    (
        "merge",
        lambda t, w, v, p: _sql(
            t,
            f"MERGE INTO t USING (SELECT 1 AS id, '{v}' AS d) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET d = s.d WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.d)",
        ),
    ),
    ("default", lambda t, w, v, p: t.set_default("d", v)),
    ("alter", lambda t, w, v, p: _sql(t, f"ALTER TABLE t ALTER COLUMN d SET DEFAULT '{v}'")),
]


@each("kind, good, beyond", CASES)
def test_every_way_in_refuses_a_decimal_beyond_the_type(
    kind: pa.DataType, good: str, beyond: list[str], tmp_path: Path
) -> None:
    table = mw.create_table(
        str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("d", kind)]), primary_key="id"
    )
    with table.writer() as writer:
        writer.upsert([{"id": 1, "d": 0}])
        for name, door in DOORS:
            for text in beyond:
                with pytest.raises(mw.InvalidCallError, match=r"'d'"):
                    door(table, writer, text, tmp_path)
                    pytest.fail(f"{name} took {text}")
            assert table.to_arrow()["d"].to_pylist() == [0], name
            door(table, writer, good, tmp_path)
            assert set(table.to_arrow()["d"].to_pylist()) <= {Decimal(good), 0}, name
            writer.upsert([{"id": 1, "d": 0}])
            writer.delete([2])
            table.set_default("d", None)


def test_a_stored_default_that_does_not_fit_is_damage(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("d", pa.decimal128(5, 2)), ("n", pa.int8())])
    for column, text in (("d", "1000"), ("d", "x"), ("n", "300")):
        uri = str(tmp_path / f"{column}{text}")
        mw.create_table(uri, schema, primary_key="id")
        metadata = {column: {"memwal_sql:default": text}}
        lance.dataset(uri).update_field_metadata(metadata, replace=True)
        table = mw.open_table(uri)
        assert table.to_arrow().num_rows == 0
        (finding,) = [one for one in table.check() if one.check == "defaults"]
        assert column in finding.what and "set_default" in finding.remedy
        with pytest.raises(mw.CorruptFileError, match="set_default"):
            table.writer()
        table.set_default(column, None)
        with table.writer() as writer:
            writer.upsert([{"id": 1}])
        assert table.check().ok
