"""SQL statements that write, and the queries and definitions around them."""
