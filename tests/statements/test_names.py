"""Names in statements: those that the session takes."""

from collections.abc import Iterator

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.arguments import literal
from tests.each import each
from tests.soak import usual

SCHEMA = pa.schema({"id": pa.int64(), "äb": pa.int64(), "Äb": pa.int64(), "n": pa.int64()})


@pytest.fixture
def table(uri: str) -> Iterator[mw.Table]:
    with mw.create_table(uri, SCHEMA, primary_key="id") as table:
        yield table


def test_letters_of_ascii_alone_are_in_lower_case(table: mw.Table) -> None:
    ctx = datafusion.SessionContext()
    mw.register(ctx, "TÄ", table)
    mw.sql(ctx, "INSERT INTO tÄ (id, ÄB, N) VALUES (1, 2, 3)")
    mw.sql(ctx, "UPDATE tÄ SET ÄB = ÄB + 1")
    assert ctx.sql("SELECT ÄB FROM TÄ").to_pydict() == {"Äb": [3]}
    table.add_columns({"twice": "2 * ÄB"})
    assert table.to_arrow().to_pylist() == [{"id": 1, "äb": None, "Äb": 3, "n": 3, "twice": 6}]


@each(
    "statement",
    [
        "UPDATE t SET N = 1",
        "INSERT INTO t (id, N) VALUES (1, 2)",
        "DELETE FROM t",
        "MERGE INTO t USING t AS u ON t.id = u.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE t DROP COLUMN N",
        "DROP TABLE t",
        "CREATE TABLE u (N BIGINT PRIMARY KEY) LOCATION 'u'",
    ],
)
def test_a_session_that_takes_names_otherwise_changes_nothing(
    table: mw.Table, statement: str
) -> None:
    config = datafusion.SessionConfig()
    config = config.set("datafusion.sql_parser.enable_ident_normalization", "false")
    ctx = datafusion.SessionContext(config)
    mw.register(ctx, "t", table)
    with pytest.raises(mw.UnsupportedError, match="enable_ident_normalization"):
        mw.sql(ctx, statement)


# As `register` is given it, and what stands in statements then.
NAMES = {
    "My T": '"My T"',
    "my t": '"my t"',
    '"My T"': '"My T"',
    "`My T`": '"My T"',
    'Public . "My T"': '"My T"',
    " T\n": "t",
    "ÄB 日本": '"ÄB 日本"',
    "Sel-X": '"Sel-X"',
    "2023_Data": '"2023_Data"',
    "v1.0 Data": '"v1.0 Data"',
    "Public.My-T": '"Public.My-T"',
    "A.b.c.d": '"A.b.c.d"',
    "A..b": '"A..b"',
    "[T]": '"[T]"',
    "It's": '"It\'s"',
    "T -- of mine": "t",
    '"a""B"': '"a""B"',
    '"Open': '"""Open"',
    'A"': '"A"""',
    "Select": '"select"',
    '"Übung $ 1"': '"Übung $ 1"',
}


@each("name, written", usual([*NAMES.items()], 6))
def test_a_table_is_read_changed_and_searched_under_every_name(
    uri: str,
    ctx: datafusion.SessionContext,
    name: str,
    written: str,
) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("body", pa.string())])
    table = mw.create_table(uri, schema, primary_key="id")
    mw.register(ctx, name, table)
    plain = written if written.startswith('"') else f'"{written}"'
    about = f'{plain[:-1]}$regions"'

    def run(text: str) -> list[dict[str, object]]:
        return list(mw.sql(ctx, text.replace("$T", written)).to_pylist())

    run("INSERT INTO $T VALUES (1, 1, 'a'), (2, 2, 'b')")
    run("INSERT INTO $T (id, n) VALUES (3, 3)")
    run("INSERT INTO $T (id, n) VALUES (2, 7), (4, 4) ON CONFLICT DO UPDATE SET n = $T.n + 1")
    run("REPLACE INTO $T (id, n) VALUES (4, 5)")
    run("UPDATE $T SET n = $T.n + 10 WHERE id = 1")
    run("DELETE FROM $T WHERE id = 3")
    merge = "MERGE INTO $T USING $T AS s ON $T.id = s.id WHEN MATCHED AND s.n = 11 THEN UPDATE "
    run(f"{merge} SET n = s.n + 1")
    run("UPDATE $T SET n = n + 1")
    run("ALTER TABLE $T ADD COLUMN more INT")
    run("CREATE INDEX words ON $T USING fts (body)")
    run(f"CALL memwal.flush({literal(name)})")
    rows = run("SELECT a.id, b.n FROM $T AS a JOIN $T AS b ON a.id = b.id ORDER BY a.id")
    assert rows == [{"id": 1, "n": 13}, {"id": 2, "n": 4}, {"id": 4, "n": 6}]
    for call in (name, plain):
        search = f"full_text_search({literal(call)}, 'body', 'b')"
        assert run(f"SELECT id FROM {search} JOIN $T USING (id)") == [{"id": 2}]
    assert len(run(f"SELECT * FROM {about}")) == 1
    run("TRUNCATE TABLE $T")
    assert run("SELECT count(*) AS n FROM $T") == [{"n": 0}]
    run("DROP INDEX words ON $T")
    mw.deregister(ctx, name)
    assert ctx.catalog().schema().names() == set()
    table.close()


@pytest.mark.parametrize("name", ["", '""', 'public.""'])
def test_a_table_needs_a_name(table: mw.Table, name: str) -> None:
    with pytest.raises(mw.InvalidCallError, match="name"):
        mw.register(datafusion.SessionContext(), name, table)
