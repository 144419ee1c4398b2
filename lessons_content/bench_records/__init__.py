"""The part that all benchmarks share: commands, records and tables."""
