"""`match` above joins, subqueries, unions and views keeps the rows that the texts tell by the
analyzer of the column, or the query is refused: DataFusion copies conditions over the keys of
joins, where texts may become tokens in another way."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.lance import tokenize

import memwal_sql as mw
from tests.soak import SOAK

QUERIES = 40 * SOAK
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        ("body", pa.string()),
        ("title", pa.string()),
    ]
)
LIKE_LANCE = {"stem": True, "remove_stop_words": True}
AS_THEY_ARE = {"stem": False, "remove_stop_words": False}
# Of the tables and their columns; `p` is no table of ours, and `w` a view of `a`.
ANALYZERS: dict[str, dict[str, dict[str, Any]]] = {
    "a": {"body": LIKE_LANCE, "title": AS_THEY_ARE},
    "b": {"body": AS_THEY_ARE, "title": LIKE_LANCE},
    "c": {"body": LIKE_LANCE, "title": LIKE_LANCE},
    "w": {"body": LIKE_LANCE, "title": AS_THEY_ARE},
}
TEXTS = ("tree", "the trees", "Trees", "log", "logs", "the log", "a tree", "logging trees")
WORDS = ("tree", "trees", "log", "the log", "logs")
REFUSED = "is for WHERE|would also reach a joined table"


@pytest.fixture(scope="module")
def context() -> Iterator[datafusion.SessionContext]:
    rng, made = Random(5), datafusion.SessionContext()
    for name in "abcp":
        rows = [
            {"id": key, "n": key % 3, "body": rng.choice(TEXTS), "title": rng.choice(TEXTS)}
            for key in range(12)
        ]
        rows[3]["body"] = None
        rows_of_table = pa.Table.from_pylist(rows, SCHEMA)
        if name == "p":
            made.register_record_batches("p", [rows_of_table.to_batches()])
            continue
        table = mw.create_table(f"memory://joins-{name}", SCHEMA, primary_key="id")
        with table.writer() as writer:
            writer.upsert(rows_of_table)
            writer.flush()
            table.merge()
            for column, analyzer in ANALYZERS[name].items():
                if name != "c":
                    table.create_index(column, "FTS", **analyzer)
            writer.upsert(rows_of_table.slice(9))
        mw.register(made, name, table)
    made.sql("CREATE VIEW w AS SELECT id, n, title, body FROM a WHERE n < 2")
    yield made


def condition(table: str, alias: str, column: str, words: str) -> tuple[str, str]:
    """By `match`, and by the texts that have the words."""
    analyzer = ANALYZERS[table][column]
    tokens = {one.text for one in tokenize(words, **analyzer)}
    found = [t for t in TEXTS if tokens and {o.text for o in tokenize(t, **analyzer)} >= tokens]
    texts = ", ".join(f"'{text}'" for text in ["none", *found])
    return f"match({alias}.{column}, '{words}')", f"{alias}.{column} IN ({texts})"


def query(rng: Random) -> tuple[str, str]:
    """The same query by `match` and by texts."""
    x, y = rng.choice("abcw"), rng.choice("aabbcpw")
    where = [condition(x, "x", rng.choice(["body", "title"]), rng.choice(WORDS))]
    if y != "p" and rng.random() < 0.3:
        where.append(condition(y, "y", rng.choice(["body", "title"]), rng.choice(WORDS)))
    if rng.random() < 0.3:
        where.append(("x.n < 2", "x.n < 2"))
    key, other = rng.choice(["body", "title"]), rng.choice(["body", "title", "id"])
    key = "id" if other == "id" else key
    kind = rng.choice(["", "", "LEFT", "RIGHT", "FULL"])
    among = f"x.{key} IN (SELECT {other} FROM {y} y WHERE {{y}})"
    exists = f"EXISTS (SELECT 1 FROM {y} y WHERE y.{other} = x.{key} AND {{y}})"
    groups = f"(SELECT {other} AS k, count(*) AS m FROM {y} GROUP BY {other})"
    both = f"SELECT x.id, y.id AS j FROM {x} x"
    shape = rng.choice(
        [
            f"{both} {kind} JOIN {y} y ON x.{key} = y.{other} WHERE {{w}}",
            f"{both} JOIN {y} y ON x.{key} = y.{other} AND {{w}}",
            f"{both} {kind} JOIN {y} y USING ({key}) WHERE {{w}}",
            f"{both}, {y} y WHERE {{w}} AND y.{other} = x.{key}",
            f"SELECT x.id, r.m AS j FROM {x} x JOIN {groups} r ON r.k = x.{key} WHERE {{x}}",
            f"SELECT x.id, 0 AS j FROM {x} x WHERE {{x}} AND {among}",
            f"SELECT x.id, 0 AS j FROM {x} x WHERE {{x}} AND {exists}",
            f"SELECT x.id, 1 AS j FROM {x} x WHERE {{x}} AND NOT {exists}",
            f"WITH k AS (SELECT * FROM {x} x WHERE {{x}}) SELECT k.id, y.id AS j FROM k "
            f"JOIN {y} y ON k.{key} = y.{other} WHERE {{y}}",
            f"SELECT x.id, 0 AS j FROM {x} x WHERE {{x}} UNION ALL "
            f"SELECT y.id, 1 AS j FROM {y} y WHERE {{y}}",
            f"SELECT x.id, z.id AS j FROM {x} x JOIN {y} y ON x.{key} = y.{other} "
            f"JOIN c z ON z.{key} = x.{key} WHERE {{w}}",
        ]
    )
    made = []
    for way in (0, 1):
        own = [one[way] for one in where if "x." in one[way]]
        others = [one[way] for one in where if "y." in one[way]] or ["true"]
        whole = " AND ".join([*own, *others])
        text = shape.format(w=whole, x=" AND ".join(own), y=" AND ".join(others))
        made.append(f"{text} ORDER BY id, j")
    return made[0], made[1]


@pytest.mark.parametrize("seed", range(SOAK))
def test_rows_are_those_that_texts_tell_or_the_query_is_refused(
    context: datafusion.SessionContext, seed: int
) -> None:
    rng, answered = Random(seed), 0
    for _ in range(QUERIES):
        by_match, by_texts = query(rng)
        expected = context.sql(by_texts).to_pylist()
        try:
            with mw.memwal_errors():
                found = context.sql(by_match).to_pylist()
        except mw.UnsupportedError as error:
            assert pc.match_substring_regex(pa.array([str(error)]), REFUSED)[0].as_py(), by_match
            continue
        answered += 1
        assert found == expected, by_match
    assert answered > QUERIES / 2


@pytest.mark.parametrize(
    "join",
    [
        "a x JOIN b y ON x.body = y.body",
        "a x JOIN a y ON x.body = y.title",
        "a x JOIN p y ON x.body = y.body",
        "a x JOIN (SELECT body, max(id) AS id FROM b GROUP BY body) y USING (body)",
        "full_text_search('a', 'title', 'tree', 12) x JOIN b y ON x.body = y.body",
    ],
)
def test_a_subquery_is_the_way_round(context: datafusion.SessionContext, join: str) -> None:
    words = "match(x.body, 'tree')"
    with pytest.raises(mw.UnsupportedError, match=r"JOIN \(SELECT"), mw.memwal_errors():
        context.sql(f"SELECT x.id, y.id FROM {join} WHERE {words}").collect()
    first, rest = join.split(" x JOIN ")
    inner = f"(SELECT * FROM {first} x WHERE {words}) x JOIN {rest}"
    _, by_texts = condition("a", "x", "body", "tree")
    found = context.sql(f"SELECT x.id, y.id AS j FROM {inner} ORDER BY 1, 2").to_pylist()
    plain = f"SELECT x.id, y.id AS j FROM {join} WHERE {by_texts} ORDER BY 1, 2"
    assert found == context.sql(plain).to_pylist()


def test_equal_analyzers_and_other_words_may_be_joined(
    context: datafusion.SessionContext,
) -> None:
    for join, column, words in (
        ("a x JOIN c y USING (body)", "body", "tree"),
        ("a x JOIN b y ON x.id = y.id", "body", "tree "),
    ):
        where = f"match(x.body, 'tree') AND match(y.{column}, '{words}')"
        context.sql(f"SELECT x.id FROM {join} WHERE {where}").collect()
