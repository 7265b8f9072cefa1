"""Finds the newest row of each key: stale sets, masks, joins with the base."""
