"""TPC-H with its refresh functions, beside DuckDB."""
