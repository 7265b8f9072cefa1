"""SQL over a table: the provider that DataFusion mounts, and metadata tables."""
