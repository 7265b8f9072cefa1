"""Full-text search: the texts of a source as postings, BM25, and the language of queries."""
