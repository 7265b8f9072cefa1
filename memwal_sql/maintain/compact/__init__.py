"""The compaction of the base table's fragments."""
