"""SQL that writes: statements that DataFusion refuses, before and around its own."""
