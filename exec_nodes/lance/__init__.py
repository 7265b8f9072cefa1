"""Lance's datasets: the identity of fragments, scans, and its errors."""
