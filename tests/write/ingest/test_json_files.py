"""Files of JSON as programs on other systems write them."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        *(("d", pa.date32()), ("b", pa.binary()), ("t", pa.time64("us")), ("s", pa.string())),
        pa.field("f", pa.float64()),
    ]
)


@each("name, text", [("x.jsonl", '{"id": 1}\n{"id": 2}\n'), ("x.json", ' [{"id": 1}, {"id": 2}]')])
def test_a_mark_of_the_order_of_bytes_is_passed_over(
    uri: str, tmp_path: Path, name: str, text: str
) -> None:
    table = mw.create_table(uri, pa.schema([SCHEMA.field("id")]), "id")
    path = tmp_path / name
    with table.writer() as writer:
        for written in (text, text.replace("{", '{"_op": "c", ')):
            path.write_bytes(BOM_UTF8 + written.encode())
            writer.delete(path)
            if "_op" in written:
                writer.apply(path, when="true")
            else:
                writer.upsert(path)
            assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]


REFUSED = {
    "{}": "row 1 is empty: give the columns of the key",
    '{"id": 1, "d": 5}': "column 'd': '5' is not a date32",
    '{"id": 1, "b": "xyz"}': "column 'b' takes texts of hex digits",
    '{"id": 1, "b": 5}': "column 'b' takes texts of hex digits",
    '{"id": 1, "t": "noon"}': "column 't' takes texts of a time of ISO 8601",
    '{"id": 1, "f": 1e400}': "column 'f': 1E\\+400 is not a double: it is too large",
    '{"id": 1, "f": -1e400}': "column 'f': -1E\\+400 is not a double: it is too large",
    '{"id": 1}\n\n{"id": 2': "line 3 column 9: ",
    '{"id": 1}\n{"id": 2, "id": 3}': "line 2: an object has a name twice",
    '{"id": 1}\n"\udcff"': "line 2: .* can't decode byte 0xff",
    '[{"id": 1},\n{"id": 2]': ": line 2 column 9",
    '{"id": 1, "s": "a"}\n{"id": 2}': "row 2 lacks the columns",
    '{"id": 1}\n{"id": 2, "s": "a", "x": 1}': "row 2 has the columns|row 1 lacks the columns",
    '{"id": 1, "d": "' + "x" * 5_000_000 + '"}': "x{20}",
}


@each("text", REFUSED)
def test_what_is_refused_names_the_value_and_the_remedy(
    uri: str, tmp_path: Path, text: str
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    path = tmp_path / "x.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with (
        table.writer() as writer,
        pytest.raises(mw.InvalidCallError, match=REFUSED[text]) as caught,
    ):
        writer.upsert(path)
    assert len(str(caught.value)) < 1_000 + len(str(path))
    assert table.count_rows() == 0


WRONG = {
    "n": ['"x"', "1.5", "true", "[1]", str(2**70)],
    "f": ['"x"', "true", "1e400"],
    "d": ['"x"', "5"],
    "at": ['"x"', "5"],
    "b": ['"zz"', "5"],
    "m": ['"x"', "1.255", "100000"],
    "l": ["3", '["x"]', "[1.5]"],
    "p": ["3", '{"a": "x"}'],
    "s": ["5", "[1]"],
}
KINDS = pa.schema(
    [
        *(pa.field("id", pa.int64(), False), ("n", pa.int64()), ("f", pa.float64())),
        *(("d", pa.date32()), ("at", pa.timestamp("us")), ("b", pa.binary()), ("s", pa.string())),
        *(("m", pa.decimal128(5, 2)), ("l", pa.list_(pa.int64()))),
        ("p", pa.struct({"a": pa.int64()})),
    ]
)


def test_an_error_names_the_row_and_the_column_of_the_value(uri: str, tmp_path: Path) -> None:
    table = mw.create_table(uri, KINDS, "id")
    with table.writer() as writer:
        for name, values in WRONG.items():
            for value in values:
                rows = [f'{{"id": {id_}, "{name}": null}}' for id_ in range(7)]
                rows[4] = f'{{"id": 4, "{name}": {value}}}'
                for path, text in (("x.jsonl", "\n".join(rows)), ("x.json", f"[{','.join(rows)}]")):
                    (tmp_path / path).write_text(text)
                    with pytest.raises(mw.InvalidCallError) as caught:
                        writer.upsert(tmp_path / path, missing="null")
                    message = str(caught.value)
                    assert f"row 5: column '{name}'" in message, (name, value, message)
                    assert "class" not in message
