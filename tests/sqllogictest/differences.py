"""Where answers differ, and why. A record that differs no more fails the tests, too."""

from __future__ import annotations

from collections.abc import Mapping

_DIFFERENT: Mapping[str, tuple[str, ...]] = {
    "UPDATE with FROM, and MERGE, which DataFusion has not": (
        "merge_into.slt:142",
        "merge_into.slt:210",
        "update.slt:85",
        "update.slt:113",
    ),
    "statements that define tables are refused where names are read otherwise": (
        "ident_normalization.slt:87",
        "ident_normalization.slt:174",
    ),
    "names without a catalog mean datafusion.public": (
        "cte.slt:65",
        "cte.slt:108",
        "information_schema_columns.slt:21",
        "information_schema_columns.slt:24",
        "information_schema_multiple_catalogs.slt:53",
        "information_schema_multiple_catalogs.slt:56",
        "information_schema_multiple_catalogs.slt:71",
        "information_schema_multiple_catalogs.slt:74",
        "information_schema_multiple_catalogs.slt:113",
        "information_schema_multiple_catalogs.slt:116",
    ),
    "1 / 0 for no rows: a plain table has an empty batch": (
        "arrow_files.slt:129",
        "arrow_files.slt:354",
    ),
    "what is registered about a table, and the search functions, are listed": (
        "information_schema.slt:83",
        "information_schema.slt:99",
        "information_schema.slt:907",
        "information_schema_multiple_catalogs.slt:80",
        "information_schema_table_types.slt:34",
    ),
    "a session gets the catalog that is its default, with the search functions": (
        "information_schema_columns.slt:31",
        "information_schema_columns.slt:36",
        "information_schema_columns.slt:49",
    ),
}


def expected(name: str) -> set[str]:
    """The records of a file that differ."""
    of_file = f"{name.rpartition('/')[2]}:"
    found = (one for records in _DIFFERENT.values() for one in records)
    return {one for one in found if one.startswith(of_file)}
