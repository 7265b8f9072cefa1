"""What plans read: the base table, generations and MemTables, and which of their rows are stale."""
