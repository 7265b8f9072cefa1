"""The rows that a statement answers with, or finds again in its queries."""

import datafusion
import pyarrow as pa

from memwal_sql.statements.queries.planning import answer
from memwal_sql.statements.queries.schemas import in_memory

# Three arrays that fit into no single one, as columns of texts above 2 GiB do not.
PLACES = pa.array(range(100), pa.int8())
PIECES = [
    pa.DictionaryArray.from_arrays(PLACES, pa.array(range(start, start + 100)))
    for start in (0, 100, 200)
]
ROWS = pa.table({"id": pa.array(range(300)), "n": pa.chunked_array(PIECES)})


def test_rows_that_fit_into_no_single_array_are_all_answered(
    ctx: datafusion.SessionContext,
) -> None:
    found = answer(ctx, ROWS)
    assert found.count() == len(ROWS)
    assert found.to_arrow_table().to_pylist() == ROWS.to_pylist()


def test_rows_that_fit_into_no_single_array_are_all_queried(ctx: datafusion.SessionContext) -> None:
    with in_memory(ctx, {"rows": ROWS}) as names:
        query = f"SELECT CAST(sum(CAST(n AS BIGINT)) AS BIGINT) AS s FROM {names['rows']}"
        assert ctx.sql(query).to_pylist() == [{"s": sum(range(300))}]
