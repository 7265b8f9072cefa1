"""The past of a table: its versions, their names, its files."""
