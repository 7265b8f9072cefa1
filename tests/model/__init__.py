"""A plain-dict model of a table, and the key types, regions and queries it is asked about."""
