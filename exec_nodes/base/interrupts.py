"""What signal handlers raise, as Ctrl-C does, where native code and its errors are."""

from __future__ import annotations

import re

from exec_nodes.base.errors import MemWalError

# As Rust shows a Python exception, for people and for developers.
_INTERRUPT = re.compile(r"External error: KeyboardInterrupt\b|<class 'KeyboardInterrupt'>")


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt where a native error has the text of one."""
    if not isinstance(error, MemWalError) and _INTERRUPT.search(str(error)):
        raise KeyboardInterrupt from error


def is_native(error: BaseException) -> bool:
    """Whether DataFusion or Arrow may have raised an error, which have no class for all of theirs.
    What a signal handler raised, as that of a time limit, has a class of its own, or TimeoutError.
    """
    module = type(error).__module__
    return not isinstance(error, OSError) and module in ("builtins", "pyarrow.lib")
