"""Conditions of queries: which the sources apply, and that they mean what DataFusion says."""
