"""What DataFusion raises, as errors of ours: in words that lead on, without names of the inside."""

import re

from exec_nodes.base.brief import shortened
from memwal_sql.arguments import date_remedy
from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.session.errors import original_error
from memwal_sql.session.front.queries.places import StatementError, WrongName, offset_of

# Characters of what DataFusion says; it may show whole expressions.
_MOST, _END = 400, 200
_NOT_IMPLEMENTED = "This feature is not implemented: "
# What it puts before what it has to say.
_PREFIXES = re.compile(
    r"^(?:DataFusion error: |type_coercion\ncaused by\n|Optimizer rule '\w+' failed\ncaused by\n"
    r"|Error during planning: |Schema error: |Execution error: |Arrow error: "
    r"|Function '\w+' user-defined coercion failed with: )*"
)
_SYNTAX = re.compile(
    r'^SQL error: (?:ParserError|TokenizerError)\("(?P<text>.*?)'
    r'(?: at Line: (?P<line>\d+), Column: (?P<column>\d+))?"\)$',
    re.DOTALL,
)
_FOUND = re.compile(r"^Expected: (.*?),? found: .*$", re.DOTALL)
_NOT_ALLOWED = re.compile(r"^(?:DDL|DML|Statement) not supported: (.*)$", re.DOTALL)
_AGGREGATE = re.compile(r"^Column in SELECT must be in GROUP BY .*memwal row", re.DOTALL)
_OF_SEVERAL_ROWS = re.compile(
    "^Physical plan does not support logical expression (?:Aggregate|Window)Function"
)
# Schemas and names that tables of one statement have for a while.
_SCHEMA = re.compile(r'(?:datafusion\.)?("?)memwal\$statement\d+\1\.')
_EXCLUDED = re.compile(
    r'"memwal given"\."memwal given (?P<quoted>(?:[^"]|"")+)"|memwal given\.memwal given '
)
_QUALIFIER = re.compile(r'"?memwal (?:given|source)"?\.')
_SUGGESTED = re.compile(r" Did you mean '[^']*memwal [^']*'\?")
_FIELDS = re.compile(r"(?<=Valid fields are )(.*)(?=\.$)", re.DOTALL)
_INSIDE = re.compile(r'"?memwal [^".]*"?$')
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_NAMES = (
    (re.compile(r"No field named (.+?)\.(?:\s|$)"), False),
    (re.compile(r"Field (\S+) not found in struct"), False),
    (re.compile(r"Ambiguous reference to unqualified field (\S+)"), False),
    (re.compile(r"[Tt]able '(.+?)' (?:not found|doesn't exist)"), False),
    (re.compile(r"Invalid function '(.+?)'"), True),
)
_IN_VALUES = "ScalarSubqueryExpr evaluated before the subquery was executed"
_IN_VALUE = re.compile(
    r"^Physical plan does not support logical expression (?:Exists|InSubquery)\b"
)
# What was parsed, as Rust shows it.
_OF_RUST = re.compile(r"(?:: |\()(?:Some\()?\w+ \{ .*", re.DOTALL)
# What it says otherwise than its users would, and in its place.
_INSTEAD = (
    (re.compile(r"\ncaused by\n(?:\w+ error: )?"), ": "),
    (re.compile("Invalid or Unsupported Configuration: "), ""),
    (
        re.compile("^Both arrays must have the same length$"),
        "a distance is of two vectors of one length: give as many numbers as the column has",
    ),
    (re.compile(r"^Internal error: (No suitable object store .*?)\. See .*", re.DOTALL), r"\1"),
)
_REMEDIES = (
    (re.compile("^No suitable object store"), "ctx.register_object_store(...) makes it known"),
    (
        re.compile(r"^Config value .* not found on \w+Options"),
        "Options are those of DataFusion's formats, as OPTIONS ('format.delimiter' ';')",
    ),
    (
        re.compile(r"^table '.*(?:/.*|\.(?:parquet|csv|json|arrow|avro))' not found$"),
        (
            "ctx.register_parquet(name, path) makes a file known by a name, and "
            "ctx.enable_url_table() files by their paths"
        ),
    ),
    (
        re.compile(r"^table '.*' not found$"),
        (
            "mw.register(ctx, name, table) makes a table known, in a shell --table name=uri, and "
            "ctx.register_parquet(name, path) a file; SHOW TABLES lists those that are"
        ),
    ),
    (
        re.compile(r"^(?:Placeholder '|No value found for placeholder with name )\$([a-zA-Z_]\w*)"),
        r"Give it one, as in mw.sql(ctx, text, \1=...)",
    ),
    (
        re.compile(r"^(?:Placeholder '|No value found for placeholder with name )\$(\d+)"),
        r"Give it one, as in mw.sql(ctx, text, **{'\1': ...})",
    ),
    (
        re.compile(r"^Placeholder '.*' was not provided a value"),
        "Parameters are written as $name, and given as in mw.sql(ctx, text, name=...)",
    ),
    (
        re.compile(r"^Unable to find factory for"),
        "Formats are those of DataFusion, as PARQUET, CSV and JSON, and MEMWAL for tables",
    ),
    (
        re.compile("^Schema contains duplicate qualified field name"),
        "Tables of a statement need names of their own: AS gives another one",
    ),
    (re.compile(r'^No field named "([^"]*)"\.'), r"Texts are in single quotes: '\1'"),
    (
        re.compile(
            r"^(?:array_distance|l2_distance|cosine_distance|inner_product) does not support"
        ),
        "A vector is a list of numbers, as [0.5, 1], or a parameter that is one",
    ),
)


def error_of(error: Exception, text: str = "") -> MemWalError | None:
    """The error of ours for what was raised while a text was planned or run: that of a table of
    ours, or one of the call; None for what is neither.

    A StatementError has the place or the name in the text that DataFusion says.
    """
    original = original_error(error)
    if original is not None:
        return original
    # DataFusion raises nothing more specific; a failure behind the boundary is no fault of a call.
    if type(error) not in (Exception, ValueError) or "FFI error" in str(error):
        return None
    message = _PREFIXES.sub("", str(error))
    if (syntax := _SYNTAX.match(message)) is not None:
        return _syntax_error(syntax, text)
    if (kind := _NOT_ALLOWED.match(message)) is not None:
        return UnsupportedError(f"only a query can stand here, and this is more: {kind[1]}")
    if _AGGREGATE.match(message):
        return StatementError(
            "no aggregate can stand here: there is a row for each that is changed"
        )
    if _OF_SEVERAL_ROWS.match(message.removeprefix(_NOT_IMPLEMENTED)):
        return StatementError(
            "no aggregate or window function can stand here: compute it in a subquery"
        )
    if message.startswith(_NOT_IMPLEMENTED):
        message = _OF_RUST.sub("", message.removeprefix(_NOT_IMPLEMENTED))
        if _IN_VALUE.match(message):
            return UnsupportedError(
                "DataFusion runs EXISTS and IN of a subquery in conditions alone: as a value write "
                "(SELECT count(*) > 0 FROM ...)"
            )
        return UnsupportedError(without_insides(message))
    if _IN_VALUES in message:
        return UnsupportedError(
            "DataFusion runs no subquery within VALUES of a query: write SELECT ... UNION ALL "
            "SELECT ... instead"
        )
    message = without_insides(message)
    for pattern, words in _INSTEAD:
        message = pattern.sub(words, message)
    name = _wrong_name(message)
    message = shortened(message, _MOST, _END) + date_remedy(message)
    if name is not None and message.startswith("No field named") and f'"{name.parts[0]}"' in text:
        message += f"\nTexts are in single quotes: '{name.parts[0]}'"
    for pattern, remedy in _REMEDIES:
        if (found := pattern.search(message)) is not None:
            message += "\n" + found.expand(remedy)
            break
    first, newline, rest = message.partition("\n")
    return StatementError(f"{first.rstrip('.')}{newline}{rest}", name=name)


def without_insides(message: str) -> str:
    """A message without the names that tables and columns have within a statement alone."""
    message = _EXCLUDED.sub(lambda found: f"excluded.{found['quoted'] or ''}", message)
    message = _SUGGESTED.sub("", _QUALIFIER.sub("", _SCHEMA.sub("", message)))
    return _FIELDS.sub(_shown, message)


def _shown(fields: re.Match[str]) -> str:
    return ", ".join(one for one in fields[1].split(", ") if not _INSIDE.search(one))


def _syntax_error(found: re.Match[str], text: str) -> InvalidCallError:
    message = found["text"].replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    message = _FOUND.sub(r"this can't be read: \1 is expected", message)
    if found["line"] is not None:
        at = offset_of(text, int(found["line"]), int(found["column"]))
    else:
        at = len(text)
    return StatementError(message, text, at)


def _wrong_name(message: str) -> WrongName | None:
    for pattern, is_function in _NAMES:
        if (found := pattern.search(message)) is not None:
            parts = [
                plain or quoted.replace('""', '"') for quoted, plain in _PART.findall(found[1])
            ]
            return WrongName(tuple(parts), is_function)
    return None
