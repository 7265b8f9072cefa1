"""Exceptions of signal handlers (Ctrl-C) that come out of native code."""

from __future__ import annotations

import re

from exec_nodes.base.errors import MemWalError

# Rust's two texts of a Python exception: Display and Debug.
_INTERRUPT = re.compile(r"External error: KeyboardInterrupt\b|<class 'KeyboardInterrupt'>")


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt where a native error has the text of one."""
    if not isinstance(error, MemWalError) and _INTERRUPT.search(str(error)):
        raise KeyboardInterrupt from error


def is_native(error: BaseException) -> bool:
    """Whether DataFusion or Arrow may have raised an error: neither has a class for all of its
    errors. An error of a signal handler, such as that of a time limit, has a class of its own, or
    TimeoutError.
    """
    module = type(error).__module__
    return not isinstance(error, OSError) and module in ("builtins", "pyarrow.lib")
