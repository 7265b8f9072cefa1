"""The root of every error this project raises, and its kinds.

A kind says what the caller does next, so that `except` clauses read as decisions:

* `RetryError`: nothing is wrong with the call; call again.
* `ReopenError`: this handle is finished; open a new one.
* `InvalidCallError`: fix the call; nothing was written.
* `RepairError`: the storage is damaged or was replaced; look with `table.check()`.
"""

from __future__ import annotations

from exec_nodes.base.brief import brief
from exec_nodes.base.secrets import redact_handled, redacted


class MemWalError(Exception):
    """Root of the tree: `except MemWalError` catches all that this project raises."""

    def __init__(self, *args: object) -> None:
        """Texts are made brief, and secrets are blanked out of them and of the error that is being
        handled."""
        super().__init__(*(brief(redacted(arg)) if isinstance(arg, str) else arg for arg in args))
        redact_handled()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles with its attributes, whatever arguments its class takes."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[MemWalError], args: tuple[object, ...]) -> MemWalError:
    return kind.__new__(kind, *args)


class RetryError(MemWalError):
    """Something changed meanwhile; the same call works when it is made again."""


class ReopenError(MemWalError):
    """This writer or table handle can't go on; open a new one."""


class InvalidCallError(MemWalError, ValueError):
    """The call can't be done with these arguments; the message names the value and the remedy."""


class UnsupportedError(InvalidCallError):
    """The call asks for what this version does not do."""


class RepairError(MemWalError):
    """Stored data is damaged, missing or replaced; the message names the file."""


class StoreUnavailableError(RetryError):
    """The store refused: full, read-only, no permission, out of reach. Nothing was written; the
    message names the path and the remedy."""


class CorruptFileError(RepairError):
    """A file is damaged; the message names it."""


class SourceGoneError(RetryError):
    """A generation's files are gone: it was merged and collected meanwhile. Take a new snapshot."""
