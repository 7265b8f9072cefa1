"""Golden plans: the tree that EXPLAIN shows, for each query shape, and the rows it gives."""
