"""SQL, point lookups and search over Lance tables that take upserts and deletes."""
