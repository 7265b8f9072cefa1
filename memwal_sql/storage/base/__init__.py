"""Files of the base table: its manifest, versions, indexes and the MemWAL index."""
