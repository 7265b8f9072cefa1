"""Vector search: distances, exhaustive search in memory, and Lance's indexes."""
