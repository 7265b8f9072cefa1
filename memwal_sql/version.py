"""The version of the package, for code that must not import all of it."""

from __future__ import annotations

__version__ = "0.2.0"
