"""Conditions with odd texts, as values and as names of columns, keep what DataFusion keeps over
the same rows in memory, whichever way they come.

`MEMWAL_SOAK=10` tries ten times as many, in tables of every kind; `MEMWAL_SEED=...` changes all of
them. A failure prints its seed and its condition.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.session.filter_text import implied
from planner.predicates.tuple_domain import key_equalities
from tests.cli.calls import as_json
from tests.soak import SOAK, usual

SEED = os.environ.get("MEMWAL_SEED", "1")
CONDITIONS = 4 * SOAK
SEARCHES = 2 * SOAK

_PIECES = [
    "'", "''", '"', '""', "\\", "\\'", "`", "-", "--", ")", "(", ";", "%", "_", "\0", "\n", "é",
    "e\u0301", "\u202e", "😀", "\U0010ffff", " ", "a", "b", "A", " OR ", " AND ", "NULL", "1",
    "/*", "*/", "$1", "{", "}", ",", "=", "x'", "E'", "\\' OR 1=1) --", "' OR ''='",
]  # fmt: skip
# No column has these in its name, and no column of the key those.
_NO_NAMES, _NO_KEYS = ("\0", "`"), ("\0", "`", '"')
_PATTERNS = ["%", "_", "a%", "%b", "%'%", "\\%", "%--%"]
REGIONS: dict[str, Callable[[str], list[Any] | None]] = {
    "unsharded": lambda _: None,
    "bucket": lambda key: [mw.bucket(key, 3)],
    "identity": lambda key: [mw.identity(key)],
    "truncate": lambda key: [mw.truncate(key, 1)],
}
STAGES = ("memory", "flushed", "merged")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Conditions:
    """Draws conditions on two columns, most of them about texts that are there."""

    def __init__(self, rng: Random, names: Sequence[str], texts: Sequence[str]) -> None:
        self.rng, self.names, self.texts = rng, names, texts

    def draw(self, depth: int = 2) -> str:
        rng = self.rng
        if depth and rng.random() < 0.35:
            word = rng.choice(["AND", "OR", "NOT"])
            if word == "NOT":
                return f"NOT ({self.draw(depth - 1)})"
            return f"({self.draw(depth - 1)}) {word} ({self.draw(depth - 1)})"
        column = named(rng.choice(self.names))
        return rng.choice(SHAPES)(self, column)

    def text(self) -> str:
        chosen = self.rng.choice(self.texts)
        return quoted(odd(self.rng) if self.rng.random() < 0.2 else chosen)

    def pattern(self) -> str:
        part = self.rng.choice(self.texts)[: self.rng.randrange(4)]
        return quoted(part + self.rng.choice(_PATTERNS))

    def listed(self) -> str:
        found = [self.text() for _ in range(self.rng.randrange(1, 7))]
        return ", ".join(found + ["NULL"] * (self.rng.random() < 0.2))


SHAPES: list[Callable[[Conditions, str], str]] = [
    *(
        lambda c, name, op=op: f"{name} {op} {c.text()}"
        for op in ("=", "=", "<>", "<", "<=", ">", ">=")
    ),
    lambda c, name: f"{c.text()} = {name}",
    lambda c, name: f"{name} IN ({c.listed()})",
    lambda c, name: f"{name} NOT IN ({c.listed()})",
    lambda c, name: f"{name} LIKE {c.pattern()}",
    lambda c, name: f"{name} NOT LIKE {c.pattern()}",
    lambda c, name: f"{name} ILIKE {c.pattern()}",
    lambda c, name: f"{name} BETWEEN {c.text()} AND {c.text()}",
    lambda c, name: f"{name} NOT BETWEEN {c.text()} AND {c.text()}",
    lambda c, name: f"{name} IS DISTINCT FROM {c.text()}",
    lambda c, name: f"{name} IS NOT DISTINCT FROM {c.text()}",
    lambda c, name: f"{name} IS NULL",
    lambda c, name: f"{name} IS NOT NULL",
    lambda c, name: f"({name} = {c.text()}) IS NOT TRUE",
    lambda c, name: f"CASE WHEN {name} = {c.text()} THEN {name} ELSE {c.text()} END = {c.text()}",
    lambda c, name: f"concat({name}, '!') = {c.text()} || '!'",
    lambda c, name: f"starts_with({name}, {c.text()})",
    lambda c, name: f"left({name}, 2) = left({c.text()}, 2)",
    lambda c, name: f"{named(c.names[0])} = {named(c.names[1])}",
]


def odd(rng: Random) -> str:
    return "".join(rng.choices(_PIECES, k=rng.randrange(5)))


def odd_name(rng: Random, without: Sequence[str]) -> str:
    return "".join(p for p in rng.choices(_PIECES, k=4) if not any(n in p for n in without))


class Setting:
    """Odd rows in a table at one stage, and in DataFusion's memory."""

    def __init__(self, seed: str, uri: str, regions: str, stage: str) -> None:
        rng = self.rng = Random(seed)
        key, value = odd_name(rng, _NO_KEYS) + "k", odd_name(rng, _NO_NAMES) + "v"
        self.names = (key, value)
        keys = sorted({odd(rng) for _ in range(9)} | {"a'b", "a''b", "\\'", ""})
        values = [rng.choice([*keys, odd(rng), None]) for _ in keys]
        schema = pa.schema(
            [
                pa.field(key, pa.string(), nullable=False),
                pa.field(value, pa.string()),
                pa.field("body", pa.string()),
                pa.field("e", pa.list_(pa.float32(), 2)),
            ]
        )
        columns = [keys, values, ["word"] * len(keys), [[float(n), 1.0] for n in range(len(keys))]]
        self.rows = pa.table(columns, schema=schema)
        self.table = mw.create_table(uri, schema, primary_key=key, regions=REGIONS[regions](key))
        self.writer = self.table.writer(durable=False)
        self.writer.upsert(self.rows)
        if stage != "memory":
            self.writer.flush()
        if stage == "merged":
            self.table.merge()
        self.context = datafusion.SessionContext()
        mw.register(self.context, "t", self.table)
        self.plain = datafusion.SessionContext()
        self.plain.register_record_batches("t", [self.rows.to_batches()])
        self.drawn = Conditions(rng, self.names, [*keys, *(v for v in values if v is not None)])

    @property
    def key(self) -> str:
        return named(self.names[0])

    def of(self, context: datafusion.SessionContext, sql: str, **options: Any) -> list[str]:
        found = context.sql(sql, **options).to_arrow_table()
        return sorted(found.column(0).to_pylist()) if found.num_columns else []

    def kept(self, condition: str) -> list[str] | None:
        """The keys that DataFusion keeps; None where it refuses the condition."""
        try:
            return self.of(self.plain, f"SELECT {self.key} FROM t WHERE {condition}")
        except Exception:
            return None


@pytest.fixture(params=usual([*product(REGIONS, STAGES)], 6), ids="-".join)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    regions, stage = request.param
    made = Setting(f"{SEED}/{regions}/{stage}", str(tmp_path / "t"), regions, stage)
    yield made
    made.writer.close()


def test_odd_texts_mean_the_same_every_way(setting: Setting) -> None:
    for number in range(CONDITIONS):
        condition = setting.drawn.draw()
        kept = setting.kept(condition)
        if kept is None:
            continue
        asked = (setting.names, SEED, condition)
        found = setting.of(setting.context, f"SELECT {setting.key} FROM t WHERE {condition}")
        assert found == kept, asked
        reader = setting.table.scan(columns=[setting.names[0]], filter=condition)
        assert sorted(reader.read_all().column(0).to_pylist()) == kept, asked
        said = implied(condition, setting.rows.schema)
        keys = key_equalities(said, setting.names[:1], setting.rows.schema)
        assert keys is None or set(kept) <= {one for (one,) in keys}, asked
        if number < SEARCHES:
            _search(setting, condition, kept)


def _search(setting: Setting, condition: str, kept: list[str]) -> None:
    name, table, most = setting.names[0], setting.table, 100
    calls = {
        "vector_search('t', 'e', [0.0, 1.0], 100)": table.vector_search(
            "e", [0.0, 1.0], most, filter=condition
        ),
        "full_text_search('t', 'body', 'word', 100)": table.full_text_search(
            "body", "word", most, filter=condition
        ),
        "hybrid_search('t', 'e', [0.0, 1.0], 'body', 'word', 100)": table.hybrid_search(
            "e", [0.0, 1.0], "body", "word", most, filter=condition
        ),
    }
    for call, found in calls.items():
        asked = (call, setting.names, SEED, condition)
        assert sorted(found[name].to_pylist()) == kept, asked
        sql = f"SELECT {setting.key} FROM {call} WHERE {condition}"
        assert setting.of(setting.context, sql) == kept, asked


def test_odd_values_are_bound_and_looked_up(setting: Setting) -> None:
    rng, table, key = setting.rng, setting.table, setting.names[0]
    held = set(setting.rows[key].to_pylist())
    for text in sorted(held) + [odd(rng) for _ in range(2 * SOAK)]:
        wanted = [text] if text in held else []
        assert table.get([text])[key].to_pylist() == wanted, text
        for op in ("=", "<>", ">="):
            sql = f"SELECT {setting.key} FROM t WHERE {setting.key} {op} $p"
            found = setting.of(setting.context, sql, param_values={"p": text})
            assert found == setting.of(setting.plain, sql, param_values={"p": text}), (op, text)
        sql = f"SELECT {setting.key} FROM t WHERE {named(setting.names[1])} = $p"
        found = setting.of(setting.context, sql, param_values={"p": text})
        assert found == setting.of(setting.plain, sql, param_values={"p": text}), text


@pytest.mark.parametrize("stage", ["flushed", "merged"])
def test_odd_texts_mean_the_same_in_the_command_line(stage: str, tmp_path: Path) -> None:
    setting = Setting(f"{SEED}/cli/{stage}", str(tmp_path / "t"), "bucket", stage)
    setting.writer.close()
    for _ in range(6 * SOAK):
        condition = setting.drawn.draw()
        kept = setting.kept(condition)
        if kept is not None:
            sql = f"SELECT {setting.key} AS k FROM t WHERE {condition} ORDER BY k"
            result = as_json("sql", setting.table.uri, sql)
            assert [row["k"] for row in result] == kept, (setting.names, SEED, condition)
