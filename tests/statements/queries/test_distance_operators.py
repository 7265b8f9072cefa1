"""`<->`, `<=>` and `<#>` in statements of `mw.sql`."""

from __future__ import annotations

from collections.abc import Iterator

import datafusion
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.queries.distance_operators import with_distances
from tests.each import each

VECTORS = np.array([[1, 2], [3, -1], [0, 0.5], [-2, 2], [0.25, 1]], np.float32)
Q = [0.5, 1.5]


@pytest.fixture(scope="module")
def session() -> Iterator[datafusion.SessionContext]:
    vector = pa.list_(pa.float32(), 2)
    key = pa.field("id", pa.int64(), nullable=False)
    schema = pa.schema([key, ("n", pa.int64()), ("v", vector)])
    table = mw.create_table("memory://operators", schema, primary_key="id")
    with table.writer() as writer:
        rows = {"id": range(5), "n": [1, None, 2, None, 3], "v": VECTORS.tolist()}
        writer.upsert(pa.table({name: list(values) for name, values in rows.items()}))
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    yield context


def by(distances: np.ndarray) -> list[int]:
    return np.argsort(distances).tolist()


L2 = by(((VECTORS - Q) ** 2).sum(axis=1))
DOT = by(-(VECTORS @ np.array(Q)))
COSINE = by(-(VECTORS @ np.array(Q)) / np.linalg.norm(VECTORS, axis=1))


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("v <-> $q", L2),
        ("t.v<->$q", L2),
        ("$q <-> public.t.v", L2),
        ("v <-> '[0.5, 1.5]'", L2),
        ("v <-> '[0.5, 1.5]'::vector(2)", L2),
        ("(v) <-> [0.5, 1.5]", L2),
        ("CAST([0.5, 1.5] AS DOUBLE[]) <-> v", L2),
        ("v <-> make_array(0.5, 1.5)", L2),
        ("v <-> ARRAY[0.5, 1.5], id", L2),
        ("v <#> $q", DOT),
        ("v <=> $q", COSINE),
        ("v <=> make_array(0.5, 1.5)", COSINE),
        ("1 - (v <=> $q) DESC", COSINE),
    ],
)
def test_the_nearest_come_first(
    session: datafusion.SessionContext, order: str, expected: list[int]
) -> None:
    used = {"q": Q} if "$q" in order else {}
    query = f"SELECT id FROM t ORDER BY {order} LIMIT 3"
    found = mw.sql(session, query, **used)
    assert found.to_pydict()["id"] == expected[:3]
    is_nearest = "NearestExec" in found.execution_plan().display_indent()
    assert is_nearest != (order.startswith("CAST") or "public" in order)


def test_values_are_those_of_the_functions(session: datafusion.SessionContext) -> None:
    query = (
        "SELECT v <-> $q AS a, v <#> $q AS b, v <=> $q AS c FROM t WHERE v <-> $q < 2 ORDER BY id"
    )
    functions = (
        "SELECT array_distance(v, $q) AS a, 0.0 - inner_product(v, $q) AS b, "
        "cosine_distance(v, $q) AS c FROM t WHERE array_distance(v, $q) < 2 ORDER BY id"
    )
    found = mw.sql(session, query, q=Q).to_arrow_table()
    assert found.equals(mw.sql(session, functions, q=Q).to_arrow_table())
    assert 0 < found.num_rows < 5


@pytest.mark.parametrize("order", ["v <-> $q", "$q <-> t.v", "v <=> $q", "v <#> $q::vector(2)"])
@pytest.mark.parametrize("q", ["[0.5, 1.5]", " [0.5,15e-1] ", pa.scalar("[0.5, 1.5]")])
def test_a_parameter_may_be_a_vector_as_text(
    session: datafusion.SessionContext, order: str, q: object
) -> None:
    query = f"SELECT id FROM t ORDER BY {order} LIMIT 3"
    found = mw.sql(session, query, q=q)
    literal = mw.sql(session, query.replace("$q", "'[0.5, 1.5]'"))
    assert found.to_pydict() == literal.to_pydict()
    assert "NearestExec" in found.execution_plan().display_indent()


@each("operator", ["<->", "<=>", "<#>"])
@each(
    "text",
    [
        *("nope", "", "{}", "3"),
        *("[1, x]", "[1, null]", '["1", 2]', "[[1, 2]]", "[true, 2]", "[1, 2"),
        *("[NaN, 1]", "[1e999]", f"[1{'0' * 400}]"),
    ],
)
def test_a_text_that_is_no_vector_is_an_error_with_its_place(
    session: datafusion.SessionContext, operator: str, text: str
) -> None:
    for given, used in ((f"'{text}'", {}), ("$q", {"q": text})):
        if operator == "<=>" and given != "$q" and not text.startswith("["):
            continue  # equality with NULLs, to DataFusion, but for the column beside it
        with pytest.raises(mw.InvalidCallError, match=r"not a vector, such as '\[0.5, 1\]', at"):
            mw.sql(session, f"SELECT v {operator} {given} FROM t", **used)


@pytest.mark.parametrize("q", [3, True, b"ab", {"a": 1}])
@pytest.mark.parametrize("distance", ["v <-> $q", "array_distance(v, $q)", "inner_product(v, $q)"])
def test_a_parameter_that_is_not_a_vector_is_an_error(
    session: datafusion.SessionContext, distance: str, q: object
) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"^\w+ does not support type"):
        mw.sql(session, f"SELECT {distance} FROM t", q=q).collect()


def test_null_safe_equality_of_texts_does_not_depend_on_what_they_are(
    session: datafusion.SessionContext,
) -> None:
    for text in ("[1, 2]", "[", "x"):
        query = "SELECT $a <=> $b AS same, id::text <=> $a AS other FROM t WHERE id = 1"
        assert mw.sql(session, query, a=text, b=text).to_pylist() == [
            {"same": True, "other": False}
        ]


def test_without_a_vector_null_safe_equality_is_left_to_datafusion(
    session: datafusion.SessionContext,
) -> None:
    text = "SELECT id FROM t WHERE n <=> NULL"
    assert with_distances(session, text, {}).text == text
    assert sorted(mw.sql(session, text).to_pydict()["id"]) == [1, 3]


def test_texts_without_them_stay_as_they_are(session: datafusion.SessionContext) -> None:
    for text in ("SELECT '<->' FROM t", "SELECT n < -1, n <> 2, n<-1 FROM t", "SELECT 1 -- <->"):
        assert with_distances(session, text, {}).text == text
