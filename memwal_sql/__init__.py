"""SQL, point lookups and search over Lance tables that take a stream of upserts and deletes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memwal_sql import lance_log as lance_log  # before anything imports Lance

# isort: split
import memwal_sql.catalog
import memwal_sql.history
import memwal_sql.transaction  # noqa: F401
from memwal_sql.create import create_table, enable, open_table
from memwal_sql.errors import (
    BackPressureError,
    ChangesCollectedError,
    ConflictError,
    CorruptFileError,
    DeadlineExceededError,
    FencedError,
    InvalidCallError,
    KeysExistError,
    MaintenanceLostError,
    MemWalError,
    NotAtomicWarning,
    NotFoundError,
    OutcomeUnknownError,
    PartlyWrittenError,
    RegionSealedError,
    ReopenError,
    RepairError,
    RetryError,
    SourceGoneError,
    StoreUnavailableError,
    TableReplacedError,
    TornEntryError,
    TransactionUnknownError,
    UnknownFormatError,
    UnrecordedVersionWarning,
    UnsupportedError,
    WriterFailedError,
)
from memwal_sql.storage.deadlines import deadline
from memwal_sql.storage.objects.commit_log import register_commit_log
from memwal_sql.storage.region.versions import ManifestConflictError
from memwal_sql.table import Table
from memwal_sql.version import __version__ as __version__
from planner.regions.factories import (
    bucket,
    day,
    expression,
    hour,
    identity,
    lance_bucket,
    manual,
    month,
    multi_bucket,
    truncate,
    unsharded,
    year,
)

if TYPE_CHECKING:
    from memwal_sql import aio as aio
    from memwal_sql.catalog.provider import catalog
    from memwal_sql.drop import drop_table
    from memwal_sql.legacy.upgrade import older_mem_wals, upgrade
    from memwal_sql.maintain.checks.findings import CheckReport, Finding
    from memwal_sql.maintain.jobs import JobRun, Triggers
    from memwal_sql.maintain.loop import run_all_jobs, run_jobs_forever
    from memwal_sql.memory import configure, resident
    from memwal_sql.registration import deregister, register
    from memwal_sql.session.errors import memwal_errors
    from memwal_sql.statements.run import SessionContext, sql
    from memwal_sql.transaction.handle import TransactionResult
    from memwal_sql.transactions import (
        Transaction,
        history,
        outcome,
        run_transaction,
        transaction,
    )
    from memwal_sql.write.options import WriterOptions
    from memwal_sql.write.result import WriteResult
    from memwal_sql.write.table_writer import TableWriter

# What a program that opens a table and reads it does not need is imported where it is first used.
_AT_FIRST_USE = {
    "memwal_sql.catalog.provider": ("catalog",),
    "memwal_sql.drop": ("drop_table",),
    "memwal_sql.legacy.upgrade": ("older_mem_wals", "upgrade"),
    "memwal_sql.maintain.checks.findings": ("CheckReport", "Finding"),
    "memwal_sql.maintain.jobs": ("JobRun", "Triggers"),
    "memwal_sql.maintain.loop": ("run_all_jobs", "run_jobs_forever"),
    "memwal_sql.memory": ("configure", "resident"),
    "memwal_sql.registration": ("deregister", "register"),
    "memwal_sql.session.errors": ("memwal_errors",),
    "memwal_sql.statements.run": ("SessionContext", "sql"),
    "memwal_sql.transaction.handle": ("TransactionResult",),
    "memwal_sql.transactions": (
        "Transaction",
        "history",
        "outcome",
        "run_transaction",
        "transaction",
    ),
    "memwal_sql.write.options": ("WriterOptions",),
    "memwal_sql.write.result": ("WriteResult",),
    "memwal_sql.write.table_writer": ("TableWriter",),
}
# These folders have the names of functions: imported above, they do not take the names later.
for _name in ("catalog", "history", "transaction"):
    globals().pop(_name, None)  # a reload finds none


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.{name}")
    for module, names in _AT_FIRST_USE.items():
        if name in names:
            value = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
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
    "NotAtomicWarning",
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
    "UnrecordedVersionWarning",
    "UnsupportedError",
    "WriteResult",
    "WriterFailedError",
    "WriterOptions",
    "aio",
    "bucket",
    "catalog",
    "configure",
    "create_table",
    "day",
    "deadline",
    "deregister",
    "drop_table",
    "enable",
    "expression",
    "history",
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
]
