"""Ctrl-C where native code that called Python has made an error of its own of it."""

from __future__ import annotations

import re

from exec_nodes.base.errors import MemWalError

# As Rust shows a Python exception, for people and for developers.
_INTERRUPT = re.compile(r"External error: KeyboardInterrupt\b|<class 'KeyboardInterrupt'>")


def raise_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt where a native error has the text of one."""
    if not isinstance(error, MemWalError) and _INTERRUPT.search(str(error)):
        raise KeyboardInterrupt from error
