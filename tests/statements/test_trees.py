"""The tree of each statement of the corpus, as it was when somebody looked at it; and as sqlglot,
which nobody here wrote, reads the same text."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import sqlglot
from sqlglot import expressions as sg

from memwal_native import syntax
from memwal_native.syntax import SqlParser, SqlStatement
from tests.soak import SOAK
from tests.statements.test_corpus import entries

_GOLDEN = Path(__file__).with_name("trees.txt")
_KINDS = {
    "DELETE": sg.Delete,
    "UPDATE": sg.Update,
    "INSERT": sg.Insert,
    "MERGE": sg.Merge,
    "TRUNCATE": sg.TruncateTable,
}
# Forms that sqlglot reads otherwise or not at all.
_OWN = re.compile(r"BY NAME|OVERWRITE|^REPLACE|DO NOTHING WHEN|THEN DO NOTHING|SET \*|INSERT \*")


def trees() -> str:
    """The trees of the corpus as text, places apart."""
    parser = SqlParser()
    texts = [(entry.text, parser.statement(entry.text).tree) for entry in entries()]
    dumps = [f"{text}\n{tree}" for text, tree in texts if tree is not None]
    return re.sub(r", start: \d+(, end: \d+)?", "", "\n\n".join(dumps)) + "\n"


def test_trees_are_those_of_the_golden_file() -> None:
    assert trees() == _GOLDEN.read_text(encoding="utf-8")


def parse(text: str) -> sg.Expression:
    return sqlglot.parse_one(text, read="postgres")


def same(ours: object, theirs: sg.Expression | None) -> bool:
    """Whether sqlglot reads what we cut out of the text as what it has there."""
    if ours is None or theirs is None:
        return ours is None and theirs is None
    text = str(getattr(ours, "text", ours))
    return bool(parse(text).unnest() == theirs.unnest())


def same_source(ours: syntax.Part, theirs: sg.Expression) -> bool:
    source = parse(f"SELECT * FROM {ours.text}").find(sg.From)
    return source is not None and bool(source.this == theirs)


def target_of(theirs: sg.Expression) -> sg.Table:
    table = theirs.find(sg.Table)
    assert table is not None
    return table


def check(statement: SqlStatement, theirs: sg.Expression) -> None:
    tree = statement.tree
    assert isinstance(theirs, _KINDS[statement.word])
    assert tree is not None
    assert not isinstance(tree, syntax.Call | syntax.Variable)
    target = target_of(theirs.this if theirs.args.get("this") else theirs)
    assert tree.target.parts[-1] == target.name
    match tree:
        case syntax.Delete() | syntax.Update():
            assert (tree.alias or "") == target.alias
            where = theirs.args.get("where")
            assert same(tree.condition, where and where.this)
            assert bool(tree.returning) == bool(theirs.args.get("returning"))
        case syntax.Insert():
            assert same(tree.query, theirs.expression)
            assert (tree.conflict is None) == (theirs.args.get("conflict") is None)
        case syntax.Merge():
            assert same_source(tree.source, theirs.args["using"])
            assert same(tree.on, theirs.args["on"])
            whens = theirs.args["whens"].expressions
            assert len(tree.whens) == len(whens)
            for ours, when in zip(tree.whens, whens, strict=True):
                assert same(ours.condition, when.args.get("condition"))
                assert (ours.of == "matched") == bool(when.args["matched"])
                assert (ours.of == "alone") == bool(when.args.get("source"))
    if isinstance(tree, syntax.Update):
        sets = [(one.column.parts[-1], one.value) for one in tree.sets]
        pairs = zip(sets, theirs.expressions, strict=True)
        assert all(
            name == eq.this.name and same(value, eq.expression) for (name, value), eq in pairs
        )


def known_to_sqlglot() -> list[str]:
    """The changes of rows that sqlglot reads."""
    parser, texts = SqlParser(), [entry.text for entry in entries()]
    return [t for t in texts if parser.statement(t).word in _KINDS and not _OWN.search(t)]


def test_sqlglot_reads_the_same_kinds_targets_and_clauses() -> None:
    parser, texts = SqlParser(), known_to_sqlglot()
    assert len(texts) > 20  # nearly all that change rows
    for text in texts:
        check(parser.statement(text), parse(text))


def test_what_sqlglot_writes_is_read_the_same() -> None:
    """The corpus as another generator prints it, in other blanks, quotes and line breaks."""
    parser = SqlParser()
    for theirs in map(parse, known_to_sqlglot()):
        for pretty in (False, True):
            text = theirs.sql("postgres", pretty=pretty, identify=pretty)
            check(parser.statement(text), parse(text))


_LEAVES = ["t.n", "id", "7", "-1.5", "'it''s; -- no comment'", '"s"', "NULL", "TRUE"]


def grown(rng: Random, depth: int) -> str:
    """A random expression over columns of the corpus."""
    if depth == 0:
        return rng.choice(_LEAVES)

    def inner() -> str:
        return f"({grown(rng, depth - 1)})"

    forms = [
        lambda: f"{inner()} {rng.choice('+-*/%')} {inner()}",
        lambda: f"{inner()} {rng.choice(['=', '<>', '<=', 'AND', 'OR'])} {inner()}",
        lambda: f"NOT {inner()}",
        lambda: f"CASE WHEN {inner()} THEN {inner()} ELSE {inner()} END",
        lambda: f"COALESCE({inner()}, {inner()})",
        lambda: f"CAST({inner()} AS BIGINT)",
        lambda: f"{inner()} BETWEEN {inner()} AND {inner()}",
        # DataFusion's parser takes no subquery as the first of several.
        lambda: f"{inner()} IN (7, {inner()})",
        lambda: f"{inner()} IS NULL",
        lambda: f"(SELECT MAX({inner()}) FROM s WHERE {inner()})",
        lambda: f"EXISTS(SELECT 1 FROM s WHERE {inner()})",
    ]
    return rng.choice(forms)()


def test_sqlglot_reads_random_expressions_in_every_place_the_same() -> None:
    parser, rng, seen = SqlParser(), Random(32), 0
    for _ in range(3 * SOAK):
        for theirs in map(parse, known_to_sqlglot()):
            for literal in list(theirs.find_all(sg.Literal)):
                literal.replace(parse(f"({grown(rng, rng.randint(0, 3))})"))
                seen += 1
            text = theirs.sql("postgres", pretty=rng.random() < 0.5)
            check(parser.statement(text), parse(text))
    assert seen > 100
