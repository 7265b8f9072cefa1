"""This package's records of a table: its format and incarnation, the watermarks of gc."""
