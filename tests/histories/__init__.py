"""Random histories of a table, compared with the oracle after every step."""
