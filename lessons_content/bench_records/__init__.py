"""What all benchmarks share: their command, their records and their tables."""
