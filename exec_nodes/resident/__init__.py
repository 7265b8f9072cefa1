"""Parts of immutable files in memory: columns and keys of fragments and generations."""
