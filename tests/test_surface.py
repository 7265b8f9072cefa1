"""The public surface: what it names stays."""

from __future__ import annotations

import memwal_sql as mw

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
    "PlainTextWarning",
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
    "Triggers",
    "UnknownFormatError",
    "UnrecordedVersionWarning",
    "UnsupportedError",
    "WriteResult",
    "WriterFailedError",
    "WriterOptions",
    "bucket",
    "catalog",
    "create_table",
    "configure",
    "day",
    "deadline",
    "deregister",
    "drop_table",
    "enable",
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
    "register",
    "register_factory",
    "register_commit_log",
    "resident",
    "run_all_jobs",
    "run_jobs",
    "sql",
    "truncate",
    "unsharded",
    "upgrade",
    "year",
}


def test_the_surface_is_what_it_was() -> None:
    assert set(mw.__all__) == NAMES
    assert list(mw.__all__) == sorted(mw.__all__)
    assert all(hasattr(mw, name) for name in mw.__all__)


def test_every_error_says_what_to_do_next() -> None:
    kinds = (mw.RetryError, mw.ReopenError, mw.InvalidCallError, mw.RepairError)
    errors = [getattr(mw, name) for name in mw.__all__ if name.endswith("Error")]
    for error in errors:
        assert issubclass(error, mw.MemWalError)
        assert error is mw.MemWalError or issubclass(error, kinds)
        assert error.__doc__
