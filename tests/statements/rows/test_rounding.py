"""Floats of statements are rounded to their column's: within lists and structs as alone."""

import datafusion
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw

VALUE = 0.9
# A type, its value in SQL and as a parameter.
KINDS: list[tuple[pa.DataType, str, object]] = [
    (pa.float32(), "0.9", VALUE),
    (pa.list_(pa.float32(), 2), "[0.9, 0.9]", [VALUE] * 2),
    (pa.list_(pa.float16()), "[0.9, NULL]", [VALUE, None]),
    (pa.large_list(pa.float32()), "[0.9]", [VALUE]),
    (pa.list_(pa.list_(pa.float32())), "[[0.9], [0.9]]", [[VALUE]] * 2),
    (pa.struct({"x": pa.float32(), "n": pa.int64()}), "{'x': 0.9, 'n': 1}", {"x": VALUE, "n": 1}),
    (pa.list_(pa.struct({"x": pa.float32()})), "[{'x': 0.9}]", [{"x": VALUE}]),
]


def rounded(value: object, kind: pa.DataType) -> object:
    if isinstance(value, float):
        return float(np.float16(value) if "halffloat" in str(kind) else np.float32(value))
    if isinstance(value, list):
        return [rounded(one, kind) for one in value]
    return {n: rounded(v, kind) for n, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(("kind", "text", "value"), KINDS, ids=[str(kind[0]) for kind in KINDS])
def test_floats_are_rounded_wherever_they_are(
    uri: str, kind: pa.DataType, text: str, value: object
) -> None:
    table = mw.create_table(uri, pa.schema({"a": pa.int64(), "e": kind}), primary_key="a")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    mw.sql(ctx, f"INSERT INTO t VALUES (1, {text}), (2, NULL)")
    mw.sql(ctx, f"UPDATE t SET e = {text} WHERE a = 2")
    given = pa.scalar(value)
    mw.sql(ctx, "INSERT INTO t VALUES (3, $v)", v=given)
    found = mw.sql(ctx, "SELECT e FROM t").to_pylist()
    assert found == [{"e": rounded(value, kind)}] * 3
    infinite = text.replace("0.9", "1e300")
    with pytest.raises(mw.InvalidCallError, match="'e'"):
        mw.sql(ctx, f"INSERT INTO t VALUES (1, {text}), (2, {infinite})")
    table.close()
