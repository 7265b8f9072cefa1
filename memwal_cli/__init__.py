"""The command `memwal`, which loads `memwal_sql.cli` once Ctrl-C ends it without a trace."""

from __future__ import annotations

import importlib
import os
import signal

_INTERRUPTED = 130  # as shells have it, and `memwal_sql.cli.exit_codes`


def main() -> None:
    """Run the command that the arguments of the process name."""
    # A process that is to ignore Ctrl-C goes on doing so.
    ends_by_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ends_by_signal:
        # Nothing is written yet, and an exception would come out of an import with its trace.
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    application = importlib.import_module("memwal_sql.cli.app")
    if ends_by_signal:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    application.main()
