"""Processes that benchmarks start and watch."""
