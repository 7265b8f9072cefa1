"""Ratios against peers, measured in one run: `python -m benchmarks --help`."""
