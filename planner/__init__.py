"""Pure functions from a query and a snapshot to a tree of execution nodes."""
