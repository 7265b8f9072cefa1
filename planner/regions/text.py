"""Region specs as text, the same for Python, the command line and Spark.

A text is `manual`, or calls of the functions of `factories` with commas between, written as in
Python: `bucket(id, 16), year(at, name=since)`. Names that are words of Python need no quotes; in
single and double quotes a backslash escapes quotes and itself, in back quotes nothing. The columns
of `multi_bucket(a, b, 8)` may do without brackets.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

from exec_nodes.base.errors import InvalidCallError
from planner.regions import factories
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec

Regions = str | RegionSpec | RegionField | Sequence[RegionField]
"""The forms of regions that users give."""

_DATE_PARTS = (factories.year, factories.month, factories.day, factories.hour)
_BUCKETS = (factories.bucket, factories.lance_bucket, factories.multi_bucket)
_OTHERS = (factories.identity, factories.truncate, factories.expression, factories.unsharded)
_FUNCTIONS: dict[str, Callable[..., RegionField]] = {
    function.__name__: function for function in (*_DATE_PARTS, *_BUCKETS, *_OTHERS)
}
_NUMBERS = ("num_buckets", "width")
_MANUAL = re.compile(r"\s*manual\s*(\(\s*\)\s*)?", re.IGNORECASE)
_QUOTED = re.compile(r"""(?s:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|`([^`]*)`)""")
_ESCAPED = re.compile(r"""\\(['"\\])""")
_PLACE = re.compile(r"'[0-9]+'")
_Value: TypeAlias = str | list[str]


def spec_of(regions: Regions, spec_id: int) -> RegionSpec:
    """The spec for the `regions` argument of `create_table` and `enable`: a text, a field, a list
    of fields, or what `manual()` returned (which keeps its id 0)."""
    if isinstance(regions, str):
        if _MANUAL.fullmatch(regions):
            return factories.manual()
        regions = _fields_of(regions)
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
    """The text from which `spec_of` makes the same spec, as far as that does not need a schema.

    A column that is gone is printed as `?`, and a transform that is not known by its name.
    """
    return ", ".join(map(_field_text, spec.fields)) or "manual"


def _fields_of(text: str) -> list[RegionField]:
    """The fields of a text, which Python parses with a number in place of each quoted name."""
    quoted: list[str] = []

    def keep(match: re.Match[str]) -> str:
        plain = match[3] is not None
        quoted.append(match[3] if plain else _ESCAPED.sub(r"\1", match[match.lastindex or 0]))
        return f"'{len(quoted) - 1}'"

    source = f"[{_QUOTED.sub(keep, text)}]"
    try:
        body = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, f"{error}; quote names that are not words of Python") from None
    if not isinstance(body, ast.List) or not body.elts:
        raise _refused(text, "a function is missing")
    return [_field(text, source, node, quoted) for node in body.elts]


def _field(text: str, source: str, node: ast.expr, quoted: list[str]) -> RegionField:
    def value(node: ast.expr) -> _Value:
        if isinstance(node, ast.List | ast.Tuple):
            return [str(value(inner)) for inner in node.elts]
        word = ast.get_source_segment(source, node) or ""
        if _PLACE.fullmatch(word):
            return quoted[int(word[1:-1])]
        if "'" in word:
            raise _refused(text, "a comma is missing, or the quotes of a whole name")
        return word

    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    name = call.func.id.lower() if isinstance(call.func, ast.Name) else ""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise _refused(text, f"unknown function {name or ast.unparse(call.func)!r}")
    arguments = [value(argument) for argument in call.args]
    named = {str(keyword.arg): value(keyword.value) for keyword in call.keywords}
    if function is factories.multi_bucket and arguments and isinstance(arguments[0], str):
        columns = len(arguments) if "num_buckets" in named else len(arguments) - 1
        arguments = [[str(column) for column in arguments[:columns]], *arguments[columns:]]
    try:
        bound = inspect.signature(function).bind(*arguments, **named)
        for parameter, argument in bound.arguments.items():
            bound.arguments[parameter] = _argument(function, parameter, argument)
        return function(*bound.args, **bound.kwargs)
    except (TypeError, InvalidCallError) as error:
        raise _refused(text, f"{name}: {error}") from None


def _refused(text: str, reason: str) -> InvalidCallError:
    return InvalidCallError(
        f"regions={text!r}: {reason}. Write functions of key columns, separated by commas: "
        "bucket(id, 8), lance_bucket(id, 8), multi_bucket(a, b, 8), truncate(name, 3), "
        "identity(country), year(ts), month(ts), day(ts), hour(ts), expression('col0 % 10', id), "
        "unsharded(); or manual"
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
    elif not all(
        isinstance(part, str) for part in (value if isinstance(value, tuple) else [value])
    ):
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
    with suppress(InvalidCallError):  # storage may have unknown transforms
        if _fields_of(text)[0].field_id == field.field_id:
            return text
    return f"{function}({', '.join([*arguments, f'name={_quoted(field.field_id)}'])})"


def _quoted(word: str) -> str:
    if word.isidentifier() and not keyword.iskeyword(word):
        return word
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
