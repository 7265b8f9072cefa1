"""Decimals from texts.

Arrow's own conversion of a text to a decimal does not check that the digits and the exponent fit
into the type's bytes. So it is given digits that fit, and no exponent.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = pa.Array | pa.ChunkedArray

# Bits of a decimal -> the digits that fit whatever they are.
_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
_SHOWN = 80


def read_decimals(texts: Column, kind: pa.DataType) -> Column:
    """Texts such as `-12.50` and `1.25e1` as decimals of a type.

    Raises ArrowInvalid for a text that is not a number, and for a number that is not one of the
    type: it has more digits before the point than fit, or others than zeros beyond the last place.
    """
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([read_decimals(chunk, kind) for chunk in texts.chunks], kind)
    if kind.scale < 0:
        return pc.cast(read_decimals(texts, pa.decimal256(76, 0)), kind)
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        texts = pc.cast(texts, pa.large_string())
    exponents = pc.match_substring(texts, "e", ignore_case=True)
    if pc.any(exponents).as_py():
        plain = [_plain(text, kind) for text in texts.filter(exponents).to_pylist()]
        texts = pc.replace_with_mask(
            texts, pc.fill_null(exponents, False), pa.array(plain, texts.type)
        )
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest + kind.scale > _DIGITS[kind.bit_width]:
        whole, part = kind.precision - kind.scale, kind.scale
        fitting = rf"^([+-]?)0*([0-9]{{0,{whole}}})(?:\.([0-9]{{0,{part}}})0*)?$"
        numbers = pc.and_(
            pc.match_substring_regex(texts, fitting), pc.match_substring_regex(texts, "[0-9]")
        )
        if not pc.all(numbers).as_py():
            raise _wrong(texts.filter(pc.invert(numbers))[0].as_py(), kind)
        texts = pc.replace_substring_regex(texts, fitting, r"\10\2.\3")
    return pc.cast(texts, kind)


def _plain(text: str, kind: pa.DataType) -> str:
    """A text with an exponent, written without it."""
    if not text.isascii() or "_" in text or text != text.strip():
        raise _wrong(text, kind)  # Python takes these, Arrow does not
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _wrong(text, kind) from None
    if value.is_zero():
        return "0"
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    last = value.adjusted() + 1 - len(digits)  # the place of the last digit that is not zero
    if value.adjusted() >= kind.precision - kind.scale or last < -kind.scale:
        raise _wrong(text, kind)
    return format(value, "f")


def _wrong(text: str, kind: pa.DataType) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"{text[:_SHOWN]!r} is not a {kind}")
