"""Region expressions are evaluated wherever pruning is asked for."""

from __future__ import annotations

import datafusion
import pyarrow as pa

from planner.regions.expression import evaluate_expression


def test_an_expression_is_evaluated_inside_a_running_query() -> None:
    """DataFusion's Python package panics when a thread of its runtime has to wait."""

    def remainder(values: pa.Array) -> pa.Array:
        return evaluate_expression("col0 % 3", [values], pa.int64())

    context = datafusion.SessionContext()
    context.register_udf(
        datafusion.udf(remainder, [pa.int64()], pa.int64(), "immutable", "remainder")
    )
    context.register_record_batches("t", [[pa.record_batch({"a": pa.array(range(7))})]])
    found = context.sql("SELECT remainder(a) AS r FROM t").to_arrow_table()
    assert found["r"].to_pylist() == [0, 1, 2, 0, 1, 2, 0]
