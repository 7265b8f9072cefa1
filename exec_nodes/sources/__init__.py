"""The sources of plans: the base table, generations and MemTables, and their stale rows."""
