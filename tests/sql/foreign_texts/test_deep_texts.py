"""Texts whose trees would overrun a stack, and long ones in errors."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_native.syntax import SqlParser
from memwal_sql.storage.proto_gen import lance_table_pb2, mem_wal_pb2
from planner.predicates.condition import condition_of
from tests.planner.predicates.said import Said
from tests.program import run
from tests.sql.foreign_texts import deep_texts_child
from tests.sql.foreign_texts.deep_texts_child import doors


@pytest.mark.parametrize("what", ["refuse", "answer"])
def test_texts_end_no_process(what: str, tmp_path: Path) -> None:
    """Rows of operators ended it by SIGSEGV, through every door that takes text."""
    child = run("-m", deep_texts_child.__name__, what, tmp_path)
    assert child.returncode == 0, child.stderr
    assert child.stdout == "", child.stdout


def test_long_texts_that_are_not_deep_are_read() -> None:
    numbers = ", ".join(map(str, range(50_000)))
    texts = [
        f"SELECT 1 FROM t WHERE id IN ({numbers}) OR id NOT IN ({numbers})",
        "INSERT INTO t VALUES " + ", ".join(f"({i}, -{i} + 1, 'a')" for i in range(10_000)),
        "SELECT " + ", ".join(f"id + {i} AS c{i}" for i in range(5_000)) + " FROM t ORDER BY 1, 2",
        "SELECT 1 FROM t WHERE " + " OR ".join(f"(id = {i} AND s = 'a')" for i in range(400)),
        "SELECT 1 FROM t WHERE " + " OR ".join(f"id = {i} AND s = 'a'" for i in range(200)),
        "SELECT 1 FROM t WHERE " + " AND ".join(f"id BETWEEN {i} AND {i + 1}" for i in range(300)),
        "SELECT CASE " + " ".join(f"WHEN id = {i} THEN 'a' || {i}" for i in range(400)) + " END",
        " UNION ALL ".join(f"SELECT {i} + 1 AS a WHERE 1 = 1 AND 2 = 2" for i in range(200)),
        "WITH "
        + ", ".join(f"c{i} AS (SELECT id FROM t WHERE id > {i} AND s = 'a')" for i in range(80))
        + " SELECT * FROM c79",
        "SELECT 1 FROM t "
        + " ".join(f"JOIN t AS t{i} ON t{i}.id = t.id AND t.s = ''" for i in range(60)),
        "; ".join(["SELECT 1 UNION ALL SELECT 2"] * 2_000),
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET "
        + ", ".join(f"c{i} = s.c{i}" for i in range(2_000)),
        "SELECT " + "(" * 40 + "1" + ")" * 40,
    ]
    for text in texts:
        assert SqlParser().query(text, []) is not None, text[:80]
    with pytest.raises(ValueError, match="nested too deeply"):
        SqlParser().tokens("SELECT 1" + " + 1" * 200)


def test_errors_are_short(tmp_path: Path) -> None:
    """An error repeated what it was given, of any length."""
    long = "x" * 20_000
    texts = [
        f"nosuch = '{long}'",
        f"{long} = 1",
        f'"{long}" = 1',
        f"s = '{long}' AND",
        f"s + '{long}' > 1",
        f"s || '{long}' + 1",
        f"nosuch('{long}')",
        f"CAST('{long}' AS BIGINT) = 1",
        "nosuch IN (" + ", ".join(map(str, range(5_000))) + ")",
        "id = " + " ".join(["1"] * 5_000),
    ]
    for door, call in doors(tmp_path).items():
        for text in texts if door in ("count_rows", "SELECT", "update set") else texts[:1]:
            with pytest.raises(mw.MemWalError) as caught:
                call(text)
            assert len(str(caught.value)) <= 1000, (door, text[:30], len(str(caught.value)))
            assert not repeats(str(caught.value), text, 201), (door, text[:30], caught.value)


def test_lengths_of_values_are_bounded(tmp_path: Path) -> None:
    """A few characters asked for gigabytes, which DataFusion's pool does not count."""
    texts = {
        "repeat('a', 1000000001) = ''": "repeat",
        "s = lpad(upper(s), (2e9), 'ab')": "lpad",
        "s = RPAD(concat(s, s), '3000000')": "rpad",
        "array_length(array_repeat([1, 2], 9000000)) > 0": "array_repeat",
    }
    taken = "array_repeat(5000000, 3) = [1] OR s = lpad(repeat('a', 10), 2) OR s = 'repeat(1, 9e9)'"
    for door, call in doors(tmp_path).items():
        if door in ("statement", "expression"):
            continue
        for text, function in texts.items():
            with pytest.raises(mw.InvalidCallError, match=rf"{function}\(\.\.\.\) is asked for"):
                call(text)
        if door in ("count_rows", "SELECT"):
            call(taken)


def test_a_long_list_of_values_is_right_and_handed_to_no_source(tmp_path: Path) -> None:
    """300,000 values took seconds and a gigabyte as values of Python and text for Lance."""
    keys = pa.table({"id": pa.array(range(30_000), pa.int64()), "s": ["a"] * 30_000})
    table, said = mw.create_table(tmp_path / "t", keys.schema, "id"), Said(keys.schema)
    with table.writer() as writer:
        writer.upsert(keys)
        session = datafusion.SessionContext()
        mw.register(session, "t", table)
        for length, sources in ((10_000, True), (10_001, False)):
            listed = ", ".join(str(2 * key) for key in range(length))
            condition = f"id IN ({listed})"
            (given,) = said.given(condition)
            assert (condition_of(given, keys.schema).lance is not None) == sources, length
            query = f"SELECT count(*) AS n FROM t WHERE {condition}"
            assert session.sql(query).to_pydict() == {"n": [length]}
            assert table.count_rows(condition) == length
            assert writer.delete_where(f"{condition} AND id > 30000").rows == 0


def test_dates_beyond_nanoseconds_name_the_way_out(tmp_path: Path) -> None:
    kind = "'Timestamp(Microsecond, None)'"
    at = f"arrow_cast('2020-01-01', {kind})"
    right = f"{at} < arrow_cast('9999-12-31', {kind})"
    wrong = (f"{at} < '9999-12-31'", f"{at} > DATE '0001-01-01'")
    for door, call in doors(tmp_path).items():
        if door in ("count_rows", "SELECT", "update where", "upsert when", "delete_where"):
            for text in wrong:
                with pytest.raises(mw.InvalidCallError, match=r"arrow_cast\('9999-12-31', "):
                    call(text)
        if door in ("count_rows", "SELECT"):
            call(right)


def repeats(message: str, text: str, length: int) -> bool:
    parts = {text[at : at + length] for at in range(min(len(text), 3_000) - length)}
    return any(message[at : at + length] in parts for at in range(len(message) - length))


Change = Callable[[Any], None]


def expression(text: str) -> Change:
    def change(details: Any) -> None:
        details.region_specs[0].fields[0].expression = text

    return change


def fields(number: int, *, named: bool) -> Change:
    def change(details: Any) -> None:
        field = mem_wal_pb2.RegionField()
        field.CopyFrom(details.region_specs[0].fields[0])
        for at in range(number):
            field.field_id = f"f{at}" if named else "f"
            details.region_specs[0].fields.add().CopyFrom(field)

    return change


def specs(number: int) -> Change:
    def change(details: Any) -> None:
        spec = mem_wal_pb2.RegionSpec()
        spec.CopyFrom(details.region_specs[0])
        for at in range(number):
            spec.spec_id = at + 2
            details.region_specs.add().CopyFrom(spec)

    return change


HOSTILE = {
    "40,000 casts": expression("col0" + "::text" * 40_000),
    "300 casts": expression("col0" + "::text" * 300),
    "1,500 concatenations": expression("col0" + " || col0" * 1_500),
    "parentheses": expression("(" * 30_000 + "col0" + ")" * 30_000),
    "20,000 fields": fields(20_000, named=True),
    "20,000 times a field": fields(20_000, named=False),
    "50,000 specs": specs(50_000),
}


def craft(folder: Path, change: Change) -> None:
    """Change the region specs that the manifests of a table have."""
    for file in folder.glob("_versions/*.manifest"):
        data = file.read_bytes()
        at, major, minor, magic = struct.unpack("<QHH4s", data[-16:])
        (size,) = struct.unpack_from("<I", data, at)
        manifest = lance_table_pb2.TableManifest.FromString(data[at + 4 : at + 4 + size])
        place = manifest.index_section
        (size,) = struct.unpack_from("<I", data, place)
        section = lance_table_pb2.IndexSection.FromString(data[place + 4 : place + 4 + size])
        for index in section.indices:
            if index.name == "__lance_mem_wal":
                details = mem_wal_pb2.MemWalIndexDetails.FromString(index.index_details.value)
                change(details)
                index.index_details.value = details.SerializeToString()
        manifest.index_section = at
        sections, message = section.SerializeToString(), manifest.SerializeToString()
        head = data[:at] + struct.pack("<I", len(sections)) + sections
        tail = struct.pack("<QHH4s", len(head), major, minor, magic)
        file.write_bytes(head + struct.pack("<I", len(message)) + message + tail)


def test_stored_region_specs_are_bounded(tmp_path: Path) -> None:
    """They ended the process, or kept it for a minute."""
    schema = pa.schema([pa.field("k", pa.string(), False)])
    for number, (name, change) in enumerate(HOSTILE.items()):
        folder = tmp_path / str(number)
        mw.create_table(folder, schema, "k", regions=[mw.expression("upper(col0)", "k")]).close()
        craft(folder, change)
        with pytest.raises(mw.CorruptFileError, match="manifest is not a manifest with") as caught:
            mw.open_table(folder)
        assert len(str(caught.value)) < 800, name


def test_region_specs_that_are_given_are_bounded(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.string(), False)])
    for regions in (
        [mw.bucket("k", 4, name=f"f{i}") for i in range(65)],
        [mw.bucket("k", 4), mw.bucket("k", 4)],
    ):
        with pytest.raises(mw.InvalidCallError, match=r"fields at most|appears twice"):
            mw.create_table(tmp_path / "t", schema, "k", regions=regions)
    for text in ("col0" + " || col0" * 200, f"'{'a' * 5_000}' || col0"):
        with pytest.raises(mw.InvalidCallError, match="a region expression has"):
            mw.expression(text, "k")
