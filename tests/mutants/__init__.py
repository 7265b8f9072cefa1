"""Small faults of the code, each of which some tests must notice."""
