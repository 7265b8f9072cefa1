"""Which rows are the newest of their key: stale sets, masks, joins with the base."""
