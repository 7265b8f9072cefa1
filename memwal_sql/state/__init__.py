"""What readers, writers and jobs share of an open table: context, base, schema, MemTables."""
