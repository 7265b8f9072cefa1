"""Stored rows under the names that the base table's columns, and the fields inside them, have now.

Fields are the same where their ids are (protocol rule 2). Names tell as much unless one was
renamed, or dropped and added again, since the rows were written. Ids are in the metadata of Arrow
fields, at every depth, as native code writes them into WAL entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import lance
import pyarrow as pa

from exec_nodes.arrow.casts import same_kind
from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.arrow.nested import inner_fields, with_inner_fields
from exec_nodes.base.columns import TOMBSTONE
from exec_nodes.base.errors import RepairError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.evolution.known import known_column
from exec_nodes.evolution.match import FIELD_ID_KEY, match, renamed
from exec_nodes.evolution.widen import widened, widens
from exec_nodes.lance.reading import rows_of

Column = TypeVar("Column", pa.Array, pa.ChunkedArray)


def numbered(schema: pa.Schema, lance_schema: Any) -> pa.Schema:
    """`schema` with the field ids of a Lance schema that has its columns.

    `_tombstone` gets none: the next id after the columns' may be a generation's `_tombstone`, and a
    column added to the base.
    """
    own = {field.name(): field for field in lance_schema.fields()}
    return pa.schema([f if f.name == TOMBSTONE else _numbered(f, own[f.name]) for f in schema])


class ByFieldId:
    """Reads rows with the columns `stored` as rows of `wanted`; both schemas are `numbered`.

    Fields without an id, such as those inside columns in older logs, are matched by name. Raises
    RepairError if one of them is gone and another is new: one may be the other, renamed.

    Attributes:
        stored: the given schema.
        stored_names: the stored name of each requested column; None for one that the rows lack.
        names_agree: whether matching by names gives the same, so that there is nothing to do.
    """

    def __init__(self, stored: pa.Schema, target: pa.Schema) -> None:
        self.stored = stored
        matched = match(list(stored), list(target))
        self.names_agree = matched.names_agree
        names = [None if place is None else stored.names[place] for place in matched.places]
        self.stored_names: Mapping[str, str | None] = dict(zip(target.names, names, strict=True))
        self._target = target
        self._inside = dict(zip(target.names, matched.inside, strict=True))

    @lazy_property
    def widened(self) -> frozenset[str]:
        """The requested columns whose stored type is narrower, or wider."""
        stored, now = self.stored, self._target
        pairs = {
            name: (stored.field(of).type, now.field(name).type) for name, of in self.present.items()
        }
        return frozenset(n for n, (a, b) in pairs.items() if widens(a, b) or widens(b, a))

    def check_types(self) -> None:
        """Raise RepairError for a stored type that no column of the table was made of."""
        for name, stored in self.present.items():
            kind, now = self.stored.field(stored).type, self._target.field(name).type
            if not _fits(kind, now):
                raise RepairError(
                    f"column {name!r} is {kind} in rows that were flushed, and {now} in the table: "
                    "give it that type again, or restore a version of the table that has it"
                )

    @property
    def present(self) -> Mapping[str, str]:
        """The stored names of the requested columns that the rows have."""
        return {name: stored for name, stored in self.stored_names.items() if stored is not None}

    def column(self, name: str, stored: Column) -> Column:
        """The requested column `name` from the stored one; its values may still need a cast."""
        kind, inside = self._target.field(name).type, self._inside[name]
        if isinstance(stored, pa.Array):
            return renamed(stored, kind, inside)
        chunks = stored.chunks or [pa.array([], stored.type)]
        return pa.chunked_array([renamed(chunk, kind, inside) for chunk in chunks])


def same_columns(schema: pa.Schema, other: pa.Schema) -> bool:
    """Whether two `numbered` schemas have the same names, types and field ids at every depth; other
    metadata, such as comments, may differ."""
    if schema.equals(other, check_metadata=True):  # nearly always, and asked at every read
        return True
    return bool(schema.equals(other)) and ByFieldId(schema, other).names_agree


def _fits(kind: pa.DataType, now: pa.DataType) -> bool:
    """Whether values of a stored type may be read as those of a column's; fields inside types may
    have changed."""
    if kind.id != now.id:
        return same_kind(kind, now)
    return not pa.types.is_fixed_size_list(kind) or bool(kind.list_size == now.list_size)


class CurrentSchema:
    """Opens generations under the names that one version of the base table has.

    Attributes:
        schema: the base table's columns, `numbered`, and `_tombstone`.
    """

    def __init__(self, schema: pa.Schema, *, keeps_types: bool = False) -> None:
        """`keeps_types`: columns that were widened since that version are read in its types."""
        self.schema = schema
        self._keeps_types = keeps_types
        self._agreeing: Any = None

    @lazy_property
    def tag(self) -> int:
        """Tells apart what schemas as such do not: the ids in their metadata."""
        return hash(self.schema.serialize().to_pybytes())

    def project(self, dataset: Any) -> Any:
        """The Lance table `dataset` with the current columns and fields.

        That is the dataset itself, unless names and ids disagree, or a column's type was widened
        since; then its rows are held in memory, in their order, without indexes: it is rare, and
        ends when the generation is merged. Raises as `known_column` or `widened` does.
        """
        own = dataset.lance_schema
        if own == self._agreeing:  # most generations end here: the rest takes ten times as long
            return dataset
        by_id = ByFieldId(numbered(dataset.schema, own), self.schema)
        by_id.check_types()
        if by_id.names_agree and not by_id.widened:
            self._agreeing = own
            return dataset
        present = by_id.present
        rows = rows_of(dataset.scanner(columns=list(present.values())))
        columns = [by_id.column(name, rows[stored]) for name, stored in present.items()]
        for place, name in enumerate(present):
            if name in by_id.widened:
                column, field = columns[place], self.schema.field(name)
                keeps = self._keeps_types and widens(field.type, column.type)
                columns[place] = known_column(column, field) if keeps else widened(column, field)
        table = pa.Table.from_arrays(columns, list(present))
        renamed = pa.Table.from_batches(map(aligned, table.to_batches()), table.schema)
        return lance.write_dataset(renamed, "memory://", data_storage_version="stable")


def project_batch(batch: pa.RecordBatch, by_id: ByFieldId) -> pa.RecordBatch:
    """A stored batch under the current names, as WAL entries have them; `by_id` is of its schema.

    Columns that it lacks, or that the table has dropped, are left to the reader.
    """
    if by_id.names_agree:
        return batch
    present = by_id.present
    columns = [by_id.column(name, batch.column(stored)) for name, stored in present.items()]
    return pa.RecordBatch.from_arrays(columns, list(present))


def _numbered(field: pa.Field, own: Any) -> pa.Field:
    """`field` with the id of the Lance field `own`, and so on inside it."""
    fields = inner_fields(field.type)
    if fields:
        inside = own.children()
        if pa.types.is_map(field.type):
            inside = inside[0].children()  # Lance puts a struct of entries in between
        if inside:  # none in vectors
            inner = [_numbered(*pair) for pair in zip(fields, inside, strict=True)]
            field = field.with_type(with_inner_fields(field.type, inner))
    return field.with_metadata({**(field.metadata or {}), FIELD_ID_KEY: b"%d" % own.id()})
