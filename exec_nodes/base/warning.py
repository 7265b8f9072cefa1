"""Warnings that point to the line of the user's program."""

from __future__ import annotations

import inspect
import warnings
from types import FrameType
from typing import Final

_PACKAGES: Final = ("datafusion", "exec_nodes", "memwal_native", "memwal_sql", "planner")


def warn(text: str, category: type[Warning]) -> None:
    """Warn with the place of the first caller that is neither this project nor DataFusion.

    Python 3.12 has `skip_file_prefixes` for this; Python 3.11 does not.
    """
    level, frame = 0, inspect.currentframe()
    while frame is not None and _package(frame) in _PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level + 1)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
