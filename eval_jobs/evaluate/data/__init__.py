"""Local data of benchmarks: its files, its rows, the digest of its content."""
