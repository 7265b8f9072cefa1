"""Spark reading and writing MemWAL tables, beside Spark's own Parquet in the same session."""
