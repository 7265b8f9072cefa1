"""The Java sources of the jar for Spark, and their build."""
