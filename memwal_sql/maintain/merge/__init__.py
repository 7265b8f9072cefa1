"""The merge of generations into the base table."""
