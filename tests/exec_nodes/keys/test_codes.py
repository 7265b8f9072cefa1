from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.keys.codes import KeyCodes, concat, repeated_later, superseded
from exec_nodes.keys.keys import key_column, key_values
from tests.each import each
from tests.exec_nodes.kinds import COLUMNS

integers = st.one_of(
    st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(integers, max_size=20), st.lists(integers, max_size=20))
def test_integers_are_found_dense_or_sparse(keys: list[int], others: list[int]) -> None:
    check(pa.array(keys, pa.int64()), pa.array(others, pa.int64()))


@each("kind", COLUMNS)
def test_every_key_type_is_found(kind: str) -> None:
    column = COLUMNS[kind]
    keys = key_column([pa.concat_arrays([column.slice(1), column.slice(1)])])
    check(keys, key_column([column]))
    check(key_column([column, column]).slice(1), key_column([column, column]))


def check(keys: pa.Array, others: pa.Array) -> None:
    numbers = KeyCodes(keys)
    wanted = dict(zip(key_values([keys]), numbers.codes, strict=True))
    assert len(set(wanted.values())) == len(wanted)
    for code, value in zip(numbers.codes, key_values([keys]), strict=True):
        assert wanted[value] == code
        assert code < numbers.size
    rows, codes = numbers.find(concat([others.slice(0, 1), others.slice(1)]))
    found = [(r, wanted[v]) for r, v in enumerate(key_values([others])) if v in wanted]
    assert list(zip(rows.tolist(), codes.tolist(), strict=True)) == found


@given(st.lists(st.integers(0, 5)))
def test_a_row_is_repeated_if_its_key_comes_again(keys: list[int]) -> None:
    expected = [place for place, key in enumerate(keys) if key in keys[place + 1 :]]
    assert repeated_later(pa.array(keys, pa.int64())).tolist() == expected
    assert repeated_later(pa.array([f"{k}" for k in keys], pa.string())).tolist() == expected


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=9), max_size=3))
def test_of_every_code_the_last_row_of_the_first_part_stays_unless_it_is_deleted(
    parts: list[list[tuple[int, bool]]],
) -> None:
    seen = np.zeros(6, np.uint8)
    met: set[int] = set()
    for part in parts:
        codes = np.array([code for code, _ in part], np.int64)
        deleted = np.array([gone for _, gone in part], np.bool_)
        last = {code: row for row, (code, _) in enumerate(part)}
        expected = [r for r, (c, gone) in enumerate(part) if gone or c in met or last[c] != r]
        assert superseded(codes, deleted, seen).tolist() == expected
        met |= set(last)
        assert set(np.flatnonzero(seen).tolist()) == met


def test_sequences_take_a_table_and_scattered_keys_a_hash() -> None:
    assert KeyCodes(pa.array(np.arange(1000))).direct
    assert not KeyCodes(pa.array([0, 2**40])).direct
    assert not KeyCodes(pa.array(["a"])).direct
