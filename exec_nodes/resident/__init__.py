"""What is kept in memory of immutable files: columns and keys of fragments and generations."""
