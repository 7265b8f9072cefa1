"""Primary keys: their hashes, codes, indexes, bloom filters and SQL form."""
