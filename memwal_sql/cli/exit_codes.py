"""The exit codes of `memwal`: each says what the caller does next, as the kinds of errors do."""

from __future__ import annotations

from enum import IntEnum

from memwal_sql.errors import InvalidCallError, MemWalError, ReopenError, RepairError, RetryError


class ExitCode(IntEnum):
    """Each is in the table of docs/command-line.md."""

    DONE = 0
    FINDINGS = 1  # `check` found something wrong with the table
    CALL = 2  # the call can't be done as it was made
    RETRY = 3  # the same call may work when it is made again
    REOPEN = 4  # the writer, feed or handle is finished: open a new one
    REPAIR = 5  # stored data is damaged, missing or replaced
    BUG = 70  # something unforeseen, with a traceback
    INTERRUPTED = 130
    PIPE_CLOSED = 141


_BY_KIND = (
    (InvalidCallError, ExitCode.CALL),
    (RetryError, ExitCode.RETRY),
    (ReopenError, ExitCode.REOPEN),
    (RepairError, ExitCode.REPAIR),
)


def exit_code_of(error: MemWalError) -> ExitCode:
    """The exit code for an error of this project."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), ExitCode.BUG)
