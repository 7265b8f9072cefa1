"""Background jobs of a table."""
