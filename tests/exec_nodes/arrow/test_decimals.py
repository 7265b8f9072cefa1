"""Texts become the decimals that they say, or are refused: Python's decimals are the oracle."""

from __future__ import annotations

import random
from decimal import Context, Decimal, InvalidOperation

import pyarrow as pa
import pytest

from exec_nodes.arrow.decimals import read_decimals
from tests.each import each
from tests.soak import SOAK

_EXACT = Context(prec=1000)
_KINDS = [
    *(pa.decimal128(38, scale) for scale in (0, 10, 38, -2)),
    *(pa.decimal128(5, 2), pa.decimal128(1, 0), pa.decimal128(9, -2)),
    *(pa.decimal256(76, scale) for scale in (0, 30, 76)),
    *(pa.decimal256(40, 3), pa.decimal32(9, 2), pa.decimal64(18, 4)),
]


def _read(text: str, kind: pa.DataType) -> Decimal | None:
    try:
        value: Decimal = read_decimals(pa.array([text, None]), kind)[0].as_py()
    except pa.ArrowInvalid:
        return None
    return value


def _expected(text: str, kind: pa.DataType) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    unscaled = value.scaleb(kind.scale, _EXACT)
    whole = unscaled == unscaled.to_integral_value(context=_EXACT)
    return value if whole and abs(unscaled) < 10**kind.precision else None


def _text(rng: random.Random, kind: pa.DataType) -> str:
    """A number whose digits about fit."""

    def digits(most: int) -> str:
        count = rng.choice([0, 1, 2, max(most, 0), max(most + 1, 0), 38, 39, 77])
        return "".join(rng.choices("0000123456789", k=count))

    zeros = "0" * rng.choice([0, 0, 0, 1, 90])
    part = digits(kind.scale)
    text = rng.choice(["", "", "+", "-"]) + rng.choice(["", zeros])
    text += digits(kind.precision - kind.scale) + ("." + part + rng.choice(["", zeros]))
    text = text.rstrip(".") if rng.random() < 0.8 else text
    exponent = f"{rng.choice('eE')}{rng.choice(['', '+', '-'])}{rng.choice([0, 1, 3, 38, 49])}"
    return text + exponent if rng.random() < 0.3 else text


def test_a_text_is_the_decimal_that_it_says_or_is_refused() -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    taken = 0
    for _ in range(1_500 * SOAK):
        kind = rng.choice(_KINDS)
        text = _text(rng, kind)
        value = _read(text, kind)
        assert value == _expected(text, kind), (seed, kind, text)
        taken += value is not None
    assert taken > 50


@each(
    "text",
    ["", ".", "-", "e5", "1e", "1 ", " 1", "1_0", "NaN", "inf", "0x1", "1e2.5", "\u0661", "--1"],
)
def test_what_is_no_number_is_refused(text: str) -> None:
    for kind in _KINDS:
        with pytest.raises(pa.ArrowInvalid):
            read_decimals(pa.array([text]), kind)


@each("form", [pa.string(), pa.large_string(), pa.string_view()])
def test_all_forms_of_texts_are_read(form: pa.DataType) -> None:
    kind = pa.decimal128(9, 2)
    texts = pa.array(["1.5", None, "2e1", "0" * 90 + "3"], form)
    expected = [Decimal("1.5"), None, Decimal(20), Decimal(3)]
    assert read_decimals(texts, kind).to_pylist() == expected
    chunks = pa.chunked_array([texts, texts[:0], texts])
    assert read_decimals(chunks, kind).to_pylist() == expected * 2
    assert read_decimals(texts[:0], kind).to_pylist() == []
