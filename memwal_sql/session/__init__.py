"""SQL over tables: the DataFusion provider, registration and the tables about a table."""
