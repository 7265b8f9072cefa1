"""Which fragments are written anew together."""

from __future__ import annotations

from random import Random

from memwal_sql.maintain.compact.groups import TARGET_BYTES, TARGET_ROWS, Fragment, groups_of
from tests.each import each

MERGED = 4000
FULL = 2 * TARGET_ROWS


def fragments(*rows: int, deleted: int = 0) -> list[Fragment]:
    return [Fragment(number, count, deleted) for number, count in enumerate(rows)]


LARGE = Fragment(0, 1000, 0, TARGET_BYTES)
CASES: dict[str, tuple[list[Fragment], int | None, float, list[list[int]]]] = {
    "none": ([], None, 0.1, []),
    "a single one": (fragments(5), None, 0.1, []),
    "all small ones": (fragments(5, 500_000, 7), None, 0.1, [[0, 1, 2]]),
    "not across large ones": (fragments(5, FULL, 7, 8), None, 0.1, [[2, 3]]),
    "by bytes": ([LARGE, *fragments(1, 1)[1:]], None, 0.1, []),
    "up to the target": (fragments(*[TARGET_ROWS // 2] * 5), None, 0.1, [[0, 1], [2, 3]]),
    "deleted rows": (fragments(10, deleted=1), None, 0.1, [[0]]),
    "few deleted rows": (fragments(11, deleted=1), None, 0.1, []),
    "deleted rows beside large ones": (
        [Fragment(0, FULL, 0), Fragment(1, FULL, FULL // 2), Fragment(2, FULL, FULL // 4)],
        None,
        0.25,
        [[1], [2]],
    ),
    "what an index covers alone": (
        [Fragment(n, 10, 0, 0, frozenset("ab"[: n // 3])) for n in range(6)],
        None,
        0.1,
        [[0, 1, 2], [3, 4, 5]],
    ),
    "too few": (fragments(1_000_000, *[MERGED] * 3), 4, 0.2, []),
    "enough": (fragments(1_000_000, *[MERGED] * 4), 4, 0.2, [[1, 2, 3, 4]]),
    "too few beside a larger one": (fragments(4 * MERGED, *[MERGED] * 3), 4, 0.2, []),
    "with a larger one": (fragments(3 * MERGED, *[MERGED] * 3), 4, 0.2, [[0, 1, 2, 3]]),
    "not with a larger one": (fragments(5 * MERGED, *[MERGED] * 4), 4, 0.2, [[1, 2, 3, 4]]),
    "with what is joined": (
        fragments(*[4 * MERGED] * 3, *[MERGED] * 4), 4, 0.2, [[0, 1, 2, 3, 4, 5, 6]]
    ),
    "with smaller ones": (fragments(*[MERGED] * 3, 10, MERGED), 4, 0.2, [[0, 1, 2, 3, 4]]),
    "smaller ones alone": (fragments(MERGED, 10, 10, 10, 10), 4, 0.2, [[1, 2, 3, 4]]),
    "deleted rows of a part of the table": (
        [Fragment(0, 900, 0), Fragment(1, 100, 99)], 4, 0.2, []
    ),
    "deleted rows of the whole table": (
        [Fragment(0, 900, 0), Fragment(1, 100, 50), Fragment(2, 900, 800)], 4, 0.2, [[1, 2]]
    ),
}  # fmt: skip


@each("name", CASES)
def test_groups(name: str) -> None:
    given, least, share, expected = CASES[name]
    found = groups_of(given, least, share)
    assert [[one.number for one in group] for group in found] == expected


@each("share_of_new_keys", [0.0, 0.5, 1.0])
def test_a_stream_of_merges_leaves_few_fragments_and_writes_few_rows(
    share_of_new_keys: float,
) -> None:
    """1,000 merges into a million rows: a dozen fragments, and each row is written some six times
    more; once that is done no further round finds anything."""
    random = Random(3)
    table, number, written, most = [Fragment(0, 1_000_000)], 1, 0, 0
    for _ in range(1000):
        replaced = round(MERGED * (1 - share_of_new_keys))
        live = sum(one.rows - one.deleted for one in table)
        table = [
            Fragment(
                one.number,
                one.rows,
                min(one.rows, one.deleted + round((one.rows - one.deleted) * replaced / live)),
            )
            for one in table
        ]
        table = [one for one in table if one.deleted < one.rows]
        size = random.randint(MERGED // 2, 3 * MERGED // 2)
        table, number = [*table, Fragment(number, size)], number + 1
        for group in groups_of(table, 4, 0.2):
            rows = sum(one.rows - one.deleted for one in group)
            table = [one for one in table if one not in group]
            table, number, written = [*table, Fragment(number, rows)], number + 1, written + rows
        assert groups_of(table, 4, 0.2) == []
        most = max(most, len(table))
    assert most <= 16
    assert written <= 8 * 1000 * MERGED
