"""The state of an open table that readers, writers and jobs share: context, base, schema,
MemTables."""
