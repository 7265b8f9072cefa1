"""Region specs as text: one grammar, printed and parsed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memwal_sql as mw
from exec_nodes.base.errors import InvalidCallError
from planner.regions.check import validate
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from planner.regions.text import spec_of, text_of
from tests.cli.calls import call
from tests.each import each

WORDS = st.text(max_size=12) | st.text("aZ_9 ,()[]'\"`\\=.-", max_size=12)
NAMES = st.none() | WORDS.filter(bool)
NUMBERS = st.integers(1, 2**31 - 1)
COLUMNS = st.lists(WORDS, min_size=1, max_size=3)
FIELDS = st.one_of(
    *(
        st.builds(one, WORDS.filter(bool), name=NAMES)
        for one in (mw.identity, mw.year, mw.month, mw.day, mw.hour)
    ),
    *(st.builds(one, WORDS, NUMBERS, NAMES) for one in (mw.bucket, mw.lance_bucket, mw.truncate)),
    st.builds(mw.multi_bucket, COLUMNS, NUMBERS, NAMES),
    st.builds(
        lambda sql, columns, kind, name: mw.expression(sql, *columns, result_type=kind, name=name),
        WORDS.filter(bool),
        COLUMNS,
        st.sampled_from(["", "int32", "utf8"]),
        NAMES,
    ),
    st.builds(mw.unsharded, NAMES),
)


@given(fields=st.lists(FIELDS, min_size=1, max_size=4, unique_by=lambda field: field.field_id))
def test_a_spec_that_is_printed_parses_to_itself(fields: list[RegionField]) -> None:
    spec = RegionSpec(1, tuple(fields))
    assert spec_of(text_of(spec), 1) == spec


def test_a_spec_that_was_checked_against_a_table_prints_what_was_asked_for() -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us"), "the name": pa.string()})
    text = (
        "bucket(id, 16), year(at), truncate('the name', 2), lance_bucket(id, 4, name=theirs), "
        "multi_bucket(id, at, 8), expression('col0 % 10', id, result_type=int64)"
    )
    spec = validate(spec_of(text, 1), schema, schema.names)
    assert text_of(spec) == text
    assert validate(spec_of(text_of(spec), 1), schema, schema.names) == spec
    assert text_of(spec_of("manual", 1)) == "manual"


def test_what_storage_may_have_prints_too() -> None:
    gone = RegionField("old_bucket", (None,), transform="bucket", parameters={"num_buckets": "8"})
    unknown = RegionField("r", ("id",), transform="range")
    damaged = RegionField("b", ("id",), transform="bucket")
    assert text_of(RegionSpec(1, (gone, unknown, damaged))) == (
        "bucket(?, 8, name=old_bucket), range(id, name=r), bucket(id, name=b)"
    )


SPELLINGS = {
    # As options of Spark have always been written,
    "bucket(id, 16)": mw.bucket("id", 16),
    " Bucket ( `id`,16 ) ": mw.bucket("id", 16),
    "bucket('id', '016')": mw.bucket("id", 16),
    "multi_bucket(a, 2020, 16)": mw.multi_bucket(["a", "2020"], 16),
    "multi_bucket(a, 16)": mw.multi_bucket(["a"], 16),
    "identity(`my col`)": mw.identity("my col"),
    "identity(a[0])": mw.identity("a[0]"),
    "identity('class')": mw.identity("class"),
    r"identity('a\b')": mw.identity(r"a\b"),
    "unsharded()": mw.unsharded(),
    # and on the command line.
    "unsharded": mw.unsharded(),
    "bucket(column=id, num_buckets=0x10)": mw.bucket("id", 16),
    "bucket(id, 1_000, mine)": mw.bucket("id", 1000, "mine"),
    "bucket('id', 16, name='mine')": mw.bucket("id", 16, "mine"),
    "multi_bucket(['a', b], 16,)": mw.multi_bucket(["a", "b"], 16),
    "multi_bucket((a, 'b, c',), num_buckets=16)": mw.multi_bucket(["a", "b, c"], 16),
    "multi_bucket(columns=[a], num_buckets=16, name=m)": mw.multi_bucket(["a"], 16, "m"),
    "expression('col0 + col1', x, y, result_type='int32')": mw.expression(
        "col0 + col1", "x", "y", result_type="int32"
    ),
    "expression(\"col0 || 'x'\", x)": mw.expression("col0 || 'x'", "x"),
    r"expression('col0 || \'x\'', x, name = n)": mw.expression("col0 || 'x'", "x", name="n"),
}


@each("text", SPELLINGS)
def test_a_spelling_is_understood(text: str) -> None:
    assert spec_of(text, 1) == RegionSpec(1, (SPELLINGS[text],))


@pytest.mark.parametrize("text", ["manual", " MANUAL ", "manual()"])
def test_regions_given_by_hand_have_a_text(text: str) -> None:
    assert spec_of(text, 1) == mw.manual()


@each(
    "text, reason",
    [
        ("", "a function is missing"),
        ("bucket(id, 8), , ", "invalid syntax"),
        ("bucket(id", "does not match"),
        ("year(a), bucket(id)", "bucket: missing a required argument: 'num_buckets'"),
        ("year(a), nothing(id)", "unknown function 'nothing'"),
        ("manual, year(a)", "unknown function 'manual'"),
        ("bucket(id, 0)", "num_buckets=0 must be an integer from 1 to"),
        ("bucket(id, x)", "num_buckets='x' must be an integer from 1 to"),
        ("bucket([id], 8)", "column=['id'] is a list"),
        ("bucket('id, 8)", "unterminated string"),
        ("bucket('id' 'x', 8)", "a comma is missing"),
        ("identity(a['x'])", "the quotes of a whole name"),
        ("bucket(my id, 8)", "quote names that are not words of Python"),
        ("bucket(class, 8)", "quote names that are not words of Python"),
        ("bucket(id, 8) year(d)", "invalid syntax"),
        ("bucket(id, 8)], [year(d)", "a function is missing"),
        ("bucket(num_buckets=8, id)", "positional argument follows keyword argument"),
        ("bucket(id, 8, nam=x)", "unexpected keyword argument 'nam'"),
        ("multi_bucket(8)", "multi_bucket needs a list of columns"),
        ("year(a, b, c)", "too many positional arguments"),
    ],
)
def test_what_is_no_spec_is_an_error_with_text_and_remedy(text: str, reason: str) -> None:
    with pytest.raises(InvalidCallError) as raised:
        spec_of(text, 1)
    message = str(raised.value)
    assert message.startswith(f"regions={text!r}: ")
    assert reason in message
    assert "Write functions of key columns, separated by commas: bucket(id, 8)" in message


def test_what_is_neither_text_nor_fields_is_refused() -> None:
    with pytest.raises(InvalidCallError, match="regions=5 is not a list of region fields"):
        spec_of(5, 1)  # type: ignore[arg-type]


@given(text=st.text() | st.text("bucketyar(id,8)='[]\"` "))
def test_any_other_text_is_refused_as_a_bad_call(text: str) -> None:
    try:
        spec = spec_of(text, 1)
    except InvalidCallError:
        return
    assert spec_of(text_of(spec), 1) == spec


def test_a_table_by_python_and_one_by_the_command_line_have_the_same_regions(
    tmp_path: Path,
) -> None:
    text = "bucket(id, 4), truncate(name, 2, name=initials)"
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    by_python = mw.create_table(tmp_path / "python", schema, ["id", "name"], text)
    (tmp_path / "rows.csv").write_text("id,name\n1,anna\n")
    keys = ("--primary-key", "id", "--primary-key", "name")
    load = ("load", str(tmp_path / "cli"), str(tmp_path / "rows.csv"), *keys)
    call(*load, "--region-by", "bucket(id, 4)", "--region-by", "truncate(name, 2, name=initials)")
    by_command = mw.open_table(tmp_path / "cli")
    by_fields = mw.create_table(
        tmp_path / "fields",
        schema,
        ["id", "name"],
        [mw.bucket("id", 4), mw.truncate("name", 2, name="initials")],
    )
    for table in (by_python, by_command):
        assert table.info.region_specs == by_fields.info.region_specs
        assert table.overview().region_specs == (text,)
