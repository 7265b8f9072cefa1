"""Decimals beside the numbers of a text: what docs/limits.md says of them."""

from decimal import Decimal

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

AMOUNTS = [Decimal(cents).scaleb(-2) for cents in range(1, 450)]
SCHEMA = pa.schema([pa.field("d", pa.decimal128(10, 2), nullable=False), ("n", pa.int64())])
LITERALS = " OR ".join(f"d = {one}" for one in AMOUNTS)
PARAMETERS = " OR ".join(f"d = $p{place}" for place in range(len(AMOUNTS)))
EXACT = "SET datafusion.sql_parser.parse_float_as_decimal = true"


@pytest.mark.parametrize("change", ["DELETE FROM t", "UPDATE t SET n = 1"])
def test_doubles_of_a_text_miss_decimals_where_parameters_and_the_setting_do_not(
    uri: str, ctx: datafusion.SessionContext, change: str
) -> None:
    rows = pa.table([pa.array(AMOUNTS, SCHEMA.field(0).type), range(len(AMOUNTS))], SCHEMA)
    table = mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key="d"))
    ctx.from_arrow(rows, name="rows")

    def changed(condition: str, **parameters: Decimal) -> list[Decimal]:
        mw.sql(ctx, "INSERT INTO t SELECT * FROM rows")
        done = mw.sql(ctx, f"{change} WHERE {condition} RETURNING d", **parameters)
        return sorted(row["d"] for row in done.to_pylist())

    as_doubles = ctx.sql(f"SELECT d FROM rows WHERE {LITERALS}").to_pylist()
    assert changed(LITERALS) == sorted(row["d"] for row in as_doubles)
    assert 0 < len(AMOUNTS) - len(as_doubles) < len(AMOUNTS) / 10
    assert changed(PARAMETERS, **{f"p{n}": one for n, one in enumerate(AMOUNTS)}) == AMOUNTS
    mw.sql(ctx, EXACT)
    assert changed(LITERALS) == AMOUNTS
    table.close()
