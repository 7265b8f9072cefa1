"""Making indexes of the base table that generations and MemTables get too."""
