"""Hash functions of buckets: Iceberg's murmur3 and Lance's own."""
