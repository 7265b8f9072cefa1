"""Region specs as text, the same for Python, the command line and Spark.

    regions  = "manual" | field { "," field }
    field    = function [ "(" [ argument { "," argument } [","] ] ")" ]
    argument = [ parameter "=" ] ( word | "[" words "]" | "(" words ")" )
    word     = text in single, double or back quotes, or what stands between commas and brackets

Functions and parameters are those of `factories`: `bucket(id, 16), year(at, name=since)`. The
columns of `multi_bucket(a, b, 8)` may do without brackets. Within quotes a backslash escapes quotes
and itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from exec_nodes.base.errors import InvalidCallError
from planner.regions import factories
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec

Regions = str | RegionSpec | RegionField | Sequence[RegionField]
"""What users give for regions."""

_DATE_PARTS = (factories.year, factories.month, factories.day, factories.hour)
_BUCKETS = (factories.bucket, factories.lance_bucket, factories.multi_bucket)
_OTHERS = (factories.identity, factories.truncate, factories.expression, factories.unsharded)
_FUNCTIONS: dict[str, Callable[..., RegionField]] = {
    function.__name__: function for function in (*_DATE_PARTS, *_BUCKETS, *_OTHERS)
}
_NUMBERS = ("num_buckets", "width")
_MANUAL = re.compile(r"\s*manual\s*(\(\s*\)\s*)?", re.IGNORECASE)
_FUNCTION = re.compile(r"\s*([A-Za-z_]+)\s*")
_PARAMETER = re.compile(r"([a-z_]+)\s*=\s*")
_QUOTED = re.compile(r"""(?s:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|`([^`]*)`)""")
_WORD = re.compile(r"[^,()]+")
_WORD_IN_LIST = re.compile(r"[^,()\[\]]+")
_ESCAPED = re.compile(r"""\\(['"\\])""")


def spec_of(regions: Regions, spec_id: int) -> RegionSpec:
    """The spec for the `regions` argument of `create_table` and `enable`: a text, a field, a list
    of fields, or what `manual()` returned (which keeps its id 0)."""
    if isinstance(regions, str):
        if _MANUAL.fullmatch(regions):
            return factories.manual()
        regions = _Parser(regions).fields()
    if isinstance(regions, RegionSpec):
        return regions
    if isinstance(regions, RegionField):
        return RegionSpec(spec_id, (regions,))
    fields = tuple(regions) if isinstance(regions, Iterable) else (regions,)
    wrong = [f for f in fields if not isinstance(f, RegionField)]
    if wrong or not fields:
        raise InvalidCallError(
            f"regions={regions!r} is not a list of region fields; "
            "use for instance [bucket('id', 16)], 'bucket(id, 16)' or manual()"
        )
    return RegionSpec(spec_id, fields)


def text_of(spec: RegionSpec) -> str:
    """The text of which `spec_of` makes the same spec, as far as a schema has no part in it.

    A column that is gone is printed as `?`, and a transform that is not known by its name.
    """
    return ", ".join(map(_field_text, spec.fields)) or "manual"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fields(self) -> list[RegionField]:
        fields = [self._field()]
        while self._sign(","):
            fields.append(self._field())
        if self._at < len(self._text):
            raise self._refused(self._at, "a comma or the end is missing")
        return fields

    def _field(self) -> RegionField:
        self._skip_space()
        start = self._at
        call = _FUNCTION.match(self._text, self._at)
        function = None if call is None else _FUNCTIONS.get(call[1].lower())
        if call is None or function is None:
            there = start < len(self._text)
            raise self._refused(start, "there is no such function" if there else "one is missing")
        self._at = call.end()
        given: list[str | list[str]] = []
        named: dict[str, str | list[str]] = {}
        parameters = inspect.signature(function).parameters
        if self._sign("("):
            while not self._sign(")"):
                parameter = _PARAMETER.match(self._text, self._at)
                if parameter is not None:
                    if parameter[1] not in parameters:
                        has = f"{call[1].lower()} has the parameters {', '.join(parameters)}"
                        raise self._refused(self._at, f"{has}; quote the name of a column")
                    self._at = parameter.end()
                    named[parameter[1]] = self._value()
                elif named:
                    raise self._refused(self._at, "it must be named, as those before it are")
                else:
                    given.append(self._value())
                self._end_of_item(")")
        if function is factories.multi_bucket and given and isinstance(given[0], str):
            columns = len(given) if "num_buckets" in named else len(given) - 1
            given = [[str(one) for one in given[:columns]], *given[columns:]]
        try:
            bound = inspect.signature(function).bind(*given, **named)
            for name, value in bound.arguments.items():
                bound.arguments[name] = _argument(function, name, value)
            return function(*bound.args, **bound.kwargs)
        except (TypeError, InvalidCallError) as error:
            raise self._refused(start, str(error)) from None

    def _value(self) -> str | list[str]:
        for opening, closing in ("[]", "()"):
            if self._sign(opening):
                words = []
                while not self._sign(closing):
                    words.append(self._word(_WORD_IN_LIST))
                    self._end_of_item(closing)
                return words
        return self._word(_WORD)

    def _word(self, unquoted: re.Pattern[str]) -> str:
        quoted = _QUOTED.match(self._text, self._at)
        if quoted is not None:
            self._at = quoted.end()
            text = quoted[quoted.lastindex or 0]
            return text if quoted[3] is not None else _ESCAPED.sub(r"\1", text)
        word = unquoted.match(self._text, self._at)
        if word is None or word[0][0] in "'\"`":
            reason = "an argument is missing" if word is None else "a quote is not closed"
            raise self._refused(self._at, reason)
        self._at = word.end()
        return word[0].strip()

    def _end_of_item(self, closing: str) -> None:
        """Go on behind a comma, or up to the closing bracket."""
        if not self._sign(",") and self._text[self._at : self._at + 1] != closing:
            raise self._refused(self._at, f"a comma or {closing!r} is missing")

    def _sign(self, sign: str) -> bool:
        """Go on behind `sign`, and the spaces around it, if it is next."""
        self._skip_space()
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        self._skip_space()
        return True

    def _skip_space(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _refused(self, at: int, reason: str) -> InvalidCallError:
        rest = self._text[at:].strip()
        place = f"{rest[:40]!r} at character {at + 1}" if rest else "at the end"
        return InvalidCallError(
            f"regions={self._text!r}: {place}: {reason}. Write functions of key columns, separated "
            "by commas: bucket(id, 8), lance_bucket(id, 8), multi_bucket(a, b, 8), "
            "truncate(name, 3), identity(country), year(ts), month(ts), day(ts), hour(ts), "
            "expression('col0 % 10', id), unsharded(); or manual"
        )


def _argument(function: Callable[..., RegionField], name: str, value: object) -> object:
    """A value of a parameter, of its type where the text can be read as that."""
    if name in _NUMBERS and isinstance(value, str):
        for base in (10, 0):
            try:
                return int(value, base)
            except ValueError:
                continue
    elif name == "columns" and function is factories.multi_bucket:
        return [value] if isinstance(value, str) else value
    elif not all(isinstance(one, str) for one in (value if isinstance(value, tuple) else [value])):
        raise InvalidCallError(f"{name}={value!r} is a list")
    return value


def _field_text(field: RegionField) -> str:
    columns = ["?" if name is None else _quoted(name) for name in field.source_columns]
    if field.expression is not None:
        function, arguments = "expression", [_quoted(field.expression), *columns]
        if field.result_type:
            arguments.append(f"result_type={_quoted(field.result_type)}")
    else:
        function = str(field.transform)
        numbers = (field.parameters.get(name) for name in _NUMBERS)
        arguments = [*columns, *filter(None, numbers)]
        if field.native and function == "bucket":
            function = "lance_bucket"
    text = f"{function}({', '.join(arguments)})"
    with suppress(InvalidCallError):  # where storage has what is not known
        if _Parser(text).fields()[0].field_id == field.field_id:
            return text
    return f"{function}({', '.join([*arguments, f'name={_quoted(field.field_id)}'])})"


def _quoted(word: str) -> str:
    if word.isidentifier():
        return word
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
