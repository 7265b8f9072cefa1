"""Staged generations: rows that a pipeline's tasks write and its driver publishes."""
