"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A slow machine is no failure of the code; a database of examples would make runs differ.
settings.register_profile("repeatable", deadline=None, database=None)
settings.load_profile("repeatable")
