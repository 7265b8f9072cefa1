"""DataFusion's errors as errors of this package, without prefixes and inner names."""

import re

from exec_nodes.base.brief import shortened
from memwal_sql.arguments import date_remedy
from memwal_sql.errors import MemWalError, UnsupportedError
from memwal_sql.session.errors import original_error
from memwal_sql.statements.queries.places import StatementError, offset_of

# Most characters of a message, which may show whole expressions.
_MOST, _END = 400, 200
# Matches errors for subqueries that DataFusion can't plan, by what its rules and nodes say.
_SUBQUERY = re.compile(
    r"Proto serialization error: |__(?:correlated|scalar)_sq_|ScalarSubqueryExpr"
    r"|logical expression (?:InSubquery|Exists|ScalarSubquery|SetComparison|OuterReference)"
    r"|subquery can only be used in |^single expression required|null_aware anti join"
)
_NOT_RUN = (
    "DataFusion can't run this subquery: write it as a join. As a value, EXISTS may be "
    "(SELECT count(*) FROM u WHERE u.id = t.id) > 0, and x <= ALL (SELECT ...) a comparison with "
    "(SELECT min(u.x) FROM u)"
)
_NOT_IMPLEMENTED = "This feature is not implemented: "
# Prefixes that DataFusion adds to its error messages.
_PREFIXES = re.compile(
    r"^(?:DataFusion error: |(?:type_coercion|resolve_grouping_function|Optimizer rule '\w+' failed"
    r"|Invalid \(non-executable\) plan after Analyzer)\ncaused by\n"
    r"|Error during planning: |Schema error: |Execution error: |Arrow error: |Internal error: "
    r"|Invalid or Unsupported Configuration: "
    r"|Function '\w+' user-defined coercion failed with: )*"
)
_SYNTAX = re.compile(
    r'^SQL error: (?:ParserError|TokenizerError)\("(?P<text>.*?)'
    r'(?: at Line: (?P<line>\d+), Column: (?P<column>\d+))?"\)$',
    re.DOTALL,
)
# DataFusion's words -> plain ones.
_WORDS = {
    r"^Correlated scalar subquery must be .*": "a subquery of one value that names columns of the "
    "query around it needs an aggregate, as in (SELECT max(u.n) FROM u WHERE u.id = t.id)",
    r"^Scalar subquery returned more than one row": "a subquery of one value has several rows: "
    "give it an aggregate, such as max, or LIMIT 1",
    r"^Unsupported LIMIT expression.*": "LIMIT takes a number, or a parameter",
    r"^Unnest should be rewritten .*": "unnest can't stand here: compute it in a subquery, as in "
    "SELECT x FROM (SELECT unnest(items) AS x FROM t)",
    r"^Unsupported ast node (\w+).*": r"DataFusion does not run \1",
    r"Column names are case sensitive\. [^\n]*": "Names without double quotes are in lower case",
    r"(?<=[,:] |.,|y\n)(?:Error during planning|External error): |While expanding wildcard, ": "",
}
_NOT_ALLOWED = re.compile(r"^(?:DDL|DML|Statement) not supported: ")
# Matches errors for an aggregate in an expression that is computed for each row.
_AGGREGATE = re.compile(
    "^Column in SELECT must be in GROUP BY .*memwal row|logical expression (?:Aggregate|Window)",
    re.DOTALL,
)
# Matches parsed nodes in Rust's notation, lists of inner names, and where to report bugs.
_NOISE = re.compile(
    r"(?:: |\()(?:Some\()?\w+ \{ .*|\nValid fields are [^\n]*memwal [^\n]*"
    r"| Did you mean '[^']*memwal [^']*'\?"
    r"|\. See .*|\.?\s+This issue was likely caused by a bug.*",
    re.DOTALL,
)
_EXCLUDED = re.compile(
    r'"memwal given"\."memwal given (?P<quoted>(?:[^"]|"")+)"|memwal given\.memwal given '
)
# Matches names of schemas, tables and columns that exist only while a statement runs.
_INNER = re.compile(
    r'(?:datafusion\.)?"?memwal(?:\$(?:statement|rows)\d+| given| source| row)"?\.?'
    r'|"\?table\?"\.'
)
# Matches errors for decimals with too many digits, as those of a sum.
_DIGITS = re.compile(
    r"^(?:Cast error: Cannot cast to Decimal128\((?P<cast>\d+), .*Overflowing on (?P<number>-?\d+)$"
    r"|Invalid argument error: (?P<value>-?[\d.]+) is too large to store in a Decimal128 of "
    r"precision (?P<most>\d+))"
)
# A sum of decimals, or an average, has at least so many digits where `wide_sums` computes it.
_SUM_DIGITS = 33
_SUM = ". A sum with more is sum(CAST(d AS DECIMAL(66, 2))), with the number of decimal places of d"
_NAME = re.compile(r'^No field named "?([^"]+?)"?\.(?:\s|$)')
_TABLE = re.compile("^table '.*' not found$")
_PARAMETER = re.compile(r"^(?:Placeholder '|No value found for placeholder with name )\$(\w+)")


def error_of(error: Exception, text: str = "") -> MemWalError | None:
    """The error of this package for one raised while a text was planned or run: the error of a
    table, or an InvalidCallError; None if it is neither.

    A StatementError has the place in the text that DataFusion's parser names.
    """
    original = original_error(error)
    if original is not None:
        return original
    # DataFusion raises nothing more specific. A failure behind the FFI is not the caller's fault.
    if type(error) not in (Exception, ValueError) or "FFI error" in str(error):
        return None
    message = _PREFIXES.sub("", str(error))
    if _SUBQUERY.search(message):
        return UnsupportedError(_NOT_RUN)
    if (syntax := _SYNTAX.match(message)) is not None:
        return _syntax_error(syntax, text)
    if _NOT_ALLOWED.match(message):
        return UnsupportedError(f"only a query is allowed here: {message}")
    if _AGGREGATE.search(message):
        return StatementError(
            "an aggregate or window function is not allowed here: compute it in a subquery"
        )
    if (digits := _DIGITS.match(message)) is not None:
        most = digits["cast"] or digits["most"]
        shown = f"{digits['number'] or digits['value']} has more than {most} digits"
        return StatementError(shown + _SUM if int(most) >= _SUM_DIGITS else shown)
    shown = message.removeprefix(_NOT_IMPLEMENTED)
    for pattern, words in _WORDS.items():
        shown = re.sub(pattern, words, shown, flags=re.DOTALL)
    shown = without_insides(_NOISE.sub("", shown))
    shown = shortened(shown, _MOST, _END).replace("\ncaused by\n", ": ").rstrip(".")
    if message.startswith(_NOT_IMPLEMENTED):
        return UnsupportedError(shown)
    return StatementError(shown + date_remedy(shown) + _remedy(message, text))


def without_insides(message: str) -> str:
    """A message without the names of tables and columns that exist only within a statement."""
    message = _EXCLUDED.sub(lambda name: f"excluded.{name['quoted'] or ''}", message)
    return _INNER.sub("", message)


def _remedy(message: str, text: str) -> str:
    if (quoted := _NAME.match(message)) is not None and f'"{quoted[1]}"' in text:
        return f"\nTexts are in single quotes: '{shortened(quoted[1])}'"
    if _TABLE.match(message):
        return (
            "\nmw.register(ctx, name, table) registers a table, and "
            "ctx.register_parquet(name, path) a file"
        )
    if (parameter := _PARAMETER.match(message)) is not None:
        argument = (
            f"**{{'{parameter[1]}': ...}}" if parameter[1].isdecimal() else f"{parameter[1]}=..."
        )
        return f"\nGive it a value, as in mw.sql(ctx, text, {argument})"
    return ""


def _syntax_error(error: re.Match[str], text: str) -> StatementError:
    message = error["text"].replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
    if error["line"] is None:
        return StatementError(message, text, len(text))
    return StatementError(message, text, offset_of(text, int(error["line"]), int(error["column"])))
