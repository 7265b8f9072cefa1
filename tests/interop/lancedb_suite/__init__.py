"""LanceDB's own tests of LSM tables with a plain commit or indexes, as they are in the public
repository lancedb/lancedb (python/python/tests, commit 45cd05347; Apache-2.0, The LanceDB
Authors).

`conftest.py` runs our jobs on each table between their steps, and reads it in the end.
"""
