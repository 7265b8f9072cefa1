"""Wrong answers of DataFusion 55 that the manual tells of, and what it says to write instead.

A test that fails as the fault is gone says that its place in docs/datafusion.md is to go, too.
"""

import datafusion
import pyarrow as pa
import pytest

ROWS = pa.table({"a": pa.array([1, 3], pa.int64()), "n": pa.array([1, None], pa.int64())})
# A condition that DataFusion answers wrongly, two that say the same, and the right `a`.
NOT_IN = [
    (
        "5 NOT IN (SELECT n FROM t)",
        (
            "5 <> ALL (SELECT n FROM t)",
            "NOT EXISTS (SELECT 1 FROM t z WHERE z.n = 5 OR z.n IS NULL)",
        ),
        [],
    ),
    (
        "n = 1 OR a NOT IN (SELECT n FROM t)",
        (
            "n = 1 OR a <> ALL (SELECT n FROM t)",
            "n = 1 OR NOT EXISTS (SELECT 1 FROM t z WHERE z.n = t.a OR z.n IS NULL)",
        ),
        [1],
    ),
    (
        "5 NOT IN (SELECT n FROM t z WHERE z.a = t.a)",
        (
            "5 <> ALL (SELECT n FROM t z WHERE z.a = t.a)",
            "NOT EXISTS (SELECT 1 FROM t z WHERE z.a = t.a AND (z.n = 5 OR z.n IS NULL))",
        ),
        [1],
    ),
]
JOIN = "{0} x {1} JOIN {2} y ON x.a = y.a WHERE {3}.a IS NULL AND {4}.a > 1"


def keys(ctx: datafusion.SessionContext, query: str) -> list[int]:
    return sorted(row["a"] for row in ctx.sql(query).to_pylist())


@pytest.mark.parametrize(("wrong", "remedies", "expected"), NOT_IN)
def test_not_in_forgets_null(wrong: str, remedies: tuple[str, ...], expected: list[int]) -> None:
    ctx = datafusion.SessionContext()
    ctx.register_record_batches("t", [ROWS.to_batches()])
    assert keys(ctx, f"SELECT a FROM t WHERE {wrong}") == [1, 3]
    for remedy in remedies:
        assert keys(ctx, f"SELECT a FROM t WHERE {remedy}") == expected


def test_a_condition_over_a_right_join_is_taken_for_one_of_the_other_column() -> None:
    ctx = datafusion.SessionContext()
    for name, values in {"large": [*range(300)], "small": [1, 2, 700]}.items():
        ctx.register_record_batches(name, [pa.table({"a": values}).to_batches()])
    right = f"SELECT y.a FROM {JOIN.format('large', 'RIGHT', 'small', 'x', 'y')}"
    left = f"SELECT x.a FROM {JOIN.format('small', 'LEFT', 'large', 'y', 'x')}"
    assert keys(ctx, right) == []
    assert keys(ctx, left) == [700]
    ctx.sql("SET datafusion.optimizer.join_reordering = false").collect()
    assert keys(ctx, right) == [700]
