"""Silences warnings of Lance about states that are right; imported before `lance` is.

Lance writes a line to stderr for every partition of a vector index that stays empty. A generation
is small and shares the many partitions of the base table, so most of them are.
"""

from __future__ import annotations

import os

os.environ.setdefault("LANCE_LOG", "warn,lance::index::vector=error")
