"""MERGE: each row of a source is matched with rows of the table, and clauses say what to change.

The source is read first, then the rows of the table that it matches. Each WHEN is a query over the
rows that no earlier WHEN has taken, so its condition and values see the tables that SQL allows, and
are computed for its own rows only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.casts import Column, exact_cast
from exec_nodes.keys.keys import KeyBatch, key_values, one_array
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.changes.reading import ROW, ROW_NAME, Reading
from memwal_sql.statements.changes.returning import Returning
from memwal_sql.statements.changes.row_actions import DELETE, INSERT, UPDATE, RowAction, keys_of
from memwal_sql.statements.changes.target import Target
from memwal_sql.write.conditional.groups import groups, named

# Rows of a WHEN: pairs of both tables, rows of the source alone, rows of the target alone.
MATCHED, NEW, ALONE = "matched", "new", "alone"
_KIND_NAMES = {INSERT: "inserted", UPDATE: "updated", DELETE: "deleted"}
_SOURCE_ROW = "memwal source row"
# Name of the column that says whether a clause may take an unmatched row of the table.
_ASKED = '"memwal asked"'


@dataclass(frozen=True, slots=True)
class When:
    """A WHEN clause.

    Attributes:
        of: `MATCHED`, `NEW` or `ALONE`.
        condition: the text as written; empty for none.
        action: `INSERT`, `UPDATE`, `DELETE`, or empty for DO NOTHING.
        values: column name -> expression.
        lacking_error: if the values are `*`, makes the error for columns that the source lacks.
    """

    of: str
    condition: str
    action: str
    values: Mapping[str, str] = field(default_factory=dict)
    lacking_error: Callable[[Sequence[str]], InvalidCallError] | None = None


@dataclass(frozen=True, slots=True)
class On:
    """The ON condition.

    Attributes:
        text: the condition.
        key: key column -> the expression over the source that it equals; empty unless the condition
            says so for the whole key.
        key_only: whether the condition says nothing else.
    """

    text: str
    key: Mapping[str, str]
    key_only: bool = True


class Merge(Change):
    """A source, a condition and clauses.

    `alias` qualifies the source's columns. Equal expressions have equal texts.
    """

    def __init__(
        self,
        target: Target,
        returning: Returning | None,
        source: str,
        alias: str,
        on: On,
        whens: Sequence[When],
    ) -> None:
        super().__init__(target, returning)
        self._source = source
        self._alias = alias
        self._on = on
        self.whens = whens
        # A row that is written under the key by which it was looked up concerns no other row.
        self.reruns_all = any(
            (when.action == INSERT and not self._keeps_key(when))
            or (when.action == UPDATE and bool(set(when.values) & set(target.table.primary_key)))
            for when in whens
        )

    @property
    def query(self) -> str:
        """The join of the table and the source: EXPLAIN shows it, `actions` does not run it."""
        kinds = {when.of for when in self.whens}
        joins = {
            (False, False): "JOIN",
            (True, False): "RIGHT JOIN",
            (False, True): "LEFT JOIN",
            (True, True): "FULL JOIN",
        }
        join = joins[NEW in kinds, ALONE in kinds]
        source = f"(SELECT * FROM {self._source}) AS {self._alias}"
        return f"SELECT * FROM {self.target.from_item} {join} {source} ON {self._on.text}"

    def counts(self, kinds: Counter[str]) -> dict[str, int]:
        """The number of all changes, and of each kind."""
        by_kind = {name: kinds[kind] for kind, name in _KIND_NAMES.items()}
        return {"count": kinds.total(), **by_kind}

    def actions(self, reading: Reading, keys: pa.Table | None) -> list[RowAction]:
        """The changes of all clauses, in order, to all rows, whatever `keys` are given."""
        source, whens = self.source_and_whens(reading)
        present = frozenset(source.column_names)
        lacking = [name for name in self.target.columns.names if name not in present]
        for when in whens:
            if when.lacking_error is not None and lacking:
                raise when.lacking_error(lacking)
        alone = [when for when in whens if when.of == ALONE]
        source_keys = None if alone or not self._on.key else self._source_keys(reading, source)
        remaining = self._joined(reading, source, alone, source_keys)
        # A computed key may be another one when its row is inserted.
        is_own = self._source_columns(source, self._on.key) is not None
        looked_up = source_keys is not None and self._on.key_only and is_own
        actions = []
        for when in whens:
            rows = remaining[when.of]
            places, values = self._applied(reading, when, rows)
            if when.action:
                actions.append(self._action(when, rows, places, values, looked_up))
            remaining[when.of] = rows.without(places)
        return actions

    def source_and_whens(self, reading: Reading) -> tuple[pa.Table, Sequence[When]]:
        """The rows of the source, and the clauses."""
        return reading.rows(f"SELECT * FROM {self._source}"), self.whens

    def _joined(
        self, reading: Reading, source: pa.Table, alone: Sequence[When], keys: pa.Table | None
    ) -> dict[str, _Rows]:
        """The rows for each kind of clause; `alone` are the clauses for unmatched rows of the
        table."""
        names = self.target.columns.names
        target_rows = None if keys is None else self._target_rows(reading, keys)
        if keys is not None and target_rows is not None and self._on.key_only:
            return self._paired(source, keys, target_rows)
        number = f"{self._alias}.{ROW}"
        tables = (
            {"source": source} if target_rows is None else {"source": source, "target": target_rows}
        )
        with reading.tables(**tables) as of:
            target = self._named(of.get("target", self.target.text))
            join, where = "JOIN", ""
            if alone:
                condition = " OR ".join(when.condition or "1 = 1" for when in alone)
                target = self._named(f"(SELECT *, {condition} AS {_ASKED} FROM {target})")
                join, where = "LEFT JOIN", f"WHERE {number} IS NOT NULL OR {_ASKED}"
            columns = ", ".join(map(self.target.column, names))
            pairs = reading.rows(
                f"SELECT {number} AS {quoted(_SOURCE_ROW)}, {columns} FROM {target} {join} "
                f"{of['source']} AS {self._alias} ON {self._on.text} {where}"
            )
        at = one_array(pairs[_SOURCE_ROW])
        rows = pairs.select(names).cast(self.target.columns)
        new = np.ones(source.num_rows, np.bool_)
        new[at.drop_null().to_numpy()] = False
        return {
            MATCHED: _Rows(rows.filter(at.is_valid()), source.take(at.drop_null())),
            NEW: _Rows(None, source.filter(pa.array(new))),
            ALONE: _Rows(rows.filter(at.is_null()), None),
        }

    def _target_rows(self, reading: Reading, keys: pa.Table) -> pa.Table:
        """The rows of the table with these keys."""
        others = [self._on.text, *(() if self.returning is None else self.returning.items)]
        for when in self.whens:
            others += [when.condition or "1 = 1", *when.values.values()]
        return reading.get(keys_of(self.target, [keys.drop_null()]), others)

    def _source_keys(self, reading: Reading, source: pa.Table) -> pa.Table | None:
        """The keys that the condition gives to the source's rows; None if it does not compare them
        by value."""
        key, schema = list(self.target.table.primary_key), self.target.columns
        key_rows = self._source_columns(source, self._on.key)
        if key_rows is None:
            shown = [f"{text} AS {quoted(name)}" for name, text in self._on.key.items()]
            with reading.tables(source=source) as of:
                query = f"SELECT {', '.join([*shown, ROW])} FROM {of['source']} AS {self._alias}"
                key_rows = reading.rows(query).sort_by(ROW_NAME)
        columns = []
        for name in key:
            if pa.types.is_floating(key_rows[name].type):  # may equal a key inexactly
                return None
            try:
                columns.append(exact_cast(key_rows[name], schema.field(name).with_nullable(True)))
            except InvalidCallError:
                return None
        return pa.table(columns, key)

    def _source_columns(self, source: pa.Table, values: Mapping[str, str]) -> pa.Table | None:
        """The values of expressions, by name, if each is a column of the source."""
        columns = self._named_columns(source)
        if not set(values.values()) <= columns.keys():
            return None
        return pa.table({name: source[columns[text]] for name, text in values.items()})

    def _named_columns(self, source: pa.Table | None) -> dict[str, str]:
        """The columns of the source, by the expressions that name them."""
        names = [] if source is None else source.column_names
        return {f"{self._alias}.{quoted(name)}": name for name in names}

    def _paired(self, source: pa.Table, keys: pa.Table, target_rows: pa.Table) -> dict[str, _Rows]:
        """The rows for each kind of clause, matched by keys alone."""
        place = KeyBatch(keys_of(self.target, [target_rows])).positions
        of_source = key_values(keys.columns)
        at = np.fromiter((place.get(key, -1) for key in of_source), np.int64, len(of_source))
        is_there = at >= 0
        return {
            MATCHED: _Rows(
                target_rows.take(pa.array(at[is_there])), source.filter(pa.array(is_there))
            ),
            NEW: _Rows(None, source.filter(pa.array(~is_there))),
        }

    def _applied(
        self, reading: Reading, when: When, rows: _Rows
    ) -> tuple[pa.Array, dict[str, Column]]:
        """The positions of the rows that a clause takes, ascending, and its values for each."""
        schema, condition = self.target.columns, when.condition
        columns = self._named_columns(rows.source)
        computed = {name: text for name, text in when.values.items() if text not in columns}
        places, values = pa.array(np.arange(len(rows))), dict[str, Column]()
        for group in groups(computed):
            if not group and not condition:
                continue
            found = self._computed(reading, when.of, rows, condition, group)
            if condition:
                places, condition = one_array(found[ROW_NAME]), ""
                rows = rows.at(places)
            values |= {name: fitted(found[name], schema.field(name)) for name in group}
        for name in when.values.keys() - computed.keys():
            column = rows.tables["source"][columns[when.values[name]]]
            values[name] = fitted(column, schema.field(name))
        return places, values

    def _computed(
        self, reading: Reading, of: str, rows: _Rows, condition: str, values: Mapping[str, str]
    ) -> pa.Table:
        """The values of expressions for the rows that meet a condition, and the positions of these,
        ascending."""
        narrow = rows.naming((condition, *values.values()))
        with reading.tables(**narrow.tables) as tables:
            source = f"{tables.get('source')} AS {self._alias}"
            target = self._named(tables.get("target", ""))
            if of == MATCHED:
                number = f"{self._alias}.{ROW}"
                both = f"{target} JOIN {source} ON {self.target.qualifier}.{ROW} = {number}"
            else:
                number, both = ROW, source if of == NEW else target
            where = f"WHERE {condition}" if condition else ""
            shown = [f"{text} AS {quoted(name)}" for name, text in values.items()]
            items = ", ".join([f"{number} AS {ROW}", *shown])
            return reading.rows(f"SELECT {items} FROM {both} {where}").sort_by(ROW_NAME)

    def _action(
        self,
        when: When,
        rows: _Rows,
        places: pa.Array,
        values: Mapping[str, Column],
        looked_up: bool,
    ) -> RowAction:
        schema, key = self.target.columns, list(self.target.table.primary_key)
        if when.action == INSERT:
            new = self.target.new_rows(values, len(places))
            is_absent = looked_up and self._keeps_key(when)
            return RowAction(INSERT, new, checks_keys=not is_absent)
        old = rows.tables["target"].take(places)
        if when.action == DELETE:
            return RowAction(DELETE, old)
        columns = [values.get(name, old[name]) for name in schema.names]
        moves = not set(values).isdisjoint(key)
        before = old.select(key) if moves else None
        return RowAction(UPDATE, pa.table(columns, schema=schema), before)

    def _keeps_key(self, when: When) -> bool:
        """Whether inserted rows have the key by which the table was looked up."""
        key = self._on.key
        return bool(key) and all(when.values.get(name) == text for name, text in key.items())

    def _named(self, table: str) -> str:
        return f"{table} AS {self.target.qualifier}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the target, of the source, or pairs of both."""

    target: pa.Table | None
    source: pa.Table | None

    def __len__(self) -> int:
        return int(next(iter(self.tables.values())).num_rows)

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The tables that are present, by name."""
        both = {"target": self.target, "source": self.source}
        return {name: rows for name, rows in both.items() if rows is not None}

    def naming(self, texts: Collection[str]) -> _Rows:
        """The rows in the columns that expressions name."""
        return self._each(lambda rows: rows.select(named(rows.column_names, texts)))

    def at(self, places: pa.Array) -> _Rows:
        """The rows at these positions."""
        return self._each(lambda rows: rows.take(places))

    def without(self, places: pa.Array) -> _Rows:
        """All rows but those at these positions."""
        mask = np.ones(len(self), np.bool_)
        mask[places.to_numpy()] = False
        return self.at(pa.array(np.flatnonzero(mask)))

    def _each(self, change: Callable[[pa.Table], pa.Table]) -> _Rows:
        tables = {name: change(rows) for name, rows in self.tables.items()}
        return _Rows(tables.get("target"), tables.get("source"))
