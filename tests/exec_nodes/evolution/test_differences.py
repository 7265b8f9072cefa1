"""What messages say of changed columns."""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.match import FIELD_ID_KEY
from tests.each import each


def _schema(**columns: tuple[int, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [pa.field(n, t, metadata={FIELD_ID_KEY: b"%d" % i}) for n, (i, t) in columns.items()]
    )


BEFORE = _schema(id=(0, pa.int64()), n=(1, pa.int32()))
STRUCT = pa.struct([pa.field("x", pa.int64())])


@each(
    "now, by_id, by_name",
    [
        (
            _schema(id=(0, pa.int64()), n=(1, pa.int64()), p=(2, pa.float64())),
            "'n' is int64, and was int32; 'p' double was added",
            "'n' is int64, and was int32; 'p' double was added",
        ),
        (_schema(id=(0, pa.int64())), "'n' was dropped", "'n' was dropped"),
        (
            _schema(id=(0, pa.int64()), m=(1, pa.int32())),
            "'n' was renamed to 'm'",
            "'n' was dropped; 'm' int32 was added",
        ),
        (
            _schema(id=(0, pa.int64()), n=(2, pa.int64())),
            "'n' was dropped; 'n' int64 was added",
            "'n' is int64, and was int32",
        ),
        (
            pa.schema([BEFORE.field("id").with_nullable(False), BEFORE.field("n")]),
            "'id' may not be null",
            "'id' may not be null",
        ),
        (
            pa.schema([BEFORE.field("n"), BEFORE.field("id")]),
            "the order is ['n', 'id']",
            "the order is ['n', 'id']",
        ),
        (
            _schema(
                id=(0, pa.int64()),
                n=(1, pa.int32()),
                **{f"c{number}": (2 + number, STRUCT) for number in range(9)},
            ),
            "; ".join(f"'c{number}' struct<x: int64> was added" for number in range(8))
            + "; and 1 more",
            None,
        ),
        (BEFORE, "fields inside columns were dropped, and others of their names added", None),
    ],
)
def test_a_message_names_columns_and_types(now: pa.Schema, by_id: str, by_name: str | None) -> None:
    assert differences(BEFORE, now) == by_id
    if by_name is not None:
        plain = (pa.schema([f.remove_metadata() for f in each]) for each in (BEFORE, now))
        assert differences(*plain) == by_name
