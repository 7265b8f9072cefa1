"""Region expressions: DataFusion SQL over `col0`, `col1`, ... (specification 1, "Region
Expression"): what may be in one, and its evaluation."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from exec_nodes.arrow.arrays import flat
from exec_nodes.base.brief import shortened
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.threads import in_thread
from planner.regions.hashing.murmur3 import murmur3, murmur3_multi

if TYPE_CHECKING:
    import datafusion

# Functions of their arguments alone that can't turn a few characters into gigabytes, as an
# expression is read from the table. All others are refused, so that neither now() nor a function of
# a later DataFusion can become part of the routing.
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
    abs ascii bit_length btrim ceil char_length character_length chr coalesce concat contains
    date_bin date_part date_trunc decode encode ends_with extract floor gcd greatest initcap instr
    lcm least left length lower ltrim md5 mod murmur3 murmur3_multi nullif nvl octet_length
    overlay position power regexp_replace replace reverse right round rtrim sha224
    sha256 sha384 sha512 signum split_part starts_with strpos substr substr_index substring to_hex
    translate trim trunc upper
    """,
    )
)
_SYNTAX = frozenset(
    re.findall(
        r"\w+",
        """
    and as between both case cast distinct else end escape false for from ilike in interval is
    leading like not null or placing similar then to trailing true try_cast when
    bigint binary boolean bytea char character date decimal double float int integer numeric
    precision real smallint string text time timestamp tinyint unsigned varchar varying
    century day decade doy dow epoch hour minute month quarter second week year
    """,
    )
)
_COLUMN = re.compile(r"col(0|[1-9]\d*)", re.IGNORECASE)
_BUCKET = re.compile(
    r"\s*abs\s*\(\s*(murmur3|murmur3_multi)\s*\(([\s\w,]+)\)\s*\)\s*%\s*(\d+)\s*", re.IGNORECASE
)
# An expression is read from the table, and code that parses, plans or drops it is recursive.
_MOST_CHARACTERS = 4096
_MOST_TOKENS = 256
_CALLS = frozenset(("murmur3", "murmur3_multi"))

_names = itertools.count()

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>[xX]?'(?:[^']|'')*')
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<sign>::|<>|<=|>=|!=|\|\||<<|>>|!~|-(?!-)|/(?!\*)|[+*%(),=<>~&|^])
    )""",
    re.VERBOSE,
)


def bucket_expression(num_buckets: int) -> str:
    """`bucket` as stored: native code refuses an expression instead of misrouting by its own bucket
    function (protocol rule 12)."""
    return f"abs(murmur3(col0)) % {num_buckets}"


def multi_bucket_expression(columns: int, num_buckets: int) -> str:
    """`multi_bucket` over this many columns as stored."""
    names = ", ".join(f"col{i}" for i in range(columns))
    return f"abs(murmur3_multi({names})) % {num_buckets}"


def known_bucket(sql: str, columns: int) -> tuple[str, int] | None:
    """`("bucket", n)` or `("multi_bucket", n)` if `sql` is what the functions above wrote for so
    many source columns, so that the vectorised hash can take over; None otherwise."""
    match = _BUCKET.fullmatch(sql)
    if match is None or not 0 < int(match[3]) < 2**31:
        return None
    names = [part.strip().lower() for part in match[2].split(",")]
    if names != [f"col{i}" for i in range(columns)]:
        return None
    multi = match[1].lower() == "murmur3_multi"
    if not multi and columns != 1:
        return None
    return "multi_bucket" if multi else "bucket", int(match[3])


def check_size(sql: str) -> None:
    """Raise InvalidCallError for an expression that is too long to be looked at."""
    if len(sql) > _MOST_CHARACTERS:
        raise InvalidCallError(
            f"a region expression has {_MOST_CHARACTERS} characters at most, not {len(sql)}: "
            f"{sql[:60]!r}..."
        )
    tokens = sum(1 for _ in _TOKEN.finditer(sql))
    if tokens > _MOST_TOKENS:
        raise InvalidCallError(
            f"a region expression has {_MOST_TOKENS} words, numbers and operators at most, not "
            f"{tokens}: {sql[:60]!r}..."
        )


def check_expression(sql: str, columns: int) -> None:
    """Raise for anything but one deterministic, stateless scalar expression over `col0`...`colN`.

    Raises InvalidCallError naming the word that is not allowed.
    """
    tokens = tokens_of(sql)
    if not tokens:
        raise InvalidCallError("a region expression must not be empty")
    for token, after in itertools.pairwise([*tokens, None]):
        if token is not None:
            _check_token(token, after, sql, columns)


def _check_token(token: Token, after: Token | None, sql: str, columns: int) -> None:
    if token.kind != "word":
        return
    text = token.text.lower()
    if match := _COLUMN.fullmatch(text):
        if int(match[1]) < columns:
            return
        raise InvalidCallError(
            f"region expression {sql!r} refers to {text}, but has {columns} source columns"
        )
    called = after is not None and after.text == "("
    if text in _SYNTAX or (called and text in _FUNCTIONS):
        return
    raise InvalidCallError(
        f"region expression {sql!r}: {token.text!r} is neither a source column (col0, col1, ...) "
        "nor a function known to be deterministic and stateless"
    )


def evaluate_expression(
    sql: str, columns: Sequence[pa.Array], declared: pa.DataType | None
) -> pa.Array:
    """The value of `sql` for every row of `columns` (named `col0`, `col1`, ...), in row order.

    An integer result is cast to a declared integer type of another width (an error if a value
    does not fit), a string to another string type; any other difference from `declared` is an
    error.
    """
    check_expression(sql, len(columns))
    inputs = {f"col{i}": flat(column) for i, column in enumerate(columns)}
    result = _plain(_evaluate(sql, inputs))
    if declared is None or result.type == declared:
        return result
    if pa.types.is_null(result.type) or _same_kind(result.type, declared):
        try:
            return result.cast(declared)
        except pa.ArrowInvalid as error:
            raise InvalidCallError(
                f"region expression {sql!r} gives a value beyond its result type: {error}"
            ) from error
    raise InvalidCallError(
        f"region expression {sql!r} gives {result.type}, but its result type is {declared}; "
        "declare the type that comes out, or cast in the expression"
    )


def _evaluate(sql: str, inputs: dict[str, pa.Array]) -> pa.Array:
    """Evaluates the hash functions here, over columns of any type, and the rest in DataFusion.

    The hashes enter as int64, so that abs() of the lowest one does not overflow.
    """
    inputs = dict(inputs)
    while (call := _first_hash_call(sql)) is not None:
        name, start, end, arguments = call
        columns = [_plain(_evaluate(argument, inputs)) for argument in arguments]
        if name == "murmur3" and len(columns) != 1:
            raise InvalidCallError(f"murmur3 takes one argument, got {len(columns)} in {sql!r}")
        hashes = murmur3(columns[0]) if name == "murmur3" else murmur3_multi(columns)
        placeholder = f"hash{len(inputs)}"
        inputs[placeholder] = hashes.cast(pa.int64())
        sql = f"{sql[:start]}{placeholder}{sql[end:]}"
    if sql.strip() in inputs:
        return inputs[sql.strip()]
    return _run(sql, inputs)


def _first_hash_call(sql: str) -> tuple[str, int, int, list[str]] | None:
    """Name, start, end and argument texts of the first call of a hash function in `sql`."""
    tokens = tokens_of(sql)
    for at, token in enumerate(tokens[:-1]):
        if token.text.lower() not in _CALLS or tokens[at + 1].text != "(":
            continue
        depth, cuts = 0, [tokens[at + 1].start]
        for inner in tokens[at + 1 :]:
            depth += (inner.text == "(") - (inner.text == ")")
            if depth == 0 or (depth == 1 and inner.text == ","):
                cuts.append(inner.start)
            if depth == 0:
                arguments = [sql[a + 1 : b] for a, b in itertools.pairwise(cuts)]
                return token.text.lower(), token.start, inner.end, arguments
        raise InvalidCallError(f"region expression {sql!r} misses a closing parenthesis")
    return None


def _run(sql: str, inputs: dict[str, pa.Array]) -> pa.Array:
    # In a thread of our own: pruning is asked for by threads of DataFusion's runtime, where its
    # Python package panics as soon as it has to wait for something.
    return in_thread(partial(_run_here, sql, inputs))


def _run_here(sql: str, inputs: dict[str, pa.Array]) -> pa.Array:
    context = _context(os.getpid())
    name = f"rows_{next(_names)}"
    batch = pa.record_batch(list(inputs.values()), names=list(inputs))
    try:
        context.register_record_batches(name, [[batch]])
        try:
            frame = context.table(name)
            value = frame.select(frame.parse_sql_expr(sql).alias("value"))
            return flat(value.to_arrow_table().column("value"))
        finally:
            context.deregister_table(name)
    except Exception as error:
        message = f"region expression {sql!r} fails: {shortened(str(error))}"
        raise InvalidCallError(message) from error


@lru_cache(maxsize=1)
def _context(_process: int) -> datafusion.SessionContext:
    """One context a process, because its threads don't survive a fork; with one partition, so
    that the order of rows stays."""
    import datafusion

    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def _plain(array: pa.Array) -> pa.Array:
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def _same_kind(actual: pa.DataType, declared: pa.DataType) -> bool:
    text = pa.types.is_string(actual) and pa.types.is_large_string(declared)
    return bool(text or (pa.types.is_integer(actual) and pa.types.is_integer(declared)))


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is text, word, number or sign; `start` and `end` are its places in the expression."""

    kind: str
    text: str
    start: int
    end: int


@lru_cache(maxsize=256)
def tokens_of(sql: str) -> tuple[Token, ...]:
    """The tokens in order. Raises InvalidCallError for anything else between them.

    SQL parsers differ in comments, quoted names and prefixes of texts: `/*! ... */` is a comment to
    one and code to another. So none of these is allowed.
    """
    tokens, place, end = [], 0, len(sql.rstrip())
    while place < end:
        match = _TOKEN.match(sql, place)
        if match is None:
            rest = sql[place:].lstrip()
            raise InvalidCallError(
                f"region expression {sql!r}: {rest[:20]!r} is not allowed; it is made of col0, "
                "col1, ..., numbers, texts in single quotes, operators and functions"
            )
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match[kind], match.start(kind), match.end(kind)))
        place = match.end()
    return tuple(tokens)
