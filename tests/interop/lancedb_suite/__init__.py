"""LanceDB's own tests that write to LSM tables, taken as they are from the public repository
lancedb/lancedb (python/python/tests, commit 45cd05347; Apache-2.0, The LanceDB Authors).

`conftest.py` runs our jobs on each table between their steps, and reads it in the end.
"""
