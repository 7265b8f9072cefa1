"""The public surface: what it names stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin, get_type_hints

import memwal_sql as mw
from memwal_sql.index.kinds import KINDS
from memwal_sql.read.snapshots import CONSISTENCIES

READING: tuple[Callable[..., Any], ...] = (
    mw.register,
    mw.catalog,
    mw.Table.scan,
    mw.Table.to_arrow,
    mw.Table.to_pandas,
    mw.Table.to_polars,
    mw.Table.count_rows,
    mw.Table.vector_search,
    mw.Table.full_text_search,
    mw.Table.hybrid_search,
)
CHANGING = ("upsert", "delete", "delete_where", "update")

NAMES = {
    "BackPressureError",
    "ChangesCollectedError",
    "CheckReport",
    "ConflictError",
    "CorruptFileError",
    "DeadlineExceededError",
    "FencedError",
    "Finding",
    "InvalidCallError",
    "JobRun",
    "KeysExistError",
    "MaintenanceLostError",
    "ManifestConflictError",
    "MemWalError",
    "NotFoundError",
    "OutcomeUnknownError",
    "PartlyWrittenError",
    "RegionSealedError",
    "ReopenError",
    "RepairError",
    "RetryError",
    "SessionContext",
    "SourceGoneError",
    "StoreUnavailableError",
    "Table",
    "TableReplacedError",
    "TableWriter",
    "TornEntryError",
    "Transaction",
    "TransactionResult",
    "TransactionUnknownError",
    "Triggers",
    "UnknownFormatError",
    "NotAtomicWarning",
    "UnrecordedVersionWarning",
    "UnsupportedError",
    "WriteResult",
    "WriterFailedError",
    "WriterOptions",
    "aio",
    "bucket",
    "catalog",
    "create_table",
    "configure",
    "day",
    "deadline",
    "deregister",
    "drop_table",
    "enable",
    "history",
    "expression",
    "hour",
    "identity",
    "lance_bucket",
    "manual",
    "memwal_errors",
    "month",
    "multi_bucket",
    "older_mem_wals",
    "open_table",
    "outcome",
    "register",
    "register_commit_log",
    "resident",
    "run_all_jobs",
    "run_jobs_forever",
    "run_transaction",
    "sql",
    "transaction",
    "truncate",
    "unsharded",
    "upgrade",
    "year",
}


def test_the_surface_is_what_it_was() -> None:
    assert set(mw.__all__) == NAMES
    assert list(mw.__all__) == sorted(mw.__all__)
    assert all(hasattr(mw, name) for name in mw.__all__)


def test_the_values_of_options_are_in_their_types() -> None:
    """So that type checkers and editors find `consistency="strog"`."""
    missing, isolation = ("error", "null"), ("snapshot", "serializable")
    options: list[tuple[Callable[..., Any], str, tuple[str, ...]]] = [
        *((call, "consistency", CONSISTENCIES) for call in READING),
        (mw.register, "missing", missing),
        (mw.catalog, "missing", missing),
        (mw.TableWriter.insert, "missing", ("keep", *missing)),
        (mw.TableWriter.upsert, "missing", ("keep", *missing)),
        *((getattr(mw.TableWriter, name), "isolation", isolation) for name in CHANGING),
        (mw.Table.create_index, "index_type", KINDS),
    ]
    for call, option, values in options:
        assert literals(get_type_hints(call)[option]) == set(values), (call, option)


def literals(kind: Any) -> set[str]:
    parts = get_args(kind)
    return set(parts) if get_origin(kind) is Literal else set().union(*map(literals, parts))


def test_every_error_says_what_to_do_next() -> None:
    kinds = (mw.RetryError, mw.ReopenError, mw.InvalidCallError, mw.RepairError)
    errors = [getattr(mw, name) for name in mw.__all__ if name.endswith("Error")]
    for error in errors:
        assert issubclass(error, mw.MemWalError)
        assert error is mw.MemWalError or issubclass(error, kinds)
        assert error.__doc__
