"""The native library: mounts Python plans in DataFusion. Built from native/."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, TypeAlias

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Bytes = npt.NDArray[np.uint8]
_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_Uint64s = npt.NDArray[np.uint64]

DATAFUSION_MAJOR: int

class ArrowStream:
    """Rows that can be read any number of times."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class KeyVersions:
    """Maps keys to the positions of their rows, which count from 0. Append-only: whatever comes
    later, an answer that is bounded by an earlier number of rows stays the same. Keys are arrays of
    integers, booleans, strings or binary, without nulls, and all of one type."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def append(self, keys: pa.Array) -> None:
        """Add the keys of the next rows."""

    def last(self, key: object, below: int) -> int:
        """The highest position of a key, an int, bool, str or bytes, that is below `below`; -1 if
        there is none."""

    def last_of(self, keys: pa.Array, below: int) -> bytes:
        """`last` of every key, as the bytes of int64."""

    def superseded(self, below: int) -> bytes:
        """The positions below `below`, ascending, that a later one below it replaces, as the bytes
        of int64."""

class LiveImage:
    """The rows of a table in memory, one a key, and the state of the table that they are the rows
    of. Both change in one call; each answer is of one state.

    Columns are named by their numbers in the schema. A column is there once it is admitted and, if
    there were rows by then, its values are loaded. Keys are arrays as for `KeyVersions`.
    """

    def __init__(self, schema: pa.Schema, key: int | None, state: object) -> None:
        """`key` is the key column, if there is only one."""

    def __len__(self) -> int: ...
    @property
    def state(self) -> Any: ...
    @property
    def nbytes(self) -> tuple[int, dict[int, int], int]:
        """Bytes of keys, of each column, and of written rows that some column has not taken in
        yet."""

    def apply(
        self,
        changes: Sequence[tuple[pa.RecordBatch, pa.Array, pa.BooleanArray | None]],
        state: object,
    ) -> None:
        """Set rows, with all columns of the table, or delete those whose flag is true, in their
        order. ValueError or RuntimeError, and nothing changes, where something does not fit."""

    def reserve(self, rows: int) -> None:
        """Make room for so many more rows."""

    def admit(self, column: int) -> bool:
        """Take in what comes from now on of a column. Whether columns of its type are kept."""

    def evict(self, column: int) -> None:
        """Drop the values of a column."""

    def has(self, column: int) -> bool:
        """Whether the values of a column can be read."""

    def insert(self, keys: pa.Array) -> None:
        """Add rows of these keys; the values of all columns that are there are to be loaded."""

    def load(self, columns: Sequence[int], values: pa.RecordBatch, keys: pa.Array) -> None:
        """Values of some columns, one for each key; the values are those that were there when the
        columns were admitted. Keys that have gone meanwhile are passed over."""

    def loaded(self, columns: Sequence[int]) -> None:
        """Let some columns be read, after all values that were there are loaded."""

    def settle(self) -> None:
        """Let all columns take in what was written."""

    def scan(
        self,
        state: object,
        columns: Sequence[int],
        keys: pa.Array | None,
        conditions: Sequence[Predicate],
        limit: int | None,
        regions: int,
    ) -> LiveScan | None:
        """Some columns of those rows, or of those of them with these keys, that meet all
        conditions; None if the state is another one by now, if columns are not there, or if
        conditions can't be evaluated here. `regions` is the number of the table's regions, for the
        label."""

class LiveScan:
    """A scan of live rows: those of the moment when it was made, however late they are read."""

    @property
    def label(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def count(self) -> tuple[int, bool]:
        """The number of rows without conditions, and whether there are none."""

    def partition(self, number: int) -> ArrowStream:
        """The rows of one partition, with `__arrow_c_stream__`."""

class LiveQuestions:
    """Whether nothing of a table has changed since a look at it."""

    def __init__(
        self,
        voided: int,
        seconds: float,
        regions: Sequence[tuple[bytes, bytes, bytes, bytes]],
        base: tuple[bytes, bytes],
        stamp: tuple[int, int, int],
        folder: str,
        names: Sequence[str],
        ids: Sequence[int],
    ) -> None:
        """What the look has found.

        Args:
            voided: `voided()` before the look.
            seconds: the questions are asked no longer than that.
            regions: of each region the paths of the next two entries and of the next manifest,
                which are not there, and of the newest manifest.
            base: the paths of the next version of the base table, which is not there, and of the
                newest one.
            stamp: inode, time in nanoseconds and size of the latter.
            folder: the folder of the regions.
            names: those in it.
            ids: the ids of the table's columns.
        """

class LiveAnswers:
    """Answers from the live rows of a table handle, without a look while nothing has changed."""

    def __init__(self) -> None: ...
    def leave(self, image: LiveImage, state: object, questions: LiveQuestions) -> None:
        """Answer from an image, and ask the questions of a look first; nothing is done if the image
        has another state than the look by now. It is dropped when nobody else holds it."""

    @property
    def count(self) -> int:
        """How many scans and lookups they have answered."""

    @property
    def are_likely(self) -> bool:
        """Whether there are live rows that may be those of now."""

    def get(self, keys: pa.Array, columns: Sequence[str]) -> ArrowStream | None:
        """Some columns of the rows of those keys that have one, once each and in the order of the
        keys; None if a look is needed."""

class LiveAccess:
    """The way of a mounted table to live rows."""

    def __init__(self, answers: LiveAnswers, within: Flag, ids: Sequence[int]) -> None:
        """`within` is set while the session has an open transaction; `ids` are those of the mounted
        columns."""

class Flag:
    """A flag that native code sees, not set at first."""

    def __init__(self) -> None: ...
    def set(self, is_set: bool) -> None: ...

def voided() -> int:
    """How often the questions of all looks became void; to be asked before a look."""

def void_questions() -> None:
    """Let all looks that have begun leave no questions: no file tells of what has changed."""

def note_scans(noted: bool) -> bool:
    """Whether the scans that this thread plans are to be seen by their providers; and before."""

class SessionRule:
    """What `SessionContext.add_physical_optimizer_rule` takes.

    Where DataFusion applies conditions to the rows of a scan that it did not offer to the table,
    the provider's `left_over` gives the plan to run instead, if it has such a method. Where it
    sorts the rows of a scan by a distance and keeps the first few, the `nearest` of what `scan`
    returned gives a plan for rows that hold these, if it has such a method."""

    def __init__(self) -> None: ...
    def __datafusion_physical_optimizer_rule__(self) -> object: ...

def quick_tables(quick: bool) -> bool:
    """Whether tables that are mounted from now on answer the host by functions that read private
    layouts of its crates 55.2.0; no by default. Returns what it was before."""

class StreamCounts:
    """Counts of what one stream of a node has yielded, which others read while it goes on."""

    def __init__(self) -> None: ...
    def values(self) -> list[int]:
        """Rows, batches, bytes, nanoseconds and stale rows."""

    def add(self, rows: int, size: int, ns: int) -> None:
        """Add a batch of so many rows, if there are any, and bytes that took so many
        nanoseconds."""

class ResidentStream:
    """The rows of one partition of a node: the live rows of some sources that meet conditions."""

    def __init__(
        self, columns: int, limit: int | None, union: StreamCounts, live: StreamCounts
    ) -> None:
        """The first `columns` of what is added are the output, of which there are no more than
        `limit` rows. Rows are counted for the node that puts sources together, and for the one that
        drops stale rows."""

    def add(
        self,
        batch: pa.RecordBatch,
        addresses: _Uint64s,
        stale: _Uint64s,
        conditions: Sequence[Predicate],
        counts: StreamCounts,
    ) -> None:
        """Add rows of a source, counted for the node that reads it: the columns of the output, then
        others that the conditions read. They are at `addresses`; those in `stale` are left out.
        Both ascend."""

    def batches(self, schema: pa.Schema) -> Iterator[object]:
        """The rows as objects with `__arrow_c_array__`; none are left."""

class MountedTable:
    """What `SessionContext.register_table` takes, over a Python provider."""

    def __init__(self, provider: object) -> None: ...
    def __datafusion_table_provider__(self, session: object) -> object: ...
    def is_mounted(self) -> bool:
        """Whether a session, a view, a frame or a plan has it."""

class Predicate:
    """One conjunct of a WHERE clause."""

    @property
    def sql(self) -> str | None:
        """As SQL text, to be shown; None where SQL has no words for it."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns it reads, sorted."""

    def tree(self, nodes: object) -> Any:
        """What it says, built of the classes in `nodes`, which are called with their fields:
        `And(arguments)`, `Or(arguments)`, `Not(argument)`, `Truth(argument, value)`,
        `Constant(value)`, `Compare(operand, op, literal)`, `Distinct(operand, literal)`,
        `In(operand, type, values)`, `IsNull(operand)`, `Like(operand, pattern, any_case)`,
        `Call(function, operand, literal)`,
        `Operand(column, casts)`, `Literal(type, value)`, `Other(columns)`.

        Types are `pyarrow.DataType`s. Values are None, bool, int, str or bytes: temporal ones count
        the units of their type, decimals are unscaled, floats the shortest texts of the doubles.
        """

    def calls(self, name: str, result: str) -> bool:
        """Whether it calls a function by its name and what it calls its result."""

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """One boolean a row, null for unknown; columns are found by name."""

class Postings:
    """The posting list of one token: documents, ascending, and how often each holds the token."""

    @staticmethod
    def packed(
        data: _Bytes, offsets: npt.NDArray[np.int64], length: int, documents: int
    ) -> Postings:
        """From blocks as Lance's index format 2 packs them: block `i` is
        `data[offsets[i]:offsets[i + 1]]` (uint8, int64), and all hold `length` documents below
        `documents`. Raises ValueError for anything else."""

    @staticmethod
    def plain(held: _Int32s, frequencies: _Int32s, documents: int) -> Postings:
        """From int32 arrays: documents, ascending and below `documents`, and frequencies."""

    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def decode(self) -> tuple[bytes, bytes]:
        """The documents and the frequencies, as the bytes of int32 arrays."""

    def count_among(self, documents: _Int32s) -> int:
        """How many of these documents, int32 and ascending, hold the token."""

class TokenList:
    """Different tokens. Grows at its end. Safe to use from several threads."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def extend(self, more: list[str]) -> None:
        """Add tokens."""

    def near(self, token: str, distance: int, prefix: int) -> list[str]:
        """Those that `TokenMap.near` would find, in their order."""

class TokenMap:
    """The tokens of one partition of Lance's index, each with its number."""

    def __init__(self, data: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""

    def get(self, token: str) -> int | None:
        """The token's number; None if it is not there."""

    def near(self, token: str, distance: int, prefix: int) -> list[str]:
        """The tokens at most `distance` edits of characters (Levenshtein's) from `token` with the
        same first `prefix` characters, or all of them if it has fewer; ordered by their bytes."""

    def items(self) -> list[tuple[str, int]]:
        """Every token with its number, ordered by the token's bytes."""

class SqlParser:
    """DataFusion's parser in its default dialect, with names as a session takes them, or else as it
    does by default. All places are those of characters in the text.

    Raises ValueError for a session in another dialect."""

    def __new__(cls, session: datafusion.SessionContext | None = None) -> Self: ...
    @property
    def normalizes(self) -> bool:
        """Whether names that are not quoted are in lower case."""

    @property
    def merges_piecewise(self) -> bool:
        """Whether joins may be piecewise merge joins, which lose rows."""

    @staticmethod
    def tokens(sql: str) -> list[tuple[str, str, int, int]]:
        """The tokens of a text as `(kind, value, start, end)`, without blanks and comments. Kinds
        are "word" (keyword or name), "quoted" (name in quotes), "string", "number", "placeholder"
        and "symbol".

        Raises ValueError, with the place, for a quote or comment that does not end, and for a text
        that nests too deep: the tree of it could overrun a stack. The methods below do so, too."""

    def statement(self, sql: str) -> SqlStatement:
        """A statement of this package or of DataFusion.

        Raises ValueError, with the place, for a text that can't be read, and for none or several
        statements; RecursionError for a text that nests deeper than 50 levels."""

    def query(self, sql: str, searches: list[str]) -> SqlQuery:
        """A text that DataFusion reads; `searches` are the names of functions that search. Raises
        as `statement` does."""

    def distances(self, sql: str) -> list[Distance]:
        """The distance operators of a text, in its order."""

    @staticmethod
    def expression(sql: str) -> SqlText | None:
        """One expression. None for a text that DataFusion can't parse, or not in its default
        depth."""

class SqlText:
    """An expression, parsed."""

    def calls_functions(self) -> bool:
        """Whether it calls functions, so that it may mean something else each time it is asked, as
        `now()` does."""

_Tree: TypeAlias = (
    AlterTable
    | Call
    | CreateIndex
    | CreateTable
    | Delete
    | DropIndex
    | Insert
    | Merge
    | Named
    | Truncate
    | Update
    | Variable
)

class SqlStatement:
    """A statement.

    Attributes:
        word: its first keyword in upper case, after a WITH that stands before a change of rows.
        part: the text, without a semicolon.
        ctes: the WITH clause of a statement that changes rows.
        cte_names: the names of the queries in that.
        tree: what it consists of, which `repr` shows; None for queries and all other statements of
            DataFusion.
        explained: where the statement begins that EXPLAIN is about.
        analyzes: whether EXPLAIN has ANALYZE.
        pasts: its clauses AS OF.
    """

    word: str
    part: Part
    ctes: Part | None
    cte_names: list[str]
    tree: _Tree | None
    explained: int
    analyzes: bool
    pasts: list[Past]

class SqlQuery:
    """The queries of a text.

    Attributes:
        tables: where the names of tables stand, their parts as the session looks them up, and
            whether an alias may follow; without those that stand for a query of a WITH.
        pasts: its clauses AS OF.
        searches: the calls of functions that search.
        misread: the conditions with `[NOT] IN (SELECT ...)` in which DataFusion forgets the NULLs
            of the subquery.
        refused: why the text is refused: clauses that DataFusion ignores or answers wrongly.
        unnamed: the places after columns that need an alias, as a subquery of ANY or ALL is
            compared with itself otherwise.
        distance_orders: the queries that sort the rows of one table by a distance, and keep the
            first few.
    """

    tables: list[tuple[int, int, list[str], bool]]
    pasts: list[Past]
    searches: list[Search]
    misread: list[str]
    refused: list[str]
    unnamed: list[int]
    distance_orders: list[DistanceOrder]

class Part:
    """Characters of the text."""

    text: str
    start: int
    end: int

class Reference:
    """The name of a table or a column; `parts` are as a session looks them up."""

    parts: list[str]
    text: str
    start: int
    end: int

class Expression:
    """An expression."""

    @property
    def text(self) -> str:
        """As it is written."""

    @property
    def start(self) -> int:
        """Its place."""

    @property
    def column(self) -> list[str] | None:
        """The column, with its table, if it is one alone."""

    @property
    def columns(self) -> list[Reference]:
        """The columns in it, those of its subqueries too."""

    @property
    def has_query(self) -> bool:
        """Whether it has a subquery."""

    @property
    def unnests(self) -> bool:
        """Whether it makes several rows of one, by `unnest` outside of its subqueries."""

class Past:
    """A clause `[FOR] VERSION | TIMESTAMP AS OF value`.

    Attributes:
        kind: "version" or "timestamp".
        value: an expression.
        after: the place after the token before it.
    """

    kind: str
    value: str
    start: int
    end: int
    after: int

class Search:
    """A call of a function that searches, from its first argument to the last one."""

    name: str
    start: int
    end: int
    arguments: list[Argument]

class Argument:
    """An argument.

    Attributes:
        string: what it is, if it is a text alone.
        parameters: those in it, by name, with their places in its text.
    """

    name: str | None
    text: str
    start: int
    string: str | None
    parameters: list[tuple[str, int, int]]

class Distance:
    """`left <-> right`, or another of the operators; an operand is None if there is none."""

    operator: str
    start: int
    left: Operand | None
    right: Operand | None

class Operand:
    """An operand.

    Attributes:
        kind: "text", "parameter", "list", "column" or "other".
        value: the text, or the name of the parameter or column.
    """

    part: Part
    kind: str
    value: str

class DistanceOrder:
    """`SELECT ... FROM table WHERE ... ORDER BY distance, ... LIMIT k`, the nearest rows first.

    Attributes:
        table: the place of the table's name.
        qualifier: the name that qualifies its columns.
        function: the function of the distance.
        metric: Lance's name of its metric: "l2", "cosine" or "dot".
        column: the parts of the name of the vector column.
        vector: the vector that it is compared with; empty for a parameter.
        parameter: the name of the parameter that is the vector, with its `$`.
        counts: LIMIT, and OFFSET if there is one: digits, or the name of a parameter.
        is_filtered: whether it has a WHERE.
    """

    table: int
    qualifier: str
    function: str
    metric: Literal["l2", "cosine", "dot"]
    column: list[str]
    vector: list[float]
    parameter: str | None
    nulls_first: bool
    counts: list[str]
    is_filtered: bool

class Item:
    """An item of RETURNING.

    Attributes:
        star: the table of `t.*`, and nothing for `*`; None for expressions.
    """

    text: str
    start: int
    star: list[str] | None
    expression: Expression | None

class Assignment:
    """`column = value`."""

    column: Reference
    value: Expression

class Delete:
    """DELETE."""

    target: Reference
    alias: str | None
    others: Part | None
    condition: Expression | None
    returning: list[Item] | None

class Truncate:
    """TRUNCATE."""

    target: Reference

class Update:
    """UPDATE."""

    target: Reference
    alias: str | None
    sets: list[Assignment]
    others: Part | None
    condition: Expression | None
    returning: list[Item] | None

class Insert:
    """INSERT and REPLACE.

    Attributes:
        mode: "INSERT", "OVERWRITE" or "REPLACE".
        rows: the cells of VALUES alone: the text of each, and the kind of literal it is, "query" or
            "other".
    """

    mode: str
    target: Reference
    alias: str | None
    columns: list[Reference] | None
    by_name: bool
    query: Part
    rows: list[list[tuple[str, str]]] | None
    conflict: Conflict | None
    returning: list[Item] | None

class Conflict:
    """ON CONFLICT; `sets` is None for DO NOTHING."""

    start: int
    key: list[Reference] | None
    sets: list[Assignment] | None
    condition: Expression | None

class Merge:
    """MERGE.

    Attributes:
        source_name: what the columns of the source go by.
        equalities: the sides of each `a = b` among the conjuncts of `on`.
        conjuncts: how many these are.
    """

    target: Reference
    alias: str | None
    source: Part
    source_name: str | None
    on: Expression
    equalities: list[tuple[Expression, Expression]]
    conjuncts: int
    whens: list[When]
    returning: list[Item] | None

class When:
    """A clause of MERGE.

    Attributes:
        of: "matched", "new" or "alone".
        action: "INSERT", "UPDATE", "DELETE", or empty for DO NOTHING.
        star: the place of `*`.
    """

    start: int
    of: str
    condition: Expression | None
    action: str
    star: int | None
    sets: list[Assignment]
    columns: list[Reference] | None
    values: list[Expression]

class Call:
    """CALL; arguments without a name have an empty one."""

    name: Reference
    arguments: list[tuple[str, Expression]]

class Column:
    """What is written in the place of columns: a column, or `PRIMARY KEY (columns)`, which has no
    name.

    Attributes:
        kind: the type and NOT NULL.
        key: the primary key that it says; empty for none.
        default: the constant after DEFAULT.
    """

    start: int
    name: str | None
    kind: str
    key: list[str]
    default: Part | None

class CreateTable:
    """CREATE TABLE. A text is given with whether it is the name of a parameter.

    Attributes:
        is_ours: whether it says `USING memwal`, `STORED AS MEMWAL` or, unless it is external,
            LOCATION.
        key_start: where PRIMARY KEY stands among the columns.
        regions: region fields.
        options: name, text and place of each.
        error: what no table of this package has, and its place.
    """

    replaces: bool
    is_external: bool
    lenient: bool
    name: Reference
    columns: list[Column]
    columns_start: int
    is_ours: bool
    key_start: int | None
    regions: str | None
    location: tuple[str, bool] | None
    options: list[tuple[str, tuple[str, bool], int]]
    query: Part | None
    error: tuple[str, int] | None

class Named:
    """CREATE or DROP of a SCHEMA, VIEW or TABLE, as far as the name; `rest` is the place of what
    follows, if something does."""

    kind: str
    lenient: bool
    name: Reference
    rest: int | None

class CreateIndex:
    """CREATE INDEX."""

    replaces: bool
    lenient: bool
    name: str | None
    table: Reference
    kind: str | None
    columns: list[Reference]
    options: list[tuple[str, Expression]]

class DropIndex:
    """DROP INDEX."""

    lenient: bool
    name: str
    table: Reference

class AlterTable:
    """ALTER TABLE."""

    lenient: bool
    table: Reference
    changes: list[Alteration]

class Alteration:
    """A change of a table: "ADD", "DROP", "RENAME", "DROP NOT NULL", "SET NOT NULL", "SET TYPE",
    whose type is that of the only one of `columns`, "SET DEFAULT" or "DROP DEFAULT"."""

    start: int
    action: str
    lenient: bool
    columns: list[Column]
    column: Reference | None
    new_name: str | None
    value: Part | None

class Transaction:
    """BEGIN, COMMIT or ROLLBACK of a transaction; `reads_only` is that of BEGIN READ ONLY."""

    action: Literal["BEGIN", "COMMIT", "ROLLBACK"]
    level: Literal["serializable", "snapshot"] | None
    reads_only: bool

class Variable:
    """SET, SHOW or RESET of a variable."""

    name: Reference
    value: str | None

def keep_rows(batch: pa.RecordBatch, flags: _Bytes) -> object:
    """The rows whose flag is not 0, with `__arrow_c_array__`."""

def flag_live(addresses: _Uint64s, stale: _Uint64s, flags: _Bytes) -> int:
    """Write a flag for every address, 0 for those in `stale`, which is sorted, else 1; count the
    ones. Where that is all of them, nothing may have been written."""

def mark(places: _Int64s, table: _Bytes, mark: int) -> None:
    """Set the bits of `mark` in the bytes of `table` at these places."""

def find_marked(values: _Int64s, first: int, table: _Bytes, rows: _Int32s, places: _Int64s) -> int:
    """Write the rows whose value, less `first`, is a place in `table` that is not 0, and these
    places; count them. `rows` and `places` are as long as `values`."""

def superseded(codes: _Int64s, deleted: _Bytes, seen: _Bytes, rows: _Int32s) -> int:
    """Write, ascending and to the end of `rows`, the rows that are `deleted` or whose code `seen`
    has or a later row has too, and count them. All codes are in `seen` afterwards. `deleted` and
    `rows` are as long as `codes`; every code is a place in `seen`."""

def murmur3(columns: Sequence[pa.Array]) -> pa.Array:
    """Murmur3 of 32 bits of every row, which `pyarrow.array` takes as int32, over its values one
    after the other (`planner.regions.hashing.murmur3`). A ValueError if a type has none."""

def murmur3_bytes(data: bytes) -> int:
    """Murmur3 of 32 bits with seed 0, signed."""

def siphash13(columns: Sequence[pa.Array]) -> bytes:
    """SipHash-1-3 of every row, which holds no NULLs, as the bytes of uint64
    (`exec_nodes.keys.hashing`). A ValueError if a type has none."""

def siphash13_bytes(data: bytes) -> int:
    """SipHash-1-3 with zero keys."""

def places_of(keys: _Int64s, sought: _Int64s) -> bytes:
    """The places of all `keys` that equal one of `sought`, both ascending, as the bytes of
    int64."""

def union(parts: Sequence[_Uint64s]) -> bytes:
    """The distinct numbers of all parts, ascending, as the bytes of uint64. Each part is
    ascending."""

def top_k(
    postings: Sequence[Postings],
    weights: Sequence[float],
    lengths: _Int32s,
    allowed: _Bytes,
    *,
    k: int,
    required: int,
    fixed: float,
    per_token: float,
    shortest: int,
) -> tuple[bytes, bytes]:
    """The `k` best documents, and those as good as the last of them, as the bytes of int32 numbers
    and float32 scores, the best first.

    A score is the sum of `weight * (2.2 f / (f + fixed + per_token * length))` over the tokens. A
    document counts if it holds at least `required` of them, and if its `allowed` (uint8) is not 0.
    None that holds any is shorter than `shortest`.
    """

class VectorCodes:
    """Vectors as one byte an element: which of them may be the nearest ones is known from a quarter
    of the bytes. Grows at its end. Safe to use from several threads."""

    def __init__(self, dimension: int, metric: str) -> None:
        """`metric` is `l2`, `dot` or `cosine`."""

    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes held."""

    @property
    def longest(self) -> float:
        """The length of the longest vector, of those that are not `unmeasured`; 1 for cosine
        distances."""

    def unmeasured(self, rows: int) -> tuple[bytes, bytes]:
        """Of the first `rows`, as the bytes of int64, ascending: those that have no distance, and
        those whose distance may be anything, as they are very long or short (by their squares,
        outside of 1e-30 to 1e30), or hold infinities or NaN."""

    def extend(
        self,
        vectors: npt.NDArray[np.float32] | npt.NDArray[np.float64],
        first: int,
        valid: _Bytes | None,
    ) -> None:
        """Code the rows of a contiguous matrix whose first row is row `first`; those that are coded
        already are passed over. `valid` is 0 for rows without a vector."""

    def candidates(
        self,
        queries: npt.NDArray[np.float64],
        most: int,
        *,
        rows: int,
        allowed: _Bytes | None,
        least: float | None,
        below: float | None,
    ) -> list[bytes]:
        """By query, as the bytes of int64: ascending rows that hold the `most` nearest by exact
        distance, rounded to float32, with those equally far; and few more.

        Rows count that are among the first `rows`, whose `allowed` (by row) is not 0, and whose
        distance is `least` or more and below `below`. Those that have none may be among them.
        """

    def nearest(
        self,
        queries: npt.NDArray[np.float64],
        most: int,
        *,
        chunks: Sequence[npt.NDArray[np.float32] | npt.NDArray[np.float64]],
        rows: int,
        allowed: _Bytes | None,
        least: float | None,
        below: float | None,
    ) -> list[tuple[bytes, bytes]]:
        """By query, as the bytes of int64 and of float32: the `most` nearest rows that count, as
        `candidates` has it, those as near as the last of them, and their distances, as `distances`
        has them; the nearest first, equally near ones by row. `chunks` are the matrices whose rows
        were coded.
        """

def distances(
    metric: str,
    vectors: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    query: npt.NDArray[np.float64],
) -> bytes:
    """The distance of each row of a contiguous matrix to `query`, as the bytes of float32.

    NaN where there is none. `metric` is `l2`, `dot` or `cosine`.
    """

def remember(error: BaseException) -> None:
    """Note an exception for `recall` that DataFusion's bindings are about to turn into text."""

def recall(message: str) -> BaseException | None:
    """The newest exception whose text is part of `message`, of the last 32."""

def shut_down(seconds: float) -> bool:
    """Let no thread of this library call into Python any more, and wait until none does, at most
    so many seconds; whether none does. For the exit of the interpreter."""
