"""What benchmarks share: data, sizes, timing, peers, reports."""
